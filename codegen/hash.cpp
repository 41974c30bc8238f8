// The 128-bit text hash.
#include "codegen/hash.h"

#include <bit>
#include <cstring>

namespace etch::codegen {
namespace {

uint64_t finish(uint64_t x) {
  x ^= x >> 32;
  x *= 0xd6e8feb86659fd93u;
  x ^= x >> 32;
  x *= 0xd6e8feb86659fd93u;
  return x ^ (x >> 32);
}

}  // namespace

Hash128 Hash128::of(std::string_view text) {
  uint64_t a = 0x9e3779b97f4a7c15u + text.size(), b = 0xc2b2ae3d27d4eb4fu ^ text.size();
  for (size_t i = 0; i < text.size(); i += 8) {
    uint64_t word = 0;
    std::memcpy(&word, text.data() + i, text.size() - i < 8 ? text.size() - i : 8);
    a = std::rotl((a ^ finish(word)) * 0x9fb21c651e98df25u, 29);
    b = std::rotl((b + word) * 0xa0761d6478bd642fu, 37) ^ a;
  }
  return {finish(a ^ std::rotl(b, 17)), finish(b + a)};
}

std::string Hash128::hex() const {
  std::string text;
  for (uint64_t half : {high, low})
    for (int shift = 60; shift >= 0; shift -= 4) text += "0123456789abcdef"[half >> shift & 15];
  return text;
}

}  // namespace etch::codegen
