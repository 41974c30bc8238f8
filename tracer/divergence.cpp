// Comparing a new path with the older one that is most like it.
#include "tracer/divergence.h"

#include <algorithm>

#include "runtime/error.h"
#include "tracer/site.h"

namespace etch {
namespace {

using Kind = Divergence::Kind;

std::string describe_operand(const RecordedOperand& operand) {
  switch (operand.kind) {
    case RecordedOperand::Kind::Absent:
      return "nothing";
    case RecordedOperand::Kind::Scalar:
      return operand.scalar_kind == Scalar::Kind::Float ? "a floating scalar"
             : operand.scalar_kind == Scalar::Kind::Int ? "an integer scalar"
                                                        : "a bool scalar";
    case RecordedOperand::Kind::Tensor:
      break;
  }
  return join_text({name(operand.dtype), to_string(operand.geometry.sizes), " of storage %", operand.number});
}

Kind compare_operands(const RecordedOperand& a, const RecordedOperand& b) {
  if (a.kind != b.kind) return Kind::Operand;
  if (a.kind == RecordedOperand::Kind::Absent) return Kind::None;
  if (a.kind == RecordedOperand::Kind::Scalar)
    return a.scalar_kind == b.scalar_kind ? Kind::None : Kind::Operand;
  if (a.dtype != b.dtype) return Kind::DType;
  if (a.geometry.sizes != b.geometry.sizes) return Kind::Sizes;
  if (a.number != b.number) return Kind::Identity;
  return a.geometry.strides == b.geometry.strides ? Kind::None : Kind::Strides;
}

// The first difference between the operands of two equal ops.
bool compare_roles(const char* role, const std::vector<RecordedOperand>& olds,
                   const std::vector<RecordedOperand>& news, Divergence& to) {
  for (size_t i = 0; i < std::min(olds.size(), news.size()); ++i) {
    to.kind = compare_operands(olds[i], news[i]);
    if (to.kind == Kind::None) continue;
    to.what = join_text({role, " ", static_cast<int>(i)});
    const bool strides = to.kind == Kind::Strides;
    to.before =
        strides ? join_text({"strides ", to_string(olds[i].geometry.strides)}) : describe_operand(olds[i]);
    to.now = strides ? to_string(news[i].geometry.strides) : describe_operand(news[i]);
    return true;
  }
  return false;
}

// Two nodes that follow the same prefix.
Divergence compare(const PathNode& before, const PathNode& now) {
  Divergence result;
  result.op_index = now.depth - 1;
  result.op = now.op.op;
  const auto differs = [&](Kind kind, std::string what, std::string old_value, std::string new_value) {
    result.kind = kind;
    result.what = std::move(what);
    result.before = std::move(old_value);
    result.now = std::move(new_value);
    return result;
  };
  if (before.op.op != now.op.op)
    return differs(Kind::Op, "op", std::string(name(before.op.op)), std::string(name(now.op.op)));
  for (int i = 0; i < std::min(before.op.attrs.count, now.op.attrs.count); ++i)
    if (before.op.attrs[i] != now.op.attrs[i])
      return differs(Kind::Attribute, join_text({"attribute ", i}), std::to_string(before.op.attrs[i]),
                     std::to_string(now.op.attrs[i]));
  if (before.op.attrs.count != now.op.attrs.count)
    return differs(Kind::Attribute, "attributes", std::to_string(before.op.attrs.count),
                   std::to_string(now.op.attrs.count));
  if (before.op.inputs.size() != now.op.inputs.size())
    return differs(Kind::Operand, "inputs", std::to_string(before.op.inputs.size()),
                   std::to_string(now.op.inputs.size()));
  if (compare_roles("input", before.op.inputs, now.op.inputs, result) ||
      compare_roles("output", before.op.outputs, now.op.outputs, result))
    return result;
  const auto origin = [](const RecordedStorage& storage) {
    return std::string(storage.external ? "from outside" : "made by the op");
  };
  for (size_t i = 0; i < std::min(before.new_storages.size(), now.new_storages.size()); ++i) {
    if (before.new_storages[i].external != now.new_storages[i].external)
      return differs(Kind::Identity, "a tensor", origin(before.new_storages[i]), origin(now.new_storages[i]));
    if (before.new_storages[i].bytes != now.new_storages[i].bytes)
      return differs(Kind::StorageBytes, "the bytes of a storage",
                     std::to_string(before.new_storages[i].bytes), std::to_string(now.new_storages[i].bytes));
  }
  return differs(Kind::Threads, "threads", std::to_string(before.key[0]), std::to_string(now.key[0]));
}

// Where two streams part.
struct Fork {
  int shared = 0;                    // ops
  const PathNode* before = nullptr;  // the first nodes that differ; null where a stream has ended
  const PathNode* now = nullptr;
  bool same_op = false;
};

Fork find_fork(const PathNode* before, const PathNode* now) {
  Fork fork;
  const auto step = [](const PathNode*& at, const PathNode*& first) {
    first = at;
    at = at->parent;
  };
  while (before->depth > now->depth) step(before, fork.before);
  while (now->depth > before->depth) step(now, fork.now);
  while (before != now) {
    step(before, fork.before);
    step(now, fork.now);
  }
  fork.shared = now->depth;
  fork.same_op = fork.before && fork.now && fork.before->op.op == fork.now->op.op;
  return fork;
}

bool begin_alike(const PathEnd& a, const PathEnd& b) {
  if (!a.after || !b.after) return a.after == b.after;
  return a.after->reason == b.after->reason && a.after->where.line == b.after->where.line &&
         std::string_view(a.after->where.file) == b.after->where.file;
}

}  // namespace

std::string Divergence::text() const {
  switch (kind) {
    case Kind::None:
      return "";
    case Kind::Op:
      return join_text({"op ", op_index, ": op ", before, " before, ", now, " now"});
    case Kind::Ended:
      return join_text({"ended after op ", op_index, ", where an earlier path went on"});
    case Kind::WentOn:
      return join_text({"went on with op ", op_index, " (", name(op), "), where an earlier path ended"});
    default:
      return join_text({"op ", op_index, ": ", name(op), ", ", what, ": ", before, " before, ", now, " now"});
  }
}

Divergence find_divergence(const PathEnd& now, const std::deque<std::unique_ptr<PathEnd>>& older) {
  constexpr size_t kCompared = 256;
  Fork best;
  int from = 0;
  for (size_t i = 0; i < std::min(kCompared, older.size()); ++i) {
    if (!begin_alike(*older[i], now)) continue;
    const Fork fork = find_fork(older[i]->node, now.node);
    const bool closer =
        fork.shared != best.shared ? fork.shared > best.shared : fork.same_op && !best.same_op;
    if (from && !closer) continue;
    best = fork;
    from = static_cast<int>(i) + 1;
  }
  if (!from) return {};
  Divergence result;
  if (best.before && best.now) {
    result = compare(*best.before, *best.now);
  } else {
    const auto text_of = [](const PathNode* at) { return std::string(at ? name(at->op.op) : "the end"); };
    const PathNode& at = best.now ? *best.now : *now.node;
    result.kind = best.now ? Kind::WentOn : Kind::Ended;
    result.op_index = at.depth - 1;
    result.op = at.op.op;
    result.what = "end";
    result.before = text_of(best.before);
    result.now = text_of(best.now);
  }
  result.from = from;
  return result;
}

std::string_view remedy(Kind kind) {
  switch (kind) {
    case Kind::None:
      return "";
    case Kind::Op:
    case Kind::Ended:
    case Kind::WentOn:
      return "each way through branches and each trip count is a path: choose between values with where(), "
             "or move what changes at every call out of the function";
    case Kind::Attribute:
      return "axes, kernel sizes and the like are part of a path: keep them to a few values";
    case Kind::Operand:
      return "a number in the place of a tensor, or of another kind, is a path of its own, and so is each "
             "trip count of a loop, which backward repeats: pass one kind, keep to a few trip counts";
    case Kind::DType:
      return "convert inputs to one dtype before the call";
    case Kind::Sizes:
    case Kind::StorageBytes:
      return "each shape is a path: pad to a few sizes, and drop or pad a last partial batch";
    case Kind::Strides:
      return "call contiguous() on inputs that arrive in different layouts";
    case Kind::Identity:
      return "the tensors used are the same ones, or not, in another pattern from call to call: pass "
             "distinct "
             "ones, in the same places";
    case Kind::Threads:
      break;
  }
  return "set the number of threads once";
}

}  // namespace etch
