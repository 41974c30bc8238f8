// Call sites of traced functions, and the reports on them.
#include "jit/compile.h"

#include <deque>
#include <mutex>
#include <new>

#include "jit/executable.h"
#include "runtime/config.h"
#include "tracer/background.h"
#include "tracer/recorder.h"
#include "tracer/site.h"

namespace etch {

namespace {

std::string place(SourceLocation where) {
  std::string_view file = where.file;
  if (const size_t slash = file.rfind('/'); slash != std::string_view::npos) file.remove_prefix(slash + 1);
  return join_text({file, ":", static_cast<int64_t>(where.line)});
}

void register_jit() {
  static const bool registered = (jit::register_with_tracer(), true);
  (void)registered;
}

// Sites of ETCH_TRACED functions live for ever.
struct TracedSites {
  std::mutex mutex;
  std::deque<Site> sites;
};
TracedSites& traced_sites() {
  static TracedSites* const all = new TracedSites;
  return *all;
}

}  // namespace

namespace detail {

static_assert(sizeof(TraceScope) <= 48 && alignof(TraceScope) <= 8);

Scope::Scope(Site& site) { new (scope_) TraceScope(site); }
Scope::~Scope() noexcept(false) { reinterpret_cast<TraceScope*>(scope_)->~TraceScope(); }
void Scope::finish() { reinterpret_cast<TraceScope*>(scope_)->finish(); }

namespace {
SiteOptions site_options(const CompileFunctionOptions& options, const std::string& place) {
  ETCH_CHECK(options.compile_at >= 1, ValueError, "compile: expected compile_at of 1 or more, got ",
             options.compile_at);
  ETCH_CHECK(options.max_paths >= 1, ValueError, "compile: expected max_paths of 1 or more, got ",
             options.max_paths);
  ETCH_CHECK(options.memory_budget >= 0, ValueError,
             "compile: expected a memory_budget of 0 (none) or more bytes, got ", options.memory_budget);
  SiteOptions site;
  site.name = options.name.empty() ? place : options.name;
  site.compile_at = options.compile_at;
  site.max_paths = options.max_paths;
  site.memory_budget = options.memory_budget;
  site.background = options.background;
  return site;
}
}  // namespace

std::shared_ptr<Site> make_site(const CompileFunctionOptions& options, SourceLocation where) {
  register_jit();
  return std::make_shared<Site>(site_options(options, place(where)));
}

Site& traced_site(const char* function, SourceLocation where, const CompileFunctionOptions& options) {
  register_jit();
  SiteOptions site = site_options(options, place(where));
  site.name = join_text({options.name.empty() ? "" : options.name + ", ", function, " (", place(where), ")"});
  TracedSites& all = traced_sites();
  std::lock_guard lock(all.mutex);
  return all.sites.emplace_back(std::move(site));
}

void flush_while_unwinding() noexcept {
  try {
    flush(SourceLocation::current());
  } catch (const std::exception& error) {
    log(1, join_text({"flush while another exception was in flight: ", error.what()}));
  }
}

CompiledMemory compiled_memory(const Site& site) {
  CompiledMemory memory;
  for (PathEnd* end : site.ends()) {
    std::lock_guard lock(end->mutex);
    for (const auto& executable : end->executables) {
      const jit::ExecutableStatistics& plan =
          static_cast<const jit::PlanExecutable&>(*executable).statistics();
      if (plan.arena_bytes > memory.arena) memory = {plan.arena_bytes, plan.lower_bound_bytes};
    }
  }
  return memory;
}

namespace {
template <class T, class F>
T sum_over_ends(const Site& site, F&& f) {
  T sum = 0;
  for (PathEnd* end : site.ends()) {
    std::lock_guard lock(end->mutex);
    sum += f(*end);
  }
  return sum;
}
}  // namespace

int compile_count(const Site& site) {
  return sum_over_ends<int>(site, [](const PathEnd& end) { return end.compiles; });
}
int64_t compiled_calls(const Site& site) {
  return sum_over_ends<int64_t>(site, [](const PathEnd& end) { return end.compiled_calls; });
}
int64_t eager_calls(const Site& site) {
  return sum_over_ends<int64_t>(site, [](const PathEnd& end) { return end.eager_calls; });
}

void wait_for_compiles(const Site& site) { wait_for_background(&site.options()); }

}  // namespace detail

std::string explain_traced(std::string_view name) {
  TracedSites& all = traced_sites();
  std::lock_guard lock(all.mutex);
  for (const Site& site : all.sites)
    if (site.options().name.find(name) != std::string::npos) return detail::explain(site);
  return "";
}

}  // namespace etch
