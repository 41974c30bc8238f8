// The table of where memory is and was.
#include <string>

#include "runtime/allocator.h"

namespace etch {
namespace {

void append_row(std::string& table, std::string_view first, std::string_view second, std::string_view third) {
  char row[128];
  std::snprintf(row, sizeof row, "  %-16.*s %14.*s %14.*s\n", static_cast<int>(first.size()), first.data(),
                static_cast<int>(second.size()), second.data(), static_cast<int>(third.size()), third.data());
  table += row;
}

}  // namespace

std::string print_bytes(int64_t bytes) {
  constexpr const char* kUnits[] = {"KiB", "MiB", "GiB", "TiB"};
  if (bytes < 1024) return std::to_string(bytes) + " B";
  double value = static_cast<double>(bytes) / 1024;
  int unit = 0;
  for (; value >= 1024 && unit < 3; ++unit) value /= 1024;
  char text[32];
  std::snprintf(text, sizeof text, "%.2f %s", value, kUnits[unit]);
  return text;
}

std::string_view name(MemoryCategory category) {
  constexpr std::string_view kNames[kNumMemoryCategories] = {
      "parameters", "gradients", "optimizer_state", "activations", "temporaries", "arena", "other"};
  return kNames[static_cast<int>(category)];
}

std::string memory_summary(Device device) {
  const MemoryStats stats = memory_stats(device);
  std::string table = "memory of " + to_string(device) + ": " + print_bytes(stats.reserved) +
                      " reserved, limit " + (stats.limit ? print_bytes(stats.limit) : "none") + ", " +
                      std::to_string(stats.allocations) + " allocations, " +
                      std::to_string(stats.device_allocations) + " from the device\n";
  append_row(table, "", "now", "at peak");
  for (int i = 0; i < kNumMemoryCategories; ++i)
    append_row(table, name(static_cast<MemoryCategory>(i)), print_bytes(stats.by_category[i]),
               print_bytes(stats.at_peak[i]));
  append_row(table, "allocated", print_bytes(stats.allocated), print_bytes(stats.peak_allocated));
  return table;
}

}  // namespace etch
