// Generating, running, comparing, shrinking and printing random traced functions.
#include "tests/jit/program_generator.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <typeinfo>

#include "jit/compile.h"
#include "jit/pipeline.h"
#include "runtime/config.h"
#include "tests/jit/program_helpers.h"

namespace etch::fuzz {

namespace {

// SplitMix64: the same programs on every machine.
class Dice {
 public:
  explicit Dice(uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15ull + 1) {}
  uint64_t next() {
    uint64_t z = state_ += 0x9E3779B97F4A7C15ull;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
  }
  int below(int count) { return static_cast<int>(next() % static_cast<uint64_t>(count)); }
  bool one_in(int count) { return below(count) == 0; }
  double unit() { return static_cast<double>(next() >> 11) * 0x1p-53; }

 private:
  uint64_t state_;
};

struct Form {
  int weight;
  const char* text;
  void (*run)(World&, Values&, int call, std::vector<Tensor>& out, const Statement&);
};

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
constexpr int kFormCount = static_cast<int>(std::size(kForms));
constexpr int kInputCount = 6;

bool is_positive(const Tensor& x) { return x.to(DType::F64).sum().item<double>() > 0; }

void run_statement(World& w, Values& v, int call, std::vector<Tensor>& out, const Statement& statement) {
  int times = 1;
  if (statement.guard == Statement::Guard::Call) times = call % statement.guard_a == statement.guard_b;
  if (statement.guard == Statement::Guard::Loop) times = (call + statement.guard_b) % (statement.guard_a + 1);
  try {
    if (statement.guard == Statement::Guard::Value) times = is_positive(v(statement.guard_a));
    for (int i = 0; i < times; ++i) kForms[statement.form].run(w, v, call, out, statement);
  } catch (const Error& error) {
    // Numbers in the message may differ: versions count from other starts.
    double hash = 0;
    for (const char* c = typeid(error).name(); *c; ++c) hash = std::fmod(hash * 31 + *c, 1e9);
    w.log.push_back(hash);
    ++totals().errors;
  }
}

std::vector<Tensor> inputs_of(const Program& program, int call) {
  Dice dice(program.seed + 1000003 * static_cast<uint64_t>(call + 1));
  const int64_t batch = program.batches[static_cast<size_t>(call)], width = program.width;
  static const float kWild[] = {std::nanf(""),
                                std::numeric_limits<float>::infinity(),
                                -std::numeric_limits<float>::infinity(),
                                -0.0f,
                                1e-42f,
                                3e38f,
                                70000.0f};
  const auto floats = [&](int64_t count) {
    std::vector<float> values;
    for (int64_t i = 0; i < count; ++i)
      values.push_back(program.wild && dice.one_in(6) ? kWild[dice.below(7)]
                                                      : static_cast<float>(dice.unit() * 4 - 2));
    return values;
  };
  std::vector<int64_t> integers;
  for (int64_t i = 0; i < batch; ++i) integers.push_back(dice.below(program.wild ? 1 << 30 : 7) - 3);
  std::vector<Tensor> inputs;
  inputs.push_back(from_vector(floats(batch * width), {batch, width}));
  inputs.push_back(from_vector(floats(width)));
  inputs.push_back(from_vector(integers));
  inputs.push_back(from_vector(floats(batch * width), {batch, width}) > 0);
  inputs.push_back(from_vector(floats(1), {}, {.dtype = DType::F64}));
  inputs.push_back(from_vector(floats(batch), {batch, 1}, {.dtype = DType::F16}));
  return inputs;
}

// One thing that is compared after a call.
struct Fact {
  std::string what;
  std::string bytes;  // canonical
};

template <class T>
void append_canonical(std::string& bytes, const void* data, int64_t count) {
  const T* values = static_cast<const T*>(data);
  for (int64_t i = 0; i < count; ++i) {
    T value = values[i];
    if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>) {
      if (std::isnan(to_float(value))) value = T{};
      const char tag = std::isnan(to_float(values[i])) ? 'n' : ' ';
      bytes += tag;
    } else if constexpr (std::is_floating_point_v<T>) {
      if (value != value) value = std::numeric_limits<T>::quiet_NaN();
    }
    bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
}

void add_tensor(std::vector<Fact>& facts, const std::string& what, const Tensor& tensor) {
  if (!tensor.defined()) {
    facts.push_back({what, "undefined"});
    return;
  }
  NoGrad guard;
  Fact fact{concat({what, " ", name(tensor.dtype()), to_string(tensor.sizes()), " strides ",
                    to_string(tensor.strides()), tensor.requires_grad() ? " on the tape" : ""}),
            ""};
  try {
    const Tensor dense = tensor.detach().contiguous();
    const char* data = static_cast<const char*>(dense.storage().data_for_read()) +
                       dense.storage_offset() * static_cast<int64_t>(item_size(dense.dtype()));
    visit_dtype(dense.dtype(), [&]<class T>() { append_canonical<T>(fact.bytes, data, dense.numel()); });
  } catch (const Error& error) {
    fact.bytes = concat({"unusable: ", typeid(error).name()});
  }
  facts.push_back(std::move(fact));
}

void add_tensors(std::vector<Fact>& facts, const std::string& what, const std::vector<Tensor>& tensors) {
  facts.push_back({concat({"count of ", what}), std::to_string(tensors.size())});
  for (size_t i = 0; i < tensors.size(); ++i)
    add_tensor(facts, concat({what, " ", static_cast<int64_t>(i)}), tensors[i]);
}

std::vector<Fact> facts_of(const World& w, const std::vector<Tensor>& out, const std::string& ending) {
  std::vector<Fact> facts{{"ending", ending}};
  add_tensors(facts, "output", out);
  add_tensors(facts, "parameter", w.params);
  std::vector<Tensor> grads;
  for (const Tensor& p : w.params) grads.push_back(p.grad());
  add_tensors(facts, "gradient", grads);
  add_tensors(facts, "momentum", w.momenta);
  add_tensors(facts, "second moment", w.second_moments);
  add_tensors(facts, "buffer", w.buffers);
  add_tensors(facts, "kept", w.kept);
  Fact log{"host log", ""};
  append_canonical<double>(log.bytes, w.log.data(), static_cast<int64_t>(w.log.size()));
  facts.push_back(log);
  Fact raw{"raw memory", ""};
  append_canonical<float>(raw.bytes, w.raw.data(), static_cast<int64_t>(w.raw.size()));
  facts.push_back(raw);
  const PhiloxState shared = default_generator().state(), own = w.own.state();
  facts.push_back({"generators", concat({shared.seed, " ", shared.offset, " ", own.seed, " ", own.offset})});
  return facts;
}

std::string hex(const std::string& bytes, size_t at) {
  std::string text;
  for (at &= ~size_t{7}; at < bytes.size() && text.size() < 32; ++at)
    text += concat({text.size() % 9 == 8 ? " " : "", std::string(1, "0123456789abcdef"[bytes[at] >> 4 & 15]),
                    std::string(1, "0123456789abcdef"[bytes[at] & 15])});
  return text;
}

std::string difference(const std::vector<Fact>& eager, const std::vector<Fact>& compiled) {
  for (size_t i = 0; i < std::min(eager.size(), compiled.size()); ++i) {
    if (eager[i].what != compiled[i].what)
      return concat({"eager has ", eager[i].what, ", compiled has ", compiled[i].what});
    if (eager[i].bytes != compiled[i].bytes) {
      std::string text = concat({eager[i].what, " differs"});
      const std::string &a = eager[i].bytes, &b = compiled[i].bytes;
      const size_t at =
          static_cast<size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
      text += concat({" from byte ", uint64_t{at}, " of ", uint64_t{a.size()}, " on: ", hex(a, at),
                      ", compiled ", hex(b, at)});
      return text;
    }
  }
  return "";
}

// Settings of one run; the old ones come back.
class Settings {
 public:
  Settings(bool disable, const Mode& mode) : old_(config()) {
    config().disable = disable;
    config().skip_passes = mode.skip_passes;
    config().poison = mode.poison;
    if (!mode.compile_kernels) config().cxx = "none";
  }
  ~Settings() { config() = old_; }

 private:
  Config old_;
};

class Run {
  using Step = std::function<void(Values&, int, std::vector<Tensor>&)>;

 public:
  Run(const Program& program, const Mode& mode, const Body& body, bool eager)
      : program_(program),
        mode_(mode),
        eager_(eager),
        world_(program.seed, program.width),
        state_(PhiloxState{program.seed, 0}),
        step_(compile(Step([this, &body](Values& v, int call, std::vector<Tensor>& out) {
                        body(world_, v, call, out);
                      }),
                      {.name = "random program", .compile_at = program.compile_at})) {
    world_.nested = compile([](const Tensor& x) { return (x * 2.0).tanh() + 1.0; }, {.name = "nested"});
  }

  std::vector<Fact> call(int number) {
    Settings settings(eager_, mode_);
    default_generator().set_state(state_);
    std::vector<Tensor> out;
    std::string ending = "returned";
    {
      Values values(inputs_of(program_, number));
      try {
        step_(values, number, out);
      } catch (const Stop&) {
        ending = "stopped";
      } catch (const std::exception& error) {
        ending = concat({"threw ", error.what()});
      }
    }
    state_ = default_generator().state();
    kept_outputs_.insert(kept_outputs_.end(), out.begin(), out.end());
    std::vector<Fact> facts = facts_of(world_, kept_outputs_, ending);
    ++totals().calls;
    return facts;
  }

  /// Why a path could not be compiled, if one could not.
  std::string compile_error() const {
    const auto json = nlohmann::json::parse(step_.explain_json());
    for (const auto& path : json["paths"])
      if (path["stays_eager_because"] != "") return path["stays_eager_because"];
    return "";
  }

  ~Run() {
    if (eager_) return;
    totals().compiles += step_.compile_count();
    totals().compiled_flushes += step_.compiled_calls();
    totals().eager_flushes += step_.eager_calls();
  }

 private:
  const Program& program_;
  const Mode& mode_;
  bool eager_;
  World world_;
  PhiloxState state_;
  std::vector<Tensor> kept_outputs_;  // outputs of earlier calls must not change
  Compiled<Step> step_;
};

Body body_of(const Program& program) {
  return [&program](World& w, Values& v, int call, std::vector<Tensor>& out) {
    for (const Statement& statement : program.statements) run_statement(w, v, call, out, statement);
  };
}

}  // namespace

World::World(uint64_t seed, int width) : raw(4, 1.5f), own(seed + 7) {
  Dice dice(seed ^ 0xABCDEF);
  const auto random = [&](const Dims& sizes) {
    std::vector<float> values;
    for (int64_t i = 0; i < num_elements(sizes); ++i)
      values.push_back(static_cast<float>(dice.unit() * 2 - 1));
    return from_vector(values, sizes);
  };
  params = {random({width, width}), random({width}), random({1}), random({width, 3})};
  for (Tensor& p : params) {
    momenta.push_back(zeros_like(p));
    second_moments.push_back(zeros_like(p));
    p.requires_grad_();
  }
  buffers = {random({6, width}), random({width}), ones({width}), arange(0, 5)};
  blob = from_blob(raw.data(), {4});
}

void Values::set(int number, Tensor value) {
  if (value.ndim() > 4 || value.numel() > 2000) value = value.sum();
  if (values_.size() <= static_cast<size_t>(number)) values_.resize(static_cast<size_t>(number) + 1);
  values_[static_cast<size_t>(number)] = std::move(value);
}

Totals& totals() {
  static Totals all;
  return all;
}

std::vector<std::string> optional_passes() {
  std::vector<std::string> names;
  for (const jit::Pass& pass : jit::passes())
    if (pass.optional) names.emplace_back(pass.name);
  return names;
}

Program generate(uint64_t seed) {
  static const std::vector<int> deck = [] {
    std::vector<int> cards;
    for (int form = 0; form < kFormCount; ++form)
      cards.insert(cards.end(), static_cast<size_t>(kForms[form].weight), form);
    return cards;
  }();
  Dice dice(seed);
  Program program;
  program.seed = seed;
  program.width = std::array{1, 3, 4, 4, 5, 8, 17}[static_cast<size_t>(dice.below(7))];
  program.wild = dice.one_in(4);
  program.compile_at = dice.one_in(4) ? 1 : 2;
  const int batch = std::array{1, 2, 4, 5, 16}[static_cast<size_t>(dice.below(5))];
  const bool steady = !dice.one_in(3);
  for (int call = 0; call < program.calls; ++call)
    program.batches.push_back(steady ? batch : dice.one_in(3) ? dice.below(4) : batch);
  const int count = 4 + dice.below(dice.one_in(4) ? 60 : 22);
  int numbers = kInputCount;
  const auto pick = [&] {  // late values more often
    return dice.one_in(3) ? dice.below(numbers) : numbers - 1 - dice.below(std::min(numbers, 5));
  };
  for (int i = 0; i < count; ++i) {
    Statement s;
    s.form = deck[static_cast<size_t>(dice.below(static_cast<int>(deck.size())))];
    s.a = pick();
    s.b = pick();
    s.c = pick();
    s.n = dice.below(8);
    s.m = dice.below(4);
    s.s = std::round((dice.unit() * 3 - 1) * 64) / 64;
    s.out = std::string_view(kForms[s.form].text).find("v.set(o") == std::string_view::npos ? 0 : numbers++;
    if (dice.one_in(8)) {
      s.guard = static_cast<Statement::Guard>(1 + dice.below(3));
      s.guard_a = s.guard == Statement::Guard::Value ? pick() : 2 + dice.below(2);
      s.guard_b = dice.below(2);
    }
    program.statements.push_back(s);
  }
  // What a program computes last should not be dead.
  Statement last;
  for (int form = 0; form < kFormCount; ++form)
    if (std::string_view(kForms[form].text) == "out.push_back(a)") last.form = form;
  last.a = numbers - 1;
  program.statements.push_back(last);
  return program;
}

std::optional<std::string> compare(const Program& program, const Mode& mode, const Body& body) {
  ++totals().programs;
  Run eager(program, mode, body, true), compiled(program, mode, body, false);
  for (int call = 0; call < program.calls; ++call) {
    const std::string text = difference(eager.call(call), compiled.call(call));
    if (!text.empty()) return concat({"call ", call, ": ", text});
  }
  const std::string error = compiled.compile_error();
  return error.empty() ? std::optional<std::string>() : concat({"cannot be compiled: ", error});
}

std::optional<std::string> find_difference(const Program& program, const Mode& mode) {
  return compare(program, mode, body_of(program));
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
    if (program.wild) {
      Program candidate = program;
      candidate.wild = false;
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

namespace {
bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

std::string number_text(double value) {
  std::string text = concat({value});
  return text.find_first_of(".en") == std::string::npos ? text + ".0" : text;
}
}  // namespace

std::string print(const Program& program) {
  std::string text = concat({"Program program{.seed = ", program.seed, ", .width = ", program.width,
                             ", .calls = ", program.calls, ", .batches = {"});
  for (int i = 0; i < program.calls; ++i)
    text += concat({i ? ", " : "", program.batches[static_cast<size_t>(i)]});
  text +=
      concat({"}, .wild = ", program.wild, ", .compile_at = ", program.compile_at,
              "};\ncompare(program, mode, [](World& w, Values& v, int call, std::vector<Tensor>& out) {\n"});
  for (const Statement& s : program.statements) {
    const std::map<std::string, std::string> words = {
        {"o", std::to_string(s.out)},    {"ia", std::to_string(s.a)},     {"a", concat({"v(", s.a, ")"})},
        {"b", concat({"v(", s.b, ")"})}, {"c", concat({"v(", s.c, ")"})}, {"n", std::to_string(s.n)},
        {"m", std::to_string(s.m)},      {"s", number_text(s.s)}};
    text += "  ";
    if (s.guard == Statement::Guard::Call)
      text += concat({"if (call % ", s.guard_a, " == ", s.guard_b, ") "});
    if (s.guard == Statement::Guard::Value)
      text += concat({"if (v(", s.guard_a, ").to(DType::F64).sum().item<double>() > 0) "});
    if (s.guard == Statement::Guard::Loop)
      text += concat({"for (int i = 0; i < (call + ", s.guard_b, ") % ", s.guard_a + 1, "; ++i) "});
    const std::string_view form = kForms[s.form].text;
    for (size_t i = 0; i < form.size();) {
      size_t end = i;
      while (end < form.size() && is_word(form[end])) ++end;
      if (end == i) {
        text += form[i++];
        continue;
      }
      const auto found = words.find(std::string(form.substr(i, end - i)));
      const bool member = i > 0 && form[i - 1] == '.';
      text += found == words.end() || member ? std::string(form.substr(i, end - i)) : found->second;
      i = end;
    }
    text += ";\n";
  }
  return text + "});\n";
}

}  // namespace etch::fuzz
