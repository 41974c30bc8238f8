// Messages of errors.
#include "runtime/error.h"

#include <gtest/gtest.h>

namespace etch {
namespace {

TEST(Error, JoinsPiecesOfEveryKind) {
  EXPECT_EQ(
      join_text({"a ", std::string("b "), -3, " ", uint64_t{18446744073709551615u}, " ", 0.1, " ", true}),
      "a b -3 18446744073709551615 0.1 true");
}

TEST(Error, CheckThrowsTheNamedTypeWithItsText) {
  const auto check = [](int got) { ETCH_CHECK(got > 0, ValueError, "f: expected more than 0, got ", got); };
  EXPECT_NO_THROW(check(1));
  try {
    check(-2);
    FAIL();
  } catch (const ValueError& error) {
    EXPECT_STREQ(error.what(), "f: expected more than 0, got -2");
  }
}

TEST(Error, InvariantNamesThePlaceAndIsNoUserError) {
  try {
    ETCH_INVARIANT(1 + 1 == 3);
    FAIL();
  } catch (const InternalError& error) {
    EXPECT_NE(std::string(error.what()).find("error_test.cpp:"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("1 + 1 == 3"), std::string::npos);
  }
}

}  // namespace
}  // namespace etch
