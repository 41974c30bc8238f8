// The rows of program_forms.h, compiled and as text.
#include "tests/jit/program_table.h"

#include <algorithm>

#include "jit/compile.h"
#include "tests/jit/program_helpers.h"

namespace etch::fuzz {

namespace {
constexpr Form kForms[] = {
#define FORM(weight, ...)                                                                      \
  {weight, #__VA_ARGS__,                                                                       \
   []([[maybe_unused]] World& w, [[maybe_unused]] Values& v, [[maybe_unused]] int call,        \
      [[maybe_unused]] std::vector<Tensor>& out, const Statement& statement) {                 \
     [[maybe_unused]] const int o = statement.out, ia = statement.a;                           \
     [[maybe_unused]] const Tensor a = v(statement.a), b = v(statement.b), c = v(statement.c); \
     [[maybe_unused]] const int64_t n = statement.n, m = statement.m;                          \
     [[maybe_unused]] const double s = statement.s;                                            \
     __VA_ARGS__;                                                                              \
   }},
#include "tests/jit/program_forms.h"
#undef FORM
};
}  // namespace

std::span<const Form> forms() { return kForms; }

size_t block_end(const std::vector<Statement>& statements, size_t at, size_t end) {
  size_t last = at + 1;
  while (last < std::min(end, at + static_cast<size_t>(statements[at].span)) && !statements[last].is_uncaught)
    ++last;
  return last;
}

}  // namespace etch::fuzz
