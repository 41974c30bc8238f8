// A 128-bit hash of text, stable across processes and machines, that names kernels and cache files.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace etch::codegen {

/// Two independent 64-bit multiply-and-rotate hashes. Guards against accidents, not against attackers: the
/// cache folder belongs to the user.
struct Hash128 {
  uint64_t low = 0, high = 0;

  static Hash128 of(std::string_view text);
  /// 32 lower-case digits.
  std::string hex() const;
  bool operator==(const Hash128&) const = default;
  template <class H>
  friend H AbslHashValue(H state, const Hash128& hash) {
    return H::combine(std::move(state), hash.low, hash.high);
  }
};

}  // namespace etch::codegen
