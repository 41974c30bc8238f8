// The text hash.
#include "codegen/hash.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace etch::codegen {
namespace {

TEST(Hash, IsTheSameEverywhere) {
  EXPECT_EQ(Hash128::of("").hex(), Hash128::of("").hex());
  EXPECT_EQ(Hash128::of("etch").hex().size(), 32u);
}

TEST(Hash, TellsSimilarTextsApart) {
  std::set<std::string> seen;
  std::string text(200, 'a');
  seen.insert(Hash128::of(text).hex());
  for (size_t i = 0; i < text.size(); ++i)
    for (int bit = 0; bit < 8; ++bit) {
      text[i] = static_cast<char>(text[i] ^ (1 << bit));
      EXPECT_TRUE(seen.insert(Hash128::of(text).hex()).second);
      text[i] = static_cast<char>(text[i] ^ (1 << bit));
    }
  for (size_t length = 0; length < 200; ++length)
    EXPECT_TRUE(seen.insert(Hash128::of(std::string(length, '\0')).hex()).second);
}

}  // namespace
}  // namespace etch::codegen
