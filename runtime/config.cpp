// Reading the settings from the environment, their help text, and the log.
#include "runtime/config.h"

#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <limits>

#include "runtime/error.h"

namespace etch {
namespace {

void parse(bool& value, std::string_view variable, std::string_view text) {
  if (text.empty()) return;
  ETCH_CHECK(text == "0" || text == "1", ValueError, "config: expected 0 or 1 in ", variable, ", got \"",
             text, "\"");
  value = text == "1";
}

template <class T>
requires std::is_integral_v<T>
void parse(T& value, std::string_view variable, std::string_view text) {
  if (text.empty()) return;
  T parsed = 0;
  auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), parsed);
  ETCH_CHECK(status == std::errc() && end == text.data() + text.size() && parsed >= 0, ValueError,
             "config: expected a whole number, 0 or more, in ", variable, ", got \"", text, "\"");
  value = parsed;
}

// Settings of 64 bits count bytes.
void parse(int64_t& value, std::string_view variable, std::string_view text) {
  if (text.empty()) return;
  constexpr std::string_view kSuffixes = "KMG";
  std::string_view digits = text;
  int shift = 0;
  if (const size_t suffix = kSuffixes.find(text.back()); suffix != kSuffixes.npos) {
    shift = 10 * (static_cast<int>(suffix) + 1);
    digits.remove_suffix(1);
  }
  int64_t count = 0;
  auto [end, status] = std::from_chars(digits.data(), digits.data() + digits.size(), count);
  ETCH_CHECK(status == std::errc() && end == digits.data() + digits.size() && count >= 0 &&
                 count <= std::numeric_limits<int64_t>::max() >> shift,
             ValueError, "config: expected a whole number of bytes, 0 or more, or one of K, M or G, in ",
             variable, ", got \"", text, "\"");
  value = count << shift;
}

std::string_view units(const int64_t&) { return "; 500M: 500 * 2^20, also K and G"; }
template <class T>
std::string_view units(const T&) {
  return "";
}

void parse(std::string& value, std::string_view, std::string_view text) { value = text; }

Config from_environment() {
  Config config;
#define ETCH_SETTING(field, type, initial, variable, help) \
  if (const char* text = std::getenv(variable)) parse(config.field, variable, text);
  ETCH_SETTINGS(ETCH_SETTING)
#undef ETCH_SETTING
  return config;
}

std::string print(bool value) { return value ? "1" : "0"; }
std::string print(int64_t value) { return std::to_string(value); }
std::string print(int value) { return std::to_string(value); }
std::string print(const std::string& value) { return "\"" + value + "\""; }

void append_row(std::string& table, std::string_view variable, std::string_view initial,
                std::string_view value, std::string_view help, std::string_view units = "") {
  const auto column = [&table](std::string_view text, size_t width) {
    table += text;
    table.append(text.size() < width ? width - text.size() : 0, ' ');
    table += "  ";
  };
  column(variable, 20);
  column(initial, 7);
  column(value, 7);
  table += help;
  table += units;
  table += '\n';
}

}  // namespace

Config& config() {
  static Config* const settings = new Config(from_environment());
  return *settings;
}

std::string config_help() {
  const Config initial_settings;
  std::string table;
  append_row(table, "variable", "default", "now", "meaning");
#define ETCH_SETTING(field, type, initial, variable, help)                                \
  append_row(table, variable, print(initial_settings.field), print(config().field), help, \
             units(config().field));
  ETCH_SETTINGS(ETCH_SETTING)
#undef ETCH_SETTING
  return table;
}

void log(int level, std::string_view text) {
  if (!log_enabled(level)) return;
  std::string line = "etch: ";
  line += text;
  line += '\n';
  // One write a line, so that lines of different threads do not mix.
  for (size_t done = 0; done < line.size();) {
    const ssize_t written = ::write(STDERR_FILENO, line.data() + done, line.size() - done);
    if (written <= 0) return;
    done += static_cast<size_t>(written);
  }
}

}  // namespace etch
