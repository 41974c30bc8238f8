// Generating and shrinking random traced functions.
#include <algorithm>
#include <array>
#include <cmath>
#include <initializer_list>

#include "jit/pipeline.h"
#include "tests/jit/program_table.h"

namespace etch::fuzz {

namespace {
int form_count() { return static_cast<int>(forms().size()); }
std::string_view text_of(int form) { return forms()[static_cast<size_t>(form)].text; }
bool contains_any(int form, std::initializer_list<std::string_view> parts) {
  return std::any_of(parts.begin(), parts.end(), [&](std::string_view part) {
    return text_of(form).find(part) != std::string_view::npos;
  });
}

Statement random_statement(Dice& dice, int form, int& numbers) {
  const auto pick = [&] {  // late values more often
    return dice.one_in(3) ? dice.below(numbers) : numbers - 1 - dice.below(std::min(numbers, 5));
  };
  Statement s;
  s.form = form;
  s.a = pick();
  s.b = pick();
  s.c = pick();
  s.n = dice.below(8);
  s.m = dice.below(4);
  s.s = std::round((dice.unit() * 3 - 1) * 64) / 64;
  s.out = text_of(form).find("v.set(o") == std::string_view::npos ? 0 : numbers++;
  if (dice.one_in(8)) {
    s.guard = static_cast<Statement::Guard>(1 + dice.below(4));
    const bool by_value = s.guard == Statement::Guard::Value || s.guard == Statement::Guard::ValueLoop;
    s.guard_a = by_value ? pick() : 2 + dice.below(2);
    s.guard_b = dice.below(2);
    s.span = dice.one_in(3) ? 1 + dice.below(5) : 1;
  }
  return s;
}
}  // namespace

std::vector<std::string> optional_passes() {
  std::vector<std::string> names;
  for (const jit::Pass& pass : jit::passes())
    if (pass.optional) names.emplace_back(pass.name);
  return names;
}

Program generate(uint64_t seed) {
  static const std::vector<int> deck = [] {
    std::vector<int> cards;
    for (int form = 0; form < form_count(); ++form)
      cards.insert(cards.end(), static_cast<size_t>(forms()[static_cast<size_t>(form)].weight), form);
    return cards;
  }();
  Dice dice(seed);
  Program program;
  program.seed = seed;
  program.width = std::array{1, 3, 4, 4, 5, 8, 17}[static_cast<size_t>(dice.below(7))];
  const bool large = dice.one_in(10);  // for passes that leave small values alone
  if (large) program.width = 64;
  program.wild = dice.one_in(4);
  program.compile_at = dice.one_in(4) ? 1 : 2;
  program.max_paths = dice.one_in(8) ? 2 : 64;
  program.aliases = dice.one_in(3);
  program.leaves = dice.one_in(4);
  const int batch = large ? 24 : std::array{1, 2, 4, 5, 16}[static_cast<size_t>(dice.below(5))];
  const bool steady = !dice.one_in(3);
  for (int call = 0; call < program.calls; ++call)
    program.batches.push_back(steady ? batch : dice.one_in(3) ? dice.below(4) : batch);
  const int count = 4 + dice.below(dice.one_in(4) ? 60 : 22);
  int numbers = kInputCount;
  for (int i = 0; i < count; ++i)
    program.statements.push_back(random_statement(
        dice, deck[static_cast<size_t>(dice.below(static_cast<int>(deck.size())))], numbers));
  // What a program computes last should not be dead.
  Statement last;
  for (int form = 0; form < form_count(); ++form)
    if (text_of(form) == "out.push_back(a)") last.form = form;
  last.a = numbers - 1;
  program.statements.push_back(last);
  if (dice.one_in(10)) {  // bad data that nothing in the body catches
    static const std::vector<int> bad = [] {
      std::vector<int> list;
      for (int form = 0; form < form_count(); ++form)
        if (forms()[static_cast<size_t>(form)].weight == 0) list.push_back(form);
      return list;
    }();
    Statement s =
        random_statement(dice, bad[static_cast<size_t>(dice.below(static_cast<int>(bad.size())))], numbers);
    s.guard = Statement::Guard::None;
    s.span = 1;
    s.is_uncaught = true;
    program.statements.push_back(s);
  }
  program.background = dice.one_in(5);
  if (dice.one_in(8)) {
    // The same library call with other threads need not give the same bits.
    const bool calls_library =
        std::any_of(program.statements.begin(), program.statements.end(), [](const Statement& s) {
          return contains_any(s.form, {"product(", "convolved(", "linear(", "attention("});
        });
    program.threads = calls_library || dice.one_in(2) ? Program::Threads::Alike : Program::Threads::Unlike;
  }
  if (dice.one_in(6)) program.max_executables = 1 + dice.below(3);
  if (program.max_paths < 64) program.max_paths = 1 + dice.below(4);
  return program;
}

Program generate_frozen(uint64_t seed) {
  Program program = generate(seed);
  program.frozen = true;
  program.calls = 5;
  program.batches.assign(5, program.batches[0]);
  program.max_paths = 64;
  program.max_executables = 0;
  std::erase_if(program.statements, [](const Statement& s) {
    return s.is_uncaught ||
           contains_any(
               s.form,
               {"w.log",     "w.kept",   "keep(",         "w.raw",  "w.blob", "host_write", "poke",
                "flush()",   "hook(",    "renew",         "recast", "load(",  "swap",       "requires_grad_",
                "set_state", "throw",    "w.nested_stop", "bad_",   "zeros(", "retained",   "from_vector",
                "positions", "gathered", "scattered",     "labels", "adam(",  "w.own",      "attention("});
  });
  // Longer ones are refused too often.
  const size_t longest = 4 + seed % 12;
  if (program.statements.size() > longest)
    program.statements.erase(program.statements.begin(),
                             program.statements.end() - static_cast<std::ptrdiff_t>(longest));
  for (Statement& s : program.statements)
    if (s.guard == Statement::Guard::Value || s.guard == Statement::Guard::ValueLoop)
      s.guard = Statement::Guard::None;
  return program;
}

Program generate_attention(uint64_t seed) {
  Program program = generate(seed);
  Dice dice(seed ^ 0xA77E);
  program.calls = 4;
  program.compile_at = 1 + dice.below(2);
  program.width = std::min(program.width, 17);
  program.memory_budget = dice.below(2);
  const size_t most = static_cast<size_t>(dice.below(5));
  if (program.statements.size() > most) program.statements.resize(most);
  std::erase_if(program.statements, [](const Statement& s) { return s.is_uncaught; });
  int form = 0, returns = 0;
  for (int f = 0; f < form_count(); ++f) {
    if (contains_any(f, {"attention("})) form = f;
    if (text_of(f) == "out.push_back(a)") returns = f;
  }
  int numbers = kInputCount + static_cast<int>(program.statements.size());
  for (int i = dice.below(2); i >= 0; --i) {
    const int made = numbers;
    Statement s = random_statement(dice, form, numbers);
    if (dice.below(3)) s.guard = Statement::Guard::None;
    program.statements.push_back(s);
    Statement result;
    result.form = returns;
    result.a = made;
    program.statements.push_back(result);
  }
  return program;
}

Program shrink(Program program, const Mode& mode) {
  bool smaller = true;
  const auto try_it = [&](const Program& candidate) {
    if (!find_difference(candidate, mode)) return false;
    program = candidate;
    return smaller = true;
  };
  while (smaller) {
    smaller = false;
    for (size_t size = std::max<size_t>(program.statements.size() / 2, 1); size > 0; size /= 2)
      for (size_t at = program.statements.size(); at-- > 0;) {
        if (at + size > program.statements.size()) continue;
        Program candidate = program;
        const auto from = candidate.statements.begin() + static_cast<std::ptrdiff_t>(at);
        candidate.statements.erase(from, from + static_cast<std::ptrdiff_t>(size));
        try_it(candidate);
      }
    for (size_t at = 0; at < program.statements.size(); ++at) {
      if (program.statements[at].guard == Statement::Guard::None) continue;
      Program candidate = program;
      candidate.statements[at].guard = Statement::Guard::None;
      if (try_it(candidate) || program.statements[at].span == 1) continue;
      candidate = program;
      candidate.statements[at].span = 1;
      try_it(candidate);
    }
    for (size_t at = 0; at < program.statements.size(); ++at)
      for (int Statement::*operand : {&Statement::a, &Statement::b, &Statement::c}) {
        if (program.statements[at].*operand == 0) continue;
        Program candidate = program;
        candidate.statements[at].*operand = 0;
        try_it(candidate);
      }
    while (program.calls > 1) {
      Program candidate = program;
      --candidate.calls;
      if (!try_it(candidate)) break;
    }
    for (bool Program::*flag : {&Program::wild, &Program::aliases, &Program::leaves, &Program::background}) {
      if (!(program.*flag)) continue;
      Program candidate = program;
      candidate.*flag = false;
      try_it(candidate);
    }
    if (program.threads != Program::Threads::One) {
      Program candidate = program;
      candidate.threads = Program::Threads::One;
      try_it(candidate);
    }
    if (program.max_executables) {
      Program candidate = program;
      candidate.max_executables = 0;
      try_it(candidate);
    }
    if (program.width > 2) {
      Program candidate = program;
      candidate.width = 2;
      try_it(candidate);
    }
  }
  return program;
}

}  // namespace etch::fuzz
