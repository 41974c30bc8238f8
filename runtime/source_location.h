// Where in the user's source something was asked for. (clang 14 has no std::source_location.)
#pragma once

namespace etch {

struct SourceLocation {
  const char* file = "";
  int line = 0;

  static constexpr SourceLocation current(const char* at_file = __builtin_FILE(),
                                          int at_line = __builtin_LINE()) {
    return {at_file, at_line};
  }
};

}  // namespace etch
