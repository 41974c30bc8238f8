// The flags that examples share, and what they stand for. Included once a program.
#pragma once

#include <absl/flags/flag.h>
#include <absl/flags/parse.h>
#include <absl/flags/usage.h>
#include <absl/flags/usage_config.h>

#include <cstdint>
#include <string>

#include "etch.h"

ABSL_FLAG(std::string, model, "", "the model; empty: one that suits the data");
ABSL_FLAG(std::string, data, "", "directory of the data; empty: that of the example");
ABSL_FLAG(int, batch, 0, "pictures a step; 0: the example's usual number");
ABSL_FLAG(int, epochs, 0, "passes over the training data; 0: the example's usual number");
ABSL_FLAG(std::string, mode, "compare", "eager, compiled, or compare, which runs both from the same seed");
ABSL_FLAG(std::string, device, "cpu", "cpu or cuda");
ABSL_FLAG(uint64_t, seed, 1, "of weights, shuffling and augmentation");
ABSL_FLAG(int, threads, 0, "threads; 0: all cores, or what suits the model");
ABSL_FLAG(bool, json, false, "print one line of JSON and nothing else");

namespace etch::examples {

/// Parses the command line; --help prints `usage` and the flags of examples.
inline void parse_flags(const char* usage, int argc, char** argv) {
  absl::SetProgramUsageMessage(usage);
  absl::FlagsUsageConfig config;
  config.contains_help_flags = [](absl::string_view file) {
    return file.find("examples/") != absl::string_view::npos;
  };
  absl::SetFlagsUsageConfig(config);
  absl::ParseCommandLine(argc, argv);
}

enum class Mode { Eager, Compiled, Compare };

inline Mode mode_flag() {
  const std::string mode = absl::GetFlag(FLAGS_mode);
  if (mode == "eager") return Mode::Eager;
  if (mode == "compiled") return Mode::Compiled;
  ETCH_CHECK(mode == "compare", ValueError, "--mode: expected eager, compiled or compare, got ", mode);
  return Mode::Compare;
}

inline Device device_flag() {
  const std::string device = absl::GetFlag(FLAGS_device);
  if (device == "cuda") return Device::cuda();
  ETCH_CHECK(device == "cpu", ValueError, "--device: expected cpu or cuda, got ", device);
  return Device::cpu();
}

/// A count that may be left to the example, which then takes `usual`.
inline int64_t count_flag(const absl::Flag<int>& flag, const char* name, int64_t usual) {
  const int count = absl::GetFlag(flag);
  ETCH_CHECK(count >= 0, ValueError, "--", name, ": expected at least 0, got ", count);
  return count ? count : usual;
}

}  // namespace etch::examples
