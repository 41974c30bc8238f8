// Settings, their help and the log.
#include "runtime/config.h"

#include <cstdlib>

#include "runtime/error.h"
#include "tests/runtime/expect_error.h"

namespace etch {
namespace {

TEST(Config, HelpListsEveryVariable) {
  const std::string help = config_help();
#define ETCH_SETTING(field, type, initial, variable, meaning)    \
  EXPECT_NE(help.find(variable), std::string::npos) << variable; \
  EXPECT_NE(help.find(meaning), std::string::npos) << variable;
  ETCH_SETTINGS(ETCH_SETTING)
#undef ETCH_SETTING
}

TEST(Config, HelpShowsTheValueOfNow) {
  const std::string old = std::exchange(config().skip_passes, "fuse,plan");
  EXPECT_NE(config_help().find("\"fuse,plan\""), std::string::npos);
  config().skip_passes = old;
}

TEST(Config, LogWritesOneLineWithinTheLevel) {
  const int old = std::exchange(config().log_level, 2);
  testing::internal::CaptureStderr();
  log(2, "shown");
  log(3, "hidden");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "etch: shown\n");
  config().log_level = old;
}

TEST(Config, HelpTellsTheSuffixesOfByteCounts) {
  EXPECT_NE(config_help().find("0: no limit; 500M: 500 * 2^20, also K and G\n"), std::string::npos);
}

// The environment is read once a process, so each case runs in a process of its own.
void read_with(const char* variable, const char* text) {
  ::setenv(variable, text, 1);
  try {
    config();
  } catch (const ValueError& error) {
    std::fputs(error.what(), stderr);
    std::_Exit(1);
  }
  std::fprintf(stderr, "log %d limit %ld disable %d cxx %s", config().log_level,
               static_cast<long>(config().memory_limit), config().disable, config().cxx.c_str());
  std::_Exit(0);
}

class ConfigEnvironment : public testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_F(ConfigEnvironment, ReadsEachType) {
  EXPECT_EXIT(read_with("ETCH_LOG", "4"), testing::ExitedWithCode(0), "log 4");
  EXPECT_EXIT(read_with("ETCH_MEMORY_LIMIT", "5000000000"), testing::ExitedWithCode(0), "limit 5000000000");
  EXPECT_EXIT(read_with("ETCH_MEMORY_LIMIT", "3K"), testing::ExitedWithCode(0), "limit 3072 ");
  EXPECT_EXIT(read_with("ETCH_MEMORY_LIMIT", "500M"), testing::ExitedWithCode(0), "limit 524288000 ");
  EXPECT_EXIT(read_with("ETCH_MEMORY_LIMIT", "4G"), testing::ExitedWithCode(0), "limit 4294967296 ");
  EXPECT_EXIT(read_with("ETCH_DISABLE", "1"), testing::ExitedWithCode(0), "disable 1");
  EXPECT_EXIT(read_with("ETCH_CXX", "none"), testing::ExitedWithCode(0), "cxx none");
  EXPECT_EXIT(read_with("ETCH_LOG", ""), testing::ExitedWithCode(0), "log 0");
}

TEST_F(ConfigEnvironment, RefusesOtherText) {
  EXPECT_EXIT(read_with("ETCH_DISABLE", "yes"), testing::ExitedWithCode(1),
              "expected 0 or 1 in ETCH_DISABLE, got \"yes\"");
  EXPECT_EXIT(read_with("ETCH_LOG", "3x"), testing::ExitedWithCode(1),
              "expected a whole number, 0 or more, in ETCH_LOG, got \"3x\"");
  EXPECT_EXIT(read_with("ETCH_THREADS", "-1"), testing::ExitedWithCode(1), "in ETCH_THREADS, got \"-1\"");
  for (const char* text : {"G", "-1G", "4GB", "1.5G", "4g", "9000000000G"})
    EXPECT_EXIT(read_with("ETCH_MEMORY_LIMIT", text), testing::ExitedWithCode(1),
                join_text({"of K, M or G, in ETCH_MEMORY_LIMIT, got \"", text, "\""}));
  EXPECT_EXIT(read_with("ETCH_LOG", "1K"), testing::ExitedWithCode(1), "in ETCH_LOG, got \"1K\"");
}

}  // namespace
}  // namespace etch
