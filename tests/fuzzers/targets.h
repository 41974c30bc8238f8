// What reads bytes from outside, as functions of any bytes: for libFuzzer, and for the corpus in the tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace etch::fuzz {

struct Target {
  std::string_view name;  ///< also of its folder in tests/corpus
  /// Returns, whatever the bytes are: bad ones are refused by an etch::Error in the reader. Anything else
  /// aborts.
  void (*run)(std::span<const uint8_t> bytes);
};

std::span<const Target> targets();
/// Null if there is none of that name.
const Target* find_target(std::string_view name);

}  // namespace etch::fuzz
