// Traced functions: etch::compile(f) wraps a callable, ETCH_TRACED() marks a function.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include "eager/tensor.h"
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
  int max_paths = 16;         ///< more than that, and the function runs eagerly
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
/// computed when it returns, at the latest.
template <class F>
class Compiled {
 public:
  Compiled(F function, const CompileFunctionOptions& options, SourceLocation where)
      : function_(std::move(function)), site_(detail::make_site(options, where)) {}

  template <class... Args>
  std::invoke_result_t<F&, Args...> operator()(Args&&... args) {
    const std::shared_ptr<Site> site = site_;  // a body may replace its own Compiled
    detail::Scope scope(*site);
    if constexpr (std::is_void_v<std::invoke_result_t<F&, Args...>>) {
      std::invoke(function_, std::forward<Args>(args)...);
      scope.finish();
    } else {
      std::invoke_result_t<F&, Args...> result = std::invoke(function_, std::forward<Args>(args)...);
      scope.finish();
      return result;
    }
  }

  /// The paths, how often each ran, why each was made, and what it costs.
  std::string explain() const { return detail::explain(*site_); }
  /// The same as JSON.
  std::string explain_json() const { return detail::explain_json(*site_); }
  /// The largest plan's memory; zeros while nothing is compiled.
  CompiledMemory memory() const { return detail::compiled_memory(*site_); }
  int compile_count() const { return detail::compile_count(*site_); }
  /// Flushes that ran compiled, and that ran op by op.
  int64_t compiled_calls() const { return detail::compiled_calls(*site_); }
  int64_t eager_calls() const { return detail::eager_calls(*site_); }
  /// With {.background = true}: returns when no compile of this function is queued or running.
  void wait_for_compiles() const { detail::wait_for_compiles(*site_); }

 private:
  F function_;
  std::shared_ptr<Site> site_;
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
Site& traced_site(const char* function, SourceLocation where);
}

}  // namespace etch

#define ETCH_CONCAT_2(a, b) a##b
#define ETCH_CONCAT(a, b) ETCH_CONCAT_2(a, b)
/// As the first line of a function's body: the rest of it is traced. Flushes when the function returns (other
/// locals are gone by then); may throw from there. etch::compile() is the first choice.
#define ETCH_TRACED()                                                                      \
  static ::etch::Site& ETCH_CONCAT(etch_site_, __LINE__) =                                 \
      ::etch::detail::traced_site(__PRETTY_FUNCTION__, ::etch::SourceLocation::current()); \
  ::etch::detail::Scope ETCH_CONCAT(etch_scope_, __LINE__)(ETCH_CONCAT(etch_site_, __LINE__))
