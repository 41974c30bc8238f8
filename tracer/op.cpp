// The op table, expanded from ops.def, and the registered compiler.
#include "tracer/op.h"

#include <algorithm>
#include <atomic>

#include "runtime/error.h"
#include "tracer/path.h"

namespace etch {
namespace {

constexpr OpInfo kTable[kNumOps + 1] = {
#define ETCH_POINTWISE(name, arity, rule, expression, gradients, flags, doc) \
  {#name, OpKind::Pointwise, DTypeRule::rule, arity, 1, flags, #expression, nullptr, doc},
#define ETCH_GENERATOR(name, arity, rule, expression, gradients, flags, doc) \
  {#name, OpKind::Generator, DTypeRule::rule, arity, 1, flags, #expression, nullptr, doc},
#define ETCH_REDUCTION(name, rule, identity, combine, gradients, flags, doc) \
  {#name, OpKind::Reduction, DTypeRule::rule, 1, 1, flags, #combine, #identity, doc},
#define ETCH_OP(name, arity, outputs, kind, flags, doc) \
  {#name, OpKind::kind, DTypeRule::Rule, arity, outputs, flags, nullptr, nullptr, doc},
#define ETCH_COMPOSITE(name, arity, outputs, flags, doc) \
  {#name, OpKind::Composite, DTypeRule::Rule, arity, outputs, flags, nullptr, nullptr, doc},
#include "tracer/ops.def"
    {"fused", OpKind::Fused, DTypeRule::Rule, 0, 0, 0, nullptr, nullptr, "a fusion group"},
};

std::atomic<CompileFunction> compiler{nullptr};

}  // namespace

const OpInfo& info(Op op) { return kTable[static_cast<int>(op)]; }

Op parse_op(std::string_view name) {
  const auto* end = kTable + kNumOps + 1;
  const auto* found = std::find_if(kTable, end, [&](const OpInfo& row) { return row.name == name; });
  ETCH_CHECK(found != end, ValueError, "parse_op: expected the name of an op, got \"", name, "\"");
  return static_cast<Op>(found - kTable);
}

int written_operand(Op op, int output) {
  switch (op) {
    case Op::batch_norm:  // y, mean and 1/std are fresh; the running statistics are operands 3 and 4
      return output >= 3 ? output : -1;
    case Op::sgd_step:  // p, momentum buffer
      return output == 0 ? 0 : 2;
    case Op::sgd_plain_step:
      return 0;
    case Op::adam_step:  // p, m, v
      return output == 0 ? 0 : output + 1;
    default:
      return -1;
  }
}

void register_compiler(CompileFunction compile) { compiler.store(compile, std::memory_order_release); }
CompileFunction registered_compiler() { return compiler.load(std::memory_order_acquire); }

bool contains(const LiveSet& outer, const LiveSet& inner) {
  for (size_t i = 0; i < inner.size(); ++i)
    if (inner[i] && (i >= outer.size() || !outer[i])) return false;
  return true;
}

}  // namespace etch
