// The table of environment variables and process settings.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace etch {

/// Read once from the environment, changeable by tests and programs before or between calls. One row a
/// setting: ETCH_SETTING(field, type, default, "VARIABLE", "what it does").
#define ETCH_SETTINGS(ETCH_SETTING)                                                                          \
  ETCH_SETTING(disable, bool, false, "ETCH_DISABLE", "1: traced functions run as plain eager code")          \
  ETCH_SETTING(                                                                                              \
      log_level, int, 0, "ETCH_LOG",                                                                         \
      "1: paths, compiles, fallbacks; 2: times; 3: fusion and memory; 4: generated source; 5: every pass")   \
  ETCH_SETTING(dump_dir, std::string, "", "ETCH_DUMP",                                                       \
               "folder for graphs (.txt, .dot), kernels, plans (.json) and memory timelines")                \
  ETCH_SETTING(skip_passes, std::string, "", "ETCH_SKIP_PASSES",                                             \
               "comma-separated names of passes to leave out")                                               \
  ETCH_SETTING(verify, bool, false, "ETCH_VERIFY", "1: verify the graph after every pass")                   \
  ETCH_SETTING(poison, bool, false, "ETCH_POISON", "1: fill fresh and dead memory with NaN patterns")        \
  ETCH_SETTING(cache_dir, std::string, "", "ETCH_CACHE_DIR", "kernel cache; default ~/.cache/etch")          \
  ETCH_SETTING(cxx, std::string, "", "ETCH_CXX", "C++ compiler for generated kernels; \"none\": use none")   \
  ETCH_SETTING(memory_limit, int64_t, 0, "ETCH_MEMORY_LIMIT", "bytes of tensor memory allowed; 0: no limit") \
  ETCH_SETTING(max_executables, int, 1024, "ETCH_MAX_EXECUTABLES",                                           \
               "compiled paths kept in all, the least recently used go first; 0: no limit")                  \
  ETCH_SETTING(threads, int, 0, "ETCH_THREADS", "threads; 0: all cores")

struct Config {
#define ETCH_SETTING(field, type, initial, variable, help) type field = initial;
  ETCH_SETTINGS(ETCH_SETTING)
#undef ETCH_SETTING
};

/// The process-wide settings, filled from the environment at first use. Change them while no other thread
/// computes or compiles. Throws ValueError for text that is no value of the setting's type.
Config& config();
/// Every variable with its default, current value and meaning.
std::string config_help();

/// One line on stderr, "etch: ...", when `level` is within config().log_level.
void log(int level, std::string_view text);
inline bool log_enabled(int level) { return config().log_level >= level; }

}  // namespace etch
