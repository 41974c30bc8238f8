// Running random programs: the world they live in, what is compared after each call.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <typeinfo>

#include "jit/compile.h"
#include "jit/executable.h"
#include "nn/optim.h"
#include "runtime/config.h"
#include "runtime/parallel.h"
#include "runtime/parallel_testing.h"
#include "tests/jit/program_checker.h"
#include "tests/jit/program_helpers.h"
#include "tests/jit/program_table.h"
#include "tracer/background.h"

namespace etch::fuzz {

namespace {

int trips(const Statement& s, const Values& v, int call, int done) {
  switch (s.guard) {
    case Statement::Guard::None:
      return 1;
    case Statement::Guard::Call:
      return call % s.guard_a == s.guard_b;
    case Statement::Guard::Value:
      return is_positive(v(s.guard_a));
    case Statement::Guard::Loop:
      return (call + s.guard_b) % (s.guard_a + 1);
    case Statement::Guard::ValueLoop:
      return done < 3 && is_positive(v(s.guard_a)) ? done + 1 : done;
  }
  return 0;
}

class Walker {
 public:
  /// `raised`, if given: what raises an error is set.
  Walker(const Program& program, World& w, Values& v, int call, std::vector<Tensor>& out,
         std::vector<bool>* raised)
      : statements_(program.statements), w_(w), v_(v), call_(call), out_(out), raised_(raised) {}
  void run(size_t begin, size_t end) {
    for (size_t i = begin; i < end;) {
      const Statement& s = statements_[i];
      const size_t last = block_end(statements_, i, end);
      const bool guarded = s.guard != Statement::Guard::None;
      const bool again = s.guard == Statement::Guard::ValueLoop;
      int times = trips(s, v_, call_, 0);
      for (int done = 0; done < times; ++done, times = again ? trips(s, v_, call_, done) : times) {
        run_one(s);
        if (guarded) run(i + 1, last);
      }
      i = guarded ? last : i + 1;
    }
  }

 private:
  void run_one(const Statement& s) {
    const auto body = [&] { forms()[static_cast<size_t>(s.form)].run(w_, v_, call_, out_, s); };
    if (s.is_uncaught)
      body();
    else if (!attempt(w_, body) && raised_)
      (*raised_)[static_cast<size_t>(&s - statements_.data())] = true;
  }

  const std::vector<Statement>& statements_;
  World& w_;
  Values& v_;
  int call_;
  std::vector<Tensor>& out_;
  std::vector<bool>* raised_;
};

// Some inputs become windows of others, of what outlives calls, or earlier outputs.
void alias(std::vector<Tensor>& inputs, Dice& dice, int64_t batch, const World& w,
           const std::vector<Tensor>& outputs) {
  if (dice.one_in(2)) {
    const int64_t start = dice.below(7);
    inputs[0] = w.table.slice(0, start, start + batch);
  }
  switch (dice.below(5)) {
    case 0:
      if (batch > 0) inputs[1] = inputs[0].select(0, batch - 1);
      break;
    case 1:
      inputs[1] = w.table.select(0, dice.below(4));
      break;
    case 2:
      if (!outputs.empty() && outputs.back().defined()) inputs[1] = outputs.back().detach();
      break;
    case 3:
      inputs[1] = w.params[1].detach();
      break;
    default:
      break;
  }
}

std::vector<Tensor> inputs_of(const Program& program, int call, const World& w,
                              const std::vector<Tensor>& outputs) {
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
  if (program.aliases) alias(inputs, dice, batch, w, outputs);
  if (program.leaves)
    for (size_t i : {0, 1}) inputs[i] = inputs[i].detach().requires_grad_(is_floating(inputs[i].dtype()));
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
  Fact fact{join_text({what, " ", name(tensor.dtype()), to_string(tensor.sizes()), " strides ",
                       to_string(tensor.strides()), tensor.requires_grad() ? " on the tape" : ""}),
            ""};
  try {
    const Tensor dense = tensor.detach().contiguous();
    const char* data = static_cast<const char*>(dense.storage().data_for_read()) +
                       dense.storage_offset() * static_cast<int64_t>(item_size(dense.dtype()));
    visit_dtype(dense.dtype(), [&]<class T>() { append_canonical<T>(fact.bytes, data, dense.numel()); });
  } catch (const Error& error) {
    fact.bytes = join_text({"unusable: ", typeid(error).name()});
  }
  facts.push_back(std::move(fact));
}

void add_tensors(std::vector<Fact>& facts, const std::string& what, const std::vector<Tensor>& tensors) {
  facts.push_back({join_text({"count of ", what}), std::to_string(tensors.size())});
  for (size_t i = 0; i < tensors.size(); ++i)
    add_tensor(facts, join_text({what, " ", static_cast<int64_t>(i)}), tensors[i]);
}

std::vector<Fact> facts_of(const World& w, const std::vector<Tensor>& inputs, const std::vector<Tensor>& out,
                           const std::string& ending) {
  std::vector<Fact> facts{{"ending", ending}};
  add_tensors(facts, "input", inputs);
  std::vector<Tensor> input_grads;
  for (const Tensor& x : inputs) input_grads.push_back(x.grad());
  add_tensors(facts, "input gradient", input_grads);
  add_tensors(facts, "output", out);
  add_tensors(facts, "parameter", w.params);
  std::vector<Tensor> grads;
  for (const Tensor& p : w.params) grads.push_back(p.grad());
  add_tensors(facts, "gradient", grads);
  add_tensors(facts, "momentum", w.momenta);
  add_tensors(facts, "second moment", w.second_moments);
  add_tensors(facts, "buffer", w.buffers);
  add_tensors(facts, "kept", w.kept);
  add_tensor(facts, "table", w.table);
  for (const auto& optimizer : w.optimizers)
    if (optimizer)
      for (const auto& [name, tensor] : optimizer->state_dict())
        add_tensor(facts, join_text({"optimizer state ", name}), tensor);
  Fact log{"host log", ""};
  append_canonical<double>(log.bytes, w.log.data(), static_cast<int64_t>(w.log.size()));
  facts.push_back(log);
  Fact raw{"raw memory", ""};
  append_canonical<float>(raw.bytes, w.raw.data(), static_cast<int64_t>(w.raw.size()));
  facts.push_back(raw);
  const PhiloxState shared = default_generator().state(), own = w.own.state();
  facts.push_back(
      {"generators", join_text({shared.seed, " ", shared.offset, " ", own.seed, " ", own.offset})});
  return facts;
}

std::string hex(const std::string& bytes, size_t at) {
  std::string text;
  for (at &= ~size_t{7}; at < bytes.size() && text.size() < 32; ++at)
    text +=
        join_text({text.size() % 9 == 8 ? " " : "", std::string(1, "0123456789abcdef"[bytes[at] >> 4 & 15]),
                   std::string(1, "0123456789abcdef"[bytes[at] & 15])});
  return text;
}

std::string difference(const std::vector<Fact>& eager, const std::vector<Fact>& compiled) {
  for (size_t i = 0; i < std::min(eager.size(), compiled.size()); ++i) {
    if (eager[i].what != compiled[i].what)
      return join_text({"eager has ", eager[i].what, ", compiled has ", compiled[i].what});
    if (eager[i].bytes != compiled[i].bytes) {
      std::string text = join_text({eager[i].what, " differs"});
      const std::string &a = eager[i].bytes, &b = compiled[i].bytes;
      const size_t at =
          static_cast<size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
      text += join_text({" from byte ", uint64_t{at}, " of ", uint64_t{a.size()}, " on: ", hex(a, at),
                         ", compiled ", hex(b, at)});
      return text;
    }
  }
  return "";
}

// Settings of one run; the old ones come back when nothing is being compiled any more.
class Settings {
 public:
  Settings(bool disable, const Program& program, const Mode& mode) : old_(config()), threads_(num_threads()) {
    config().disable = disable;
    config().skip_passes = mode.skip_passes;
    config().poison = mode.poison;
    config().verify = true;
    if (config().log_level == 0) config().log_level = -1;  // what random programs do badly need not be told
    if (!mode.compile_kernels) config().cxx = "none";
    if (program.max_executables) config().max_executables = program.max_executables;
    if (program.threads != Program::Threads::One) limit_grain(1);
  }
  ~Settings() {
    run_in_background(this, [] {});  // after those of functions that are gone
    wait_for_background(this);
    config() = old_;
    set_num_threads(threads_);
    limit_grain(0);
  }
  Settings(const Settings&) = delete;

 private:
  Config old_;
  int threads_;
};

void set_threads(const Program& program, int call, bool eager) {
  if (program.threads == Program::Threads::One) return;
  const bool single = eager && program.threads == Program::Threads::Unlike;
  set_num_threads(single ? 1
                         : 1 + static_cast<int>((program.seed + 7 * static_cast<uint64_t>(call)) % 5 % 3));
}

void add_functions(World& w, const Program& program) {
  const bool background = program.background;
  w.nested = compile([](const Tensor& x) { return (x * 2.0).tanh() + 1.0; },
                     {.name = "nested", .background = background});
  w.nested_update = compile(
      [&w](const Tensor& x) {
        const Tensor total = x.detach().to(DType::F32).sum();
        Tensor written = w.buffers[1];
        written.mul_(0.5).add_(total * 0.01);
        return x + written.sum();
      },
      {.name = "nested update", .background = background});
  w.nested_stop = compile(
      [&w](const Tensor& x) -> Tensor {
        Tensor written = w.buffers[1];
        written.add_(1);
        const Tensor dropped = x * 2;
        throw Stop();
      },
      {.name = "nested stop", .background = background});
  w.recursive = compile(
      [&w](const Tensor& x, int depth) { return depth > 0 ? w.recursive(x * 0.5, depth - 1) + x : x.tanh(); },
      {.name = "recursive", .background = background});
}

CompileFunctionOptions options_of(const Program& program) {
  return {.name = "random program",
          .compile_at = program.compile_at,
          .max_paths = program.max_paths,
          .memory_budget = program.memory_budget,
          .background = program.background};
}

// After a compile(), which registers the one that it needs.
void choose_compiler(const Program& program, const Mode& mode) {
  register_compiler(mode.interpret && !program.wild ? checked_compile : jit::compile_path);
}

// How a body ended.
template <class F>
std::string ending_of(F&& f) {
  try {
    f();
  } catch (const Stop&) {
    return "stopped";
  } catch (const std::exception& error) {
    return join_text({"threw ", error.what()});
  }
  return "returned";
}

bool runs_tiles(const nlohmann::json& report) {
  for (const auto& path : report["paths"])
    for (const auto& executable : path["executables"])
      if (path["compiled_calls"] > 0 && executable.contains("kernels"))
        for (const auto& kernel : executable["kernels"])
          if (kernel["name"] == "tiled") return true;
  return false;
}

class Run {
  using Step = std::function<void(Values&, int, std::vector<Tensor>&)>;

 public:
  Run(const Program& program, const Mode& mode, const Body& body, bool eager)
      : settings_(eager, program, mode),
        program_(program),
        eager_(eager),
        world_(program.seed, program.width),
        state_(PhiloxState{program.seed, 0}),
        step_(compile(Step([this, &body](Values& v, int call, std::vector<Tensor>& out) {
                        body(world_, v, call, out);
                      }),
                      options_of(program))) {
    add_functions(world_, program);
    choose_compiler(program, mode);
  }

  std::vector<Fact> call(int number) {
    set_threads(program_, number, eager_);
    default_generator().set_state(state_);
    std::vector<Tensor> out;
    const std::vector<Tensor> inputs = inputs_of(program_, number, world_, kept_outputs_);
    std::string ending;
    {
      Values values(inputs);
      ending = ending_of([&] { step_(values, number, out); });
    }
    state_ = default_generator().state();
    kept_outputs_.insert(kept_outputs_.end(), out.begin(), out.end());
    std::vector<Fact> facts = facts_of(world_, inputs, kept_outputs_, ending);
    // Executables get ready between any two calls, or during one.
    if ((program_.seed + static_cast<uint64_t>(number)) % 3 == 0) step_.wait_for_compiles();
    ++totals().calls;
    return facts;
  }

  /// Why a path could not be compiled, if one could not.
  std::string compile_error() const {
    step_.wait_for_compiles();
    const auto json = nlohmann::json::parse(step_.explain_json());
    totals().refused_paths += json["eager_calls_after_giving_up"].get<int64_t>();
    std::string error;
    totals().tiled += runs_tiles(json);
    for (const auto& path : json["paths"]) {
      totals().evictions += path["evictions"].get<int64_t>();
      totals().while_compiling += path["calls_while_compiling"].get<int64_t>();
      if (path["stays_eager_because"] != "") error = path["stays_eager_because"];
    }
    return error;
  }

  ~Run() {
    if (eager_) return;
    step_.wait_for_compiles();
    totals().compiles += step_.compile_count();
    totals().compiled_flushes += step_.compiled_calls();
    totals().eager_flushes += step_.eager_calls();
  }

 private:
  Settings settings_;
  const Program& program_;
  bool eager_;
  World world_;
  PhiloxState state_;
  std::vector<Tensor> kept_outputs_;  // outputs of earlier calls must not change
  Compiled<Step> step_;
};

// A world of its own, and the body on fresh inputs.
struct FrozenSide {
  FrozenSide(const Program& p, const Body& b)
      : program(p), body(b), world(p.seed, p.width), state(PhiloxState{p.seed, 0}) {
    add_functions(world, p);
  }
  std::vector<Tensor> inputs(int call) const {
    std::vector<Tensor> list = inputs_of(program, call, world, {});
    if (alias && program.batches[0] > 0) list[1] = list[0].select(0, program.batches[0] - 1);
    return list;
  }
  std::vector<Tensor> run(const std::vector<Tensor>& inputs) {
    std::vector<Tensor> out;
    Values values(inputs);
    body(world, values, 1, out);
    return out;
  }
  // What others write between calls is seen.
  void write_between_calls() {
    const NoGrad guard;
    for (Tensor& p : world.params) {
      p.mul_(0.75);
      if (p.grad().defined()) (void)ending_of([&] { Tensor(p.grad()).zero_(); });
    }
    for (Tensor& b : world.buffers) b.add_(1);
  }

  Program program;
  const Body& body;
  World world;
  PhiloxState state;
  std::vector<Tensor> outputs = {};
  bool alias = std::exchange(program.aliases, false);
};

std::vector<Fact> facts_of(const FrozenSide& side, const std::vector<Tensor>& inputs,
                           const std::string& ending) {
  std::vector<Fact> facts = facts_of(side.world, inputs, side.outputs, ending);
  // What a frozen call does not do: the host's part, and the tape's.
  std::erase_if(facts, [](const Fact& fact) {
    return fact.what == "host log" || fact.what.starts_with("optimizer state steps");
  });
  for (Fact& fact : facts)
    if (const size_t at = fact.what.find(" on the tape"); at != std::string::npos) fact.what.erase(at);
  return facts;
}

std::optional<std::string> compare_frozen(const Program& program, const Mode& mode, const Body& body) {
  FrozenSide eager(program, body), frozen(program, body);
  int runs = 0;
  using T = const Tensor&;
  auto step = compile(
      [&](T a, T b, T c, T d, T e, T f) {
        ++runs;
        return frozen.run({a, b, c, d, e, f});
      },
      options_of(program));
  choose_compiler(program, mode);
  std::optional<Frozen<std::vector<Tensor>, 6>> call;
  {
    const Settings settings(false, program, mode);
    default_generator().set_state(frozen.state);
    const std::vector<Tensor> in = frozen.inputs(0);
    (void)ending_of([&] { call.emplace(step.freeze(in[0], in[1], in[2], in[3], in[4], in[5])); });
    step.wait_for_compiles();
    frozen.state = default_generator().state();
  }
  const auto eagerly = [&](auto&& f) {
    const Settings settings(true, program, mode);
    default_generator().set_state(eager.state);
    f();
    eager.state = default_generator().state();
  };
  for (int run = 0; run < runs; ++run)
    eagerly([&] { (void)ending_of([&] { (void)eager.run(eager.inputs(0)); }); });
  std::string text = difference(facts_of(eager, {}, ""), facts_of(frozen, {}, ""));
  if (!text.empty()) return join_text({"freezing: ", text});
  totals().refused += !call;
  for (int number = 1; call && number < program.calls; ++number) {
    const std::vector<Tensor> expected = eager.inputs(number), in = frozen.inputs(number);
    if (number % 2 == 0) {
      eager.write_between_calls();
      frozen.write_between_calls();
    }
    std::string ending, expected_ending;
    eagerly([&] {
      set_threads(program, 0, true);
      expected_ending = ending_of([&] {
        const std::vector<Tensor> out = eager.run(expected);
        eager.outputs.insert(eager.outputs.end(), out.begin(), out.end());
      });
    });
    {
      const Settings settings(number == 3, program, mode);
      set_threads(program, number == 2, false);
      default_generator().set_state(frozen.state);
      ending = ending_of([&] {
        const std::vector<Tensor> out = (*call)(in[0], in[1], in[2], in[3], in[4], in[5]);
        frozen.outputs.insert(frozen.outputs.end(), out.begin(), out.end());
      });
      frozen.state = default_generator().state();
    }
    ++totals().frozen_calls;
    text = difference(facts_of(eager, expected, expected_ending), facts_of(frozen, in, ending));
    if (!text.empty()) return join_text({"frozen call ", number, ": ", text});
  }
  return {};
}

Body body_of(const Program& program, std::vector<bool>* raised = nullptr) {
  return [&program, raised](World& w, Values& v, int call, std::vector<Tensor>& out) {
    Walker(program, w, v, call, out, raised).run(0, program.statements.size());
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
  table = random({32, width});
}

void Values::set(int number, Tensor value) {
  if (value.ndim() > 4 || value.numel() > 3200) value = value.sum();
  if (values_.size() <= static_cast<size_t>(number)) values_.resize(static_cast<size_t>(number) + 1);
  values_[static_cast<size_t>(number)] = std::move(value);
}

Totals& totals() {
  static Totals all;
  return all;
}

std::optional<std::string> compare(const Program& program, const Mode& mode, const Body& body) {
  ++totals().programs;
  if (program.frozen) return compare_frozen(program, mode, body);
  std::vector<std::vector<Fact>> expected;
  {
    Run eager(program, mode, body, true);
    for (int call = 0; call < program.calls; ++call) expected.push_back(eager.call(call));
  }
  Run compiled(program, mode, body, false);
  for (int call = 0; call < program.calls; ++call) {
    const std::string text = difference(expected[static_cast<size_t>(call)], compiled.call(call));
    if (!text.empty()) return join_text({"call ", call, ": ", text});
  }
  std::string error = compiled.compile_error();
  if (error.empty() && mode.interpret) error = take_disagreement();
  return error.empty() ? std::optional<std::string>() : join_text({"compiling: ", error});
}

std::vector<bool> statements_that_raise(const Program& program) {
  std::vector<bool> raised(program.statements.size());
  const Body body = body_of(program, &raised);
  Run eager(program, {}, body, true);
  for (int call = 0; call < program.calls; ++call) eager.call(call);
  return raised;
}

std::optional<std::string> find_difference(const Program& program, const Mode& mode) {
  return compare(program, mode, body_of(program));
}

}  // namespace etch::fuzz
