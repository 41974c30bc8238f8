// Live sets, and the compiler that jit/ registers.
#include "tracer/path.h"

#include <atomic>

namespace etch {
namespace {

constinit std::atomic<CompileFunction> compiler{nullptr};

}  // namespace

void register_compiler(CompileFunction compile) { compiler.store(compile, std::memory_order_release); }
CompileFunction registered_compiler() { return compiler.load(std::memory_order_acquire); }

bool contains(const LiveSet& outer, const LiveSet& inner) {
  for (size_t i = 0; i < inner.size(); ++i)
    if (inner[i] && (i >= outer.size() || !outer[i])) return false;
  return true;
}

}  // namespace etch
