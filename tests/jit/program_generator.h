// Random traced functions, run eagerly and compiled and compared bit for bit; a failing one shrinks to C++
// text.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "eager/functional.h"
#include "eager/tensor.h"

namespace etch::optim {
class Optimizer;
}

namespace etch::fuzz {

/// What outlives a call: parameters, buffers, what the body stored, host state.
struct World {
  explicit World(uint64_t seed, int width);
  std::vector<Tensor> params, momenta, second_moments, buffers, kept;
  std::vector<double> log;  ///< what the host saw
  std::vector<float> raw;   ///< memory that the host also writes behind Etch's back, through `blob`
  Tensor blob;
  Generator own;
  /// Traced as well: plain, one that writes buffers, one that calls itself, one that an exception leaves.
  std::function<Tensor(const Tensor&)> nested, nested_update, nested_stop;
  std::function<Tensor(const Tensor&, int)> recursive;
  Tensor table;                                                 ///< inputs may be windows of it
  std::array<std::shared_ptr<optim::Optimizer>, 4> optimizers;  ///< made when first used
  int64_t counter = 0;
  int steps = 0;
};

/// The values of one call, by number. Those not (or no longer) there read as number 0.
class Values {
 public:
  explicit Values(std::vector<Tensor> inputs) : values_(std::move(inputs)) {}
  const Tensor& operator()(int number) const {
    const size_t at = static_cast<size_t>(number);
    return at < values_.size() && values_[at].defined() ? values_[at] : values_[0];
  }
  /// Keeps sizes and ranks small.
  void set(int number, Tensor value);
  void drop(int number) {
    if (number > 0 && static_cast<size_t>(number) < values_.size()) values_[static_cast<size_t>(number)] = {};
  }

 private:
  std::vector<Tensor> values_;
};

/// One statement: a row of the form table with its numbers.
struct Statement {
  int form = 0;
  int out = 0, a = 0, b = 0, c = 0;
  int64_t n = 0, m = 0;
  double s = 0;
  /// If the call's number or a value says so; as often as the call's number or a value says.
  enum class Guard : uint8_t { None, Call, Value, Loop, ValueLoop } guard = Guard::None;
  int guard_a = 0, guard_b = 0;
  int span = 1;              ///< statements under the guard, this one first
  bool is_uncaught = false;  ///< its errors end the call
};

struct Program {
  uint64_t seed = 0;
  int width = 4;
  int calls = 6;
  std::vector<int> batches = {};  ///< of each call
  bool wild = false;              ///< inputs hold NaN, infinities, denormals
  int compile_at = 2;
  int max_paths = 64;
  bool aliases = false;     ///< inputs are windows of one another, of what outlives calls, or earlier outputs
  bool leaves = false;      ///< inputs require gradients
  bool background = false;  ///< compile on the background thread
  /// The number of threads changes from call to call, and all work is split. Unlike: eager calls use one
  /// thread.
  enum class Threads : uint8_t { One, Alike, Unlike } threads = Threads::One;
  int max_executables = 0;    ///< in the process; 0: as usual
  int64_t memory_budget = 0;  ///< 1: recompute whatever can be
  bool frozen = false;        ///< freeze() instead of calls, on batches of the first size
  std::vector<Statement> statements = {};
};

/// How a program is run beside eager.
struct Mode {
  std::string skip_passes = {};
  bool compile_kernels = false;  ///< else groups run op by op
  bool poison = true;
  bool interpret = false;  ///< what a replay writes is compared with the reference interpreter too
};

using Body = std::function<void(World& w, Values& v, int call, std::vector<Tensor>& out)>;
/// Runs the body `program.calls` times eagerly, then in the mode; says what differs first, or nothing. The
/// program's statements do not matter here.
std::optional<std::string> compare(const Program& program, const Mode& mode, const Body& body);

Program generate(uint64_t seed);
/// One whose body freeze() may accept: without what tells calls apart and what the host would see.
Program generate_frozen(uint64_t seed);
/// A short one about attention, to be run with kernels.
Program generate_attention(uint64_t seed);
/// The same with the program's statements as the body.
std::optional<std::string> find_difference(const Program& program, const Mode& mode);
/// The smallest program that still differs.
Program shrink(Program program, const Mode& mode);
/// The program as C++ to paste into a test, with this header and program_helpers.h included. Statements whose
/// errors the body has to catch are found by running it eagerly.
std::string print(const Program& program);
std::vector<bool> statements_that_raise(const Program& program);
/// The names of the passes that may be skipped.
std::vector<std::string> optional_passes();

/// Totals over all find_difference() calls, to know that the compiled side really ran compiled.
struct Totals {
  int64_t programs = 0, calls = 0, compiles = 0, compiled_flushes = 0, eager_flushes = 0, errors = 0;
  int64_t interpreted = 0;      ///< flushes that the interpreter agreed with
  int64_t while_compiling = 0;  ///< flushes op by op while the background thread was compiling
  int64_t evictions = 0,
          refused_paths = 0;              ///< calls that took no known path, of a function that has too many
  int64_t tiled = 0;                      ///< programs that ran tiled nodes
  int64_t refused = 0, frozen_calls = 0;  ///< bodies that freeze() refused; calls of what it gave
};
Totals& totals();

}  // namespace etch::fuzz
