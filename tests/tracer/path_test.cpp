// What passes between the recorder and a compiler.
#include "tracer/path.h"

#include <gtest/gtest.h>

namespace etch {
namespace {

TEST(LiveSets, ContainmentIgnoresMissingTails) {
  EXPECT_TRUE(contains({true, true}, {true}));
  EXPECT_TRUE(contains({true}, {true, false, false}));
  EXPECT_FALSE(contains({true}, {true, true}));
  EXPECT_FALSE(contains({false, true}, {true, true}));
}

}  // namespace
}  // namespace etch
