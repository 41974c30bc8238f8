// Traced functions: etch::compile(f) wraps a callable, ETCH_TRACED() marks a function.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include "eager/tensor.h"
#include "jit/freeze.h"
#include "runtime/source_location.h"

namespace etch {

/// Sizes of the memory a compiled path uses, in bytes.
struct CompiledMemory {
  int64_t arena = 0;        ///< planned memory of one call
  int64_t lower_bound = 0;  ///< no plan of the same steps can do with less
};

struct CompileFunctionOptions {
  std::string name = "";      ///< in reports; default: the source line
  int compile_at = 2;         ///< compile a path at this sighting; 1: before its first run
  int max_paths = 16;         ///< these stay compiled, calls that take others run eagerly
  int64_t memory_budget = 0;  ///< bytes the arena should stay under, by recomputing; 0: none
  bool background = false;    ///< compile on another thread; until that is done, calls run op by op
};

class Site;
class TraceScope;

namespace detail {

/// A call site that outlives every call in flight.
std::shared_ptr<Site> make_site(const CompileFunctionOptions& options, SourceLocation where);
/// While open, the ops of this thread are deferred; finish() flushes them, or else the destructor.
class Scope {
 public:
  explicit Scope(Site& site);
  ~Scope() noexcept(false);
  void finish();
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  alignas(8) unsigned char scope_[48];
};

std::string explain(const Site& site);
std::string explain_json(const Site& site);
CompiledMemory compiled_memory(const Site& site);
int compile_count(const Site& site);
int64_t compiled_calls(const Site& site);
int64_t eager_calls(const Site& site);
void wait_for_compiles(const Site& site);

}  // namespace detail

/// A callable whose ops are captured. Copies share what has been compiled. May be called from many threads at
/// once. The body runs at every call, so host effects happen each time; the tensors it returns and stores are
/// computed when it returns, at the latest. It may be destroyed or replaced while calls are inside, even by
/// its own body: a call keeps what it needs until it is done. What the callable refers to is the user's to
/// keep.
template <class F>
class Compiled {
 public:
  Compiled(F function, const CompileFunctionOptions& options, SourceLocation where)
      : state_(std::make_shared<State>(State{std::move(function), detail::make_site(options, where)})) {}
  Compiled(const Compiled& other) requires std::is_copy_constructible_v<F>
      : state_(std::make_shared<State>(*other.state_)) {}
  Compiled(Compiled&&) noexcept = default;
  Compiled& operator=(const Compiled& other) requires std::is_copy_constructible_v<F> {
    state_ = std::make_shared<State>(*other.state_);
    return *this;
  }
  Compiled& operator=(Compiled&&) noexcept = default;

  template <class... Args>
  std::invoke_result_t<F&, Args...> operator()(Args&&... args) {
    const std::shared_ptr<State> state = state_;
    detail::Scope scope(*state->site);
    if constexpr (std::is_void_v<std::invoke_result_t<F&, Args...>>) {
      std::invoke(state->function, std::forward<Args>(args)...);
      scope.finish();
    } else {
      std::invoke_result_t<F&, Args...> result = std::invoke(state->function, std::forward<Args>(args)...);
      scope.finish();
      return result;
    }
  }

  /// A callable that replays the path of these arguments without running the body, for inner loops where
  /// microseconds count: `auto fast = step.freeze(x, y, 0.1); fast(x2, y2);`. It takes the tensors among the
  /// arguments and checks that they are like the examples.
  ///
  /// Freezing runs the body at least twice, as ordinary calls with all their effects (what they write, add to
  /// .grad and draw stays so, whether freezing succeeds or not), on copies of the example tensors. It throws
  /// TraceError, saying what it met, for bodies that read or write tensors from the host, leave more behind
  /// than what they return (new gradients in `.grad`; results or inputs that they also store), use other
  /// tensors or numbers from run to run (a step counter, a rate schedule), draw from a generator other than
  /// the default one, or write inputs or captured tensors on the tape (under no_grad they may). Gradients
  /// that are zeroed in place and added to are fine.
  ///
  /// What a frozen call does not see any more: branches, counters, prints and hooks of the body; numbers
  /// (they stay as they were); which tensors the body would use (captured ones stay the same memory: writes
  /// into them are seen, replacing them is not; a .grad that backward adds to must be the same, or none as
  /// then, or the call throws TraceError); train/eval and requires_grad. Results do not require gradients.
  /// Writes to captured tensors and inputs happen, and count as such; random numbers are drawn as eager
  /// would. While gradients are enabled, a written input that requires gradients is an AutogradError, unless
  /// its example did too. If the number of threads is another one, ops run one by one.
  template <class... Args>
  auto freeze(Args&&... args) {
    using Result = std::invoke_result_t<F&, Args...>;
    const std::shared_ptr<State> state = state_;
    constexpr size_t kTensors = (size_t{0} + ... + std::is_same_v<std::remove_cvref_t<Args>, Tensor>);
    std::vector<Tensor> examples;
    (
        [&] {
          if constexpr (std::is_same_v<std::remove_cvref_t<Args>, Tensor>) examples.push_back(args);
        }(),
        ...);
    detail::ResultParts parts;
    const auto body = [&](std::span<const Tensor> inputs) {
      const Tensor* next = inputs.data();
      // In braces: bound from left to right.
      std::tuple<decltype(detail::bind_argument(args, next))...> bound{detail::bind_argument(args, next)...};
      parts = {};
      if constexpr (std::is_void_v<Result>)
        std::apply(state->function, bound);
      else
        detail::ResultOf<std::remove_cvref_t<Result>>::take(std::apply(state->function, bound), parts);
      return std::move(parts.tensors);
    };
    std::shared_ptr<const detail::FrozenPlan> plan = detail::freeze(state->site, examples, body);
    return Frozen<std::remove_cvref_t<Result>, kTensors>(std::move(plan), std::move(parts.lengths));
  }

  /// The paths, how often each ran, why each was made, and what it costs. Run-time numbers are those of the
  /// last call that ran op by op; from the first report on, those of the last call.
  std::string explain() const { return detail::explain(*state_->site); }
  /// The same as JSON.
  std::string explain_json() const { return detail::explain_json(*state_->site); }
  /// The largest plan's memory; zeros while nothing is compiled.
  CompiledMemory memory() const { return detail::compiled_memory(*state_->site); }
  int compile_count() const { return detail::compile_count(*state_->site); }
  /// Flushes that ran compiled, and that ran op by op.
  int64_t compiled_calls() const { return detail::compiled_calls(*state_->site); }
  int64_t eager_calls() const { return detail::eager_calls(*state_->site); }
  /// With {.background = true}: returns when no compile of this function is queued or running.
  void wait_for_compiles() const { detail::wait_for_compiles(*state_->site); }

 private:
  struct State {
    F function;
    std::shared_ptr<Site> site;
  };
  std::shared_ptr<State> state_;
};

/// Wraps a free function, lambda or member function (called with the object first).
template <class F>
Compiled<std::decay_t<F>> compile(F&& function, CompileFunctionOptions options = {},
                                  SourceLocation where = SourceLocation::current()) {
  return Compiled<std::decay_t<F>>(std::forward<F>(function), options, where);
}

/// The report on the function marked by ETCH_TRACED() in which `name` occurs, e.g. its name; empty if there
/// is none.
std::string explain_traced(std::string_view name);

/// Does this thread's pending work now. Call it before another thread may touch a tensor that a traced body
/// has used.
void flush(SourceLocation where = SourceLocation::current());

namespace detail {
/// flush(), with errors logged.
void flush_while_unwinding() noexcept;
}  // namespace detail

/// Locks a mutex; flushes before unlocking, so that the next owner sees every value.
template <class Mutex>
class lock_guard {
 public:
  explicit lock_guard(Mutex& mutex) : mutex_(mutex) { mutex_.lock(); }
  ~lock_guard() noexcept(false) {
    struct Unlock {
      Mutex& mutex;
      ~Unlock() { mutex.unlock(); }
    } unlock{mutex_};
    if (std::uncaught_exceptions() == exceptions_) {
      etch::flush();
    } else {
      detail::flush_while_unwinding();
    }
  }
  lock_guard(const lock_guard&) = delete;
  lock_guard& operator=(const lock_guard&) = delete;

 private:
  Mutex& mutex_;
  int exceptions_ = std::uncaught_exceptions();
};

namespace detail {
Site& traced_site(const char* function, SourceLocation where, const CompileFunctionOptions& options = {});
}

}  // namespace etch

#define ETCH_CONCAT_2(a, b) a##b
#define ETCH_CONCAT(a, b) ETCH_CONCAT_2(a, b)
/// As the first line of a function's body: the rest of it is traced. Flushes when the function returns (other
/// locals are gone by then); may throw from there. etch::compile() is the first choice. Takes options, read
/// at the first call: ETCH_TRACED({.compile_at = 1, .background = true}).
#define ETCH_TRACED(...)                                                                  \
  static ::etch::Site& ETCH_CONCAT(etch_site_, __LINE__) = ::etch::detail::traced_site(   \
      __PRETTY_FUNCTION__, ::etch::SourceLocation::current() __VA_OPT__(, ) __VA_ARGS__); \
  ::etch::detail::Scope ETCH_CONCAT(etch_scope_, __LINE__)(ETCH_CONCAT(etch_site_, __LINE__))
