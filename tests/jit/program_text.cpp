// Random programs as C++.
#include <algorithm>
#include <cctype>
#include <map>

#include "runtime/error.h"
#include "tests/jit/program_helpers.h"
#include "tests/jit/program_table.h"

namespace etch::fuzz {

namespace {
bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

std::string number_text(double value) {
  std::string text = join_text({value});
  return text.find_first_of(".en") == std::string::npos ? text + ".0" : text;
}
// A statement's form with its numbers in place of the names.
std::string text_of(const Statement& s) {
  const std::map<std::string, std::string> words = {{"o", std::to_string(s.out)},
                                                    {"ia", std::to_string(s.a)},
                                                    {"a", join_text({"v(", s.a, ")"})},
                                                    {"b", join_text({"v(", s.b, ")"})},
                                                    {"c", join_text({"v(", s.c, ")"})},
                                                    {"n", join_text({"int64_t{", s.n, "}"})},
                                                    {"m", join_text({"int64_t{", s.m, "}"})},
                                                    {"s", number_text(s.s)}};
  std::string text;
  const std::string_view form = forms()[static_cast<size_t>(s.form)].text;
  for (size_t i = 0; i < form.size();) {
    size_t end = i;
    while (end < form.size() && is_word(form[end])) ++end;
    if (end == i) {
      text += form[i++];
      continue;
    }
    const std::string word(form.substr(i, end - i));
    const auto found = words.find(word);
    const bool is_member = i > 0 && form[i - 1] == '.';
    text += found == words.end() || is_member ? word : found->second;
    i = end;
  }
  if (text.ends_with("}")) return text;
  return text + ";";
}

std::string guard_text(const Statement& s) {
  switch (s.guard) {
    case Statement::Guard::None:
      return "";
    case Statement::Guard::Call:
      return join_text({"if (call % ", s.guard_a, " == ", s.guard_b, ")"});
    case Statement::Guard::Value:
      return join_text({"if (is_positive(v(", s.guard_a, ")))"});
    case Statement::Guard::Loop:
      return join_text({"for (int i = 0; i < (call + ", s.guard_b, ") % ", s.guard_a + 1, "; ++i)"});
    case Statement::Guard::ValueLoop:
      return join_text({"for (int i = 0; i < 3 && is_positive(v(", s.guard_a, ")); ++i)"});
  }
  return "";
}

class Printer {
 public:
  Printer(const Program& program, const std::vector<bool>& raised)
      : statements_(program.statements), raised_(raised) {}

  void block(size_t begin, size_t end, const std::string& indent) {
    for (size_t i = begin; i < end;) {
      const Statement& s = statements_[i];
      if (s.guard == Statement::Guard::None) {
        one(i++, indent);
        continue;
      }
      const size_t last = block_end(statements_, i, end);
      text += join_text({indent, guard_text(s), " {\n"});
      one(i, indent + "  ");
      block(i + 1, last, indent + "  ");
      text += indent + "}\n";
      i = last;
    }
  }
  std::string text;

 private:
  void one(size_t i, const std::string& indent) {
    const std::string statement = text_of(statements_[i]);
    text += indent + (raised_[i] ? "attempt(w, [&] { " + statement + " });" : statement) + "\n";
  }
  const std::vector<Statement>& statements_;
  const std::vector<bool>& raised_;
};
}  // namespace

std::string print(const Program& program) {
  static constexpr const char* kThreads[] = {"", ", .threads = Program::Threads::Alike",
                                             ", .threads = Program::Threads::Unlike"};
  std::string text = join_text({"Program program{.seed = ", program.seed, ", .width = ", program.width,
                                ", .calls = ", program.calls, ", .batches = {"});
  for (int i = 0; i < program.calls; ++i)
    text += join_text({i ? ", " : "", program.batches[static_cast<size_t>(i)]});
  text += join_text({"}, .wild = ",
                     program.wild,
                     ", .compile_at = ",
                     program.compile_at,
                     ", .max_paths = ",
                     program.max_paths,
                     ", .aliases = ",
                     program.aliases,
                     ", .leaves = ",
                     program.leaves,
                     ", .background = ",
                     program.background,
                     kThreads[static_cast<size_t>(program.threads)],
                     ", .max_executables = ",
                     program.max_executables,
                     ", .memory_budget = ",
                     program.memory_budget,
                     ", .frozen = ",
                     program.frozen,
                     "};\nconst auto found = compare(program, {}, [](World& w, Values& v, int call, "
                     "std::vector<Tensor>& out) {\n"});
  const std::vector<bool> raised = statements_that_raise(program);
  Printer printer(program, raised);
  printer.block(0, program.statements.size(), "  ");
  return text + printer.text + "});\nEXPECT_FALSE(found) << *found;\n";
}

}  // namespace etch::fuzz
