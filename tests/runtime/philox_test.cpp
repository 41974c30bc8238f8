// What generators hand out.
#include "runtime/philox.h"

#include "runtime/error.h"
#include "tests/runtime/expect_error.h"

namespace etch {
namespace {

TEST(Generator, ReservesACounterForFourElements) {
  Generator generator(7);
  EXPECT_EQ(generator.reserve(1).offset, 0u);
  EXPECT_EQ(generator.reserve(4).offset, 1u);
  EXPECT_EQ(generator.reserve(5).offset, 2u);
  EXPECT_EQ(generator.reserve(0).offset, 4u);
  EXPECT_EQ(generator.state().offset, 4u);
  EXPECT_EQ(generator.state().seed, 7u);
  EXPECT_ERROR(generator.reserve(-1), ValueError, "got -1");
}

TEST(Generator, SeedStartsOver) {
  Generator generator;
  generator.reserve(100);
  generator.manual_seed(3);
  EXPECT_EQ(generator.state().seed, 3u);
  EXPECT_EQ(generator.state().offset, 0u);
  generator.set_state({9, 11});
  EXPECT_EQ(generator.reserve(8).offset, 11u);
  EXPECT_EQ(generator.state().offset, 13u);
}

TEST(Generator, DefaultIsShared) {
  manual_seed(5);
  default_generator().reserve(4);
  EXPECT_EQ(default_generator().state().seed, 5u);
  EXPECT_EQ(default_generator().state().offset, 1u);
}

}  // namespace
}  // namespace etch
