// The op table, expanded from ops.def.
#include "tracer/op.h"

#include <algorithm>

#include "runtime/error.h"

namespace etch {
namespace {

using Written = std::array<int8_t, kMaxOutputs>;
constexpr Written kFresh = {-1, -1, -1, -1, -1, -1};

template <class... Operands>
constexpr Written writes(Operands... operands) {
  Written written = kFresh;
  int output = 0;
  ((written[output++] = static_cast<int8_t>(operands)), ...);
  return written;
}

constexpr OpInfo kTable[] = {
#define ETCH_POINTWISE(name, arity, rule, expression, gradients, flags, doc) \
  {#name, OpKind::Pointwise, DTypeRule::rule, arity, 1, flags, #expression, nullptr, doc, kFresh},
#define ETCH_GENERATOR(name, arity, rule, expression, gradients, flags, doc) \
  {#name, OpKind::Generator, DTypeRule::rule, arity, 1, flags, #expression, nullptr, doc, kFresh},
#define ETCH_REDUCTION(name, rule, identity, combine, gradients, flags, doc) \
  {#name, OpKind::Reduction, DTypeRule::rule, 1, 1, flags, #combine, #identity, doc, kFresh},
#define ETCH_OP(name, arity, outputs, kind, flags, doc) \
  {#name, OpKind::kind, DTypeRule::Rule, arity, outputs, flags, nullptr, nullptr, doc, kFresh},
#define FRESH kFresh
#define WRITES writes
#define ETCH_COMPOSITE(name, arity, outputs, written, flags, doc)                       \
  {#name,   OpKind::Composite, DTypeRule::Rule,                                         \
   arity,   outputs,           (written) == kFresh ? (flags) : (flags) | kWritesInputs, \
   nullptr, nullptr,           doc,                                                     \
   written},
#include "tracer/ops.def"
    {"fused", OpKind::Group, DTypeRule::Rule, 0, 0, 0, nullptr, nullptr, "a fusion group", kFresh},
    {"tiled", OpKind::Group, DTypeRule::Rule, 0, 0, 0, nullptr, nullptr, "products by blocks of rows",
     kFresh},
#undef FRESH
#undef WRITES
};

}  // namespace

const OpInfo& info(Op op) { return kTable[static_cast<int>(op)]; }

Op parse_op(std::string_view name) {
  const auto* found =
      std::find_if(std::begin(kTable), std::end(kTable), [&](const OpInfo& row) { return row.name == name; });
  ETCH_CHECK(found != std::end(kTable), ValueError, "parse_op: expected the name of an op, got \"", name,
             "\"");
  return static_cast<Op>(found - std::begin(kTable));
}

}  // namespace etch
