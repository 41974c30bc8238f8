// Fusion group -> loop nest and arguments.
//
// What can be one kernel. Dimensions of size 1 never matter; S is the full space, A the reduced axes.
// - Pointwise: every output has the sizes S; operands broadcast to S; strides are free.
// - Rows and Columns (kind by reduction_order()): every reduction reduces an operand of sizes S over the same
//   A in the same memory order. Other nodes are at full level (sizes S) or at row level (S without A, kept or
//   squeezed). In Rows full-level nodes may use what reductions gave; the row is then passed over again. In
//   Columns they may not.
// - An operand that reads a buffer written before it in the group must address the same element as the write
//   at every index, or provably none of the written ones. A window that is read before the group writes its
//   buffer must be disjoint from the written one or have the same geometry; where only the run-time offsets
//   may differ the pair goes into same_address.
// - Integer floor_divide and remainder by a tensor need a check of the data first, so they stay outside.
// A reduction whose axes all have size 1 is a pointwise combination with the identity (the order of
// tracer/reduction.h gives that value too).
#include <algorithm>

#include "codegen/lowering.h"
#include "tracer/attrs.h"

namespace etch::codegen {
namespace {

bool is_reduction(const Node& node) { return info(node.op).kind == OpKind::Reduction; }

/// Axes of size other than 1 that the node reduces.
uint64_t reduced_axes(const Node& node) {
  const Dims& sizes = node.inputs[0].geometry.sizes;
  uint64_t axes = 0;
  for (int i = 0; i < sizes.size(); ++i)
    if (sizes[i] != 1) axes |= ReductionAttrs(node.attrs).axes & (uint64_t{1} << i);
  return axes;
}

/// Whether sum(delta * stride) == distance for some |delta[i]| < size[i], for dims sorted by falling stride.
/// Gives up with true.
bool can_meet(const std::vector<std::pair<int64_t, int64_t>>& dims, size_t from, int64_t distance,
              int& budget) {
  if (distance == 0) return true;
  if (from == dims.size()) return false;
  const auto [stride, size] = dims[from];
  int64_t rest = 0;
  for (size_t i = from + 1; i < dims.size(); ++i) rest += dims[i].first * (dims[i].second - 1);
  if (stride == 0) return can_meet(dims, from + 1, distance, budget);
  for (int64_t delta = std::max(-(size - 1), (distance - rest) / stride - 1);
       delta <= std::min(size - 1, (distance + rest) / stride + 1); ++delta) {
    if (--budget < 0) return true;
    const int64_t left = distance - delta * stride;
    if (std::abs(left) <= rest && can_meet(dims, from + 1, left, budget)) return true;
  }
  return false;
}

/// The type T in which the op's expression is computed.
DType expression_dtype(const Node& node) {
  const DTypeRule rule = info(node.op).rule;
  const DType out = node.outputs[0].dtype;
  if (is_reduction(node)) {
    if (rule == DTypeRule::Bool) return DType::Bool;
    const DType in = node.inputs[0].dtype;
    return rule == DTypeRule::Sum && is_integral(in) ? DType::I64 : compute_dtype(in);
  }
  if (rule != DTypeRule::Bool) return compute_dtype(out);
  bool found = false;
  DType dtype = DType::Bool;
  for (bool scalars : {false, true}) {
    for (const GraphOperand& input : node.inputs) {
      if (input.kind == GraphOperand::Kind::Absent || input.is_scalar() != scalars) continue;
      dtype = found ? promote(dtype, input.dtype) : input.dtype;
      found = true;
    }
    if (found) break;
  }
  return compute_dtype(dtype);
}

}  // namespace

bool Lowering::check_node(const Node& node) {
  const OpInfo& row = info(node.op);
  const bool kind = row.kind == OpKind::Pointwise || row.kind == OpKind::Generator || is_reduction(node);
  if (!kind) return refuse(row.name, " is no pointwise, generator or reduction op");
  if (node.outputs.size() != 1 || !node.outputs[0].is_tensor())
    return refuse(row.name, " has no single output");
  if (may_self_overlap(node.outputs[0].geometry) && node.outputs[0].geometry.numel() > 1)
    return refuse(row.name, " writes an element more than once");
  if (row.kind == OpKind::Reduction && !node.inputs[0].is_tensor())
    return refuse(row.name, " reduces a scalar");
  if ((row.flags & kChecksZeroDivisor) && !is_floating(node.outputs[0].dtype) && node.inputs[1].is_tensor())
    return refuse(row.name, " of integers needs its divisors checked");
  return true;
}

/// S, A and the memory order.
bool Lowering::find_space(const std::vector<Node>& body) {
  const auto set_sizes = [this](const Dims& sizes, uint64_t mask) {
    nd_ = 0;
    for (int i = 0; i < sizes.size(); ++i) {
      if (sizes[i] == 1) continue;
      reduced_[nd_] = mask >> i & 1;
      size_[nd_++] = sizes[i];
    }
  };
  for (const Node& node : body) {
    if (!check_node(node)) return false;
    if (!is_reduction(node) || !reduced_axes(node)) continue;
    const Geometry& operand = node.inputs[0].geometry;
    const uint64_t mask = reduced_axes(node);
    if (!has_reductions_) set_sizes(operand.sizes, mask);
    int count = 0;
    int position[kMaxDims];
    for (int i = 0; i < operand.sizes.size(); ++i) {
      if (operand.sizes[i] == 1) continue;
      if (count == nd_ || size_[count] != operand.sizes[i] || reduced_[count] != bool(mask >> i & 1))
        return refuse("reductions of different sizes or axes");
      position[i] = count++;
    }
    if (count != nd_) return refuse("reductions of different sizes");
    const ReductionOrder order = reduction_order(operand, mask);
    ETCH_INVARIANT(order.ndim == nd_);
    for (int i = 0; i < nd_; ++i) {
      if (has_reductions_ && order_[i] != position[order.axis[i]])
        return refuse("reductions of operands in different memory orders");
      order_[i] = position[order.axis[i]];
    }
    kind_ = order.kind;
    has_reductions_ = true;
  }
  if (!has_reductions_) {
    set_sizes(body.front().outputs[0].geometry.sizes, 0);
    for (int i = 0; i < nd_; ++i) order_[i] = i;
  }
  nest_.kind = !has_reductions_                         ? LoopNest::Kind::Pointwise
               : kind_ == ReductionOrder::Kind::Columns ? LoopNest::Kind::Columns
                                                        : LoopNest::Kind::Rows;
  return true;
}

bool Lowering::find_level(const Node& node, Level* level) {
  const Dims& sizes = is_reduction(node) && reduced_axes(node) ? node.inputs[0].geometry.sizes
                                                               : node.outputs[0].geometry.sizes;
  int full = 0, row = 0;
  bool is_full = true, is_row = has_reductions_;
  const auto skip = [this](int i) {
    while (i < nd_ && reduced_[i]) ++i;
    return i;
  };
  row = skip(0);
  for (int64_t size : sizes) {
    if (size == 1) continue;
    is_full &= full < nd_ && size_[full] == size;
    ++full;
    is_row &= row < nd_ && size_[row] == size;
    row = skip(row + 1);
  }
  is_full &= full == nd_;
  is_row &= row >= nd_;
  if (!is_full && !is_row) return refuse(name(node.op), " has sizes of its own");
  *level = is_full ? Level::Full : Level::Row;
  return true;
}

/// Strides over S of an operand of a node with output sizes `sizes`.
bool Lowering::map(const Geometry& geometry, const Dims& sizes, Level level, Strides* strides) {
  if (!can_broadcast_to(geometry.sizes, sizes)) return refuse("an operand does not broadcast to the output");
  const Geometry wide = broadcast_to(geometry, sizes);
  int at = 0;
  for (int i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == 1) continue;
    while (level == Level::Row && reduced_[at]) ++at;
    (*strides)[at++] = wide.strides[i];
  }
  return true;
}

bool Lowering::same_elements(const Access& a, const Access& b) const {
  if (a.dtype != b.dtype) return false;
  for (int i = 0; i < nd_; ++i)
    if (a.strides[i] != b.strides[i]) return false;
  return true;
}

bool Lowering::disjoint(const Access& a, const Access& b) const {
  if (a.slot != b.slot || a.dtype != b.dtype) return false;
  int64_t extent_a = 1, extent_b = 1;
  std::vector<std::pair<int64_t, int64_t>> dims;
  for (int i = 0; i < nd_; ++i) {
    const int64_t size = std::max<int64_t>(size_[i], 1);
    extent_a += a.strides[i] * (size - 1);
    extent_b += b.strides[i] * (size - 1);
    dims.emplace_back(a.strides[i], size);
  }
  if (a.offset + extent_a <= b.offset || b.offset + extent_b <= a.offset) return true;
  if (!same_elements(a, b)) return false;
  std::sort(dims.rbegin(), dims.rend());
  int budget = 1000;
  return !can_meet(dims, 0, b.offset - a.offset, budget);
}

int Lowering::add_value(LoopValue value) {
  for (int arg : value.args) value.stage = std::max(value.stage, nest_.values[arg].stage);
  if (value.kind == LoopValue::Kind::Reduction) ++value.stage;
  nest_.values.push_back(std::move(value));
  return static_cast<int>(nest_.values.size()) - 1;
}

int Lowering::add_window(const GraphOperand& operand, const Strides& strides, DType dtype, bool written) {
  for (size_t i = 0; i < windows_.size(); ++i) {
    const Window& window = windows_[i];
    if (window.pointer < 0 || window.dtype != dtype) continue;
    const GraphOperand& other = kernel_.pointers[window.pointer];
    if (other.buffer != operand.buffer || other.offset != operand.offset || other.slot != operand.slot ||
        !std::equal(strides.values, strides.values + nd_, window.strides.values))
      continue;
    if (written) kernel_.written[window.pointer] = true;
    return static_cast<int>(i);
  }
  windows_.push_back({static_cast<int>(kernel_.pointers.size()), dtype, strides});
  kernel_.pointers.push_back(operand);
  kernel_.written.push_back(written);
  return static_cast<int>(windows_.size()) - 1;
}

int Lowering::add_index(const Dims& sizes, Level level) {
  Strides strides;
  map(contiguous(sizes), sizes, level, &strides);
  windows_.push_back({-1, DType::I64, strides});
  LoopValue value{.kind = LoopValue::Kind::Index, .dtype = DType::I64, .compute = DType::I64, .level = level};
  value.window = static_cast<int>(windows_.size()) - 1;
  return add_value(std::move(value));
}

bool Lowering::read(const GraphOperand& operand, const Dims& sizes, Level level, int* value) {
  if (operand.is_scalar()) {
    LoopValue scalar{
        .kind = LoopValue::Kind::Scalar, .dtype = compute_dtype(operand.dtype), .level = Level::Row};
    scalar.compute = scalar.dtype;
    scalar.window = static_cast<int>(kernel_.scalars.size());
    kernel_.scalars.push_back(operand);
    *value = add_value(std::move(scalar));
    return true;
  }
  if (!operand.is_tensor()) return refuse("an operand is absent");
  Access access{operand.buffer, operand.offset, operand.slot, operand.dtype, {}};
  if (!map(operand.geometry, sizes, level, &access.strides)) return false;
  Buffer& buffer = buffers_[operand.buffer];
  for (auto written = buffer.written.rbegin(); written != buffer.written.rend(); ++written) {
    if (disjoint(access, written->access)) continue;
    if (!same_elements(access, written->access) || access.slot != written->access.slot ||
        access.offset != written->access.offset)
      return refuse("a read of other elements than the ones the group wrote");
    *value = written->value;
    return true;
  }
  for (const Read& earlier : buffer.reads) {
    if (same_elements(earlier.access, access) && earlier.access.slot == access.slot &&
        earlier.access.offset == access.offset && nest_.values[earlier.value].kind == LoopValue::Kind::Load) {
      *value = earlier.value;
      return true;
    }
  }
  LoopValue load{
      .kind = LoopValue::Kind::Load, .dtype = operand.dtype, .compute = compute_dtype(operand.dtype)};
  load.level = has_reductions_ ? Level::Row : Level::Full;
  for (int i = 0; i < nd_; ++i)
    if (reduced_[i] && access.strides[i] != 0) load.level = Level::Full;
  load.window = add_window(operand, access.strides, operand.dtype, false);
  *value = add_value(std::move(load));
  buffer.reads.push_back({access, operand, *value});
  return true;
}

bool Lowering::write(const GraphOperand& operand, Level level, int value) {
  Access access{operand.buffer, operand.offset, operand.slot, operand.dtype, {}};
  if (!map(operand.geometry, operand.geometry.sizes, level, &access.strides)) return false;
  Buffer& buffer = buffers_[operand.buffer];
  for (const Read& earlier : buffer.reads)
    if (!disjoint(earlier.access, access) &&
        (!same_elements(earlier.access, access) ||
         (earlier.access.slot == access.slot && earlier.access.offset != access.offset)))
      return refuse("a write over elements that the group reads at other indices");
  for (Written& earlier : buffer.written) {
    if (disjoint(earlier.access, access)) continue;
    if (!same_elements(earlier.access, access) || earlier.access.slot != access.slot ||
        earlier.access.offset != access.offset || earlier.level != level)
      return refuse("two writes that overlap in part");
    earlier.value = value;
    return true;
  }
  buffer.written.push_back({access, value, operand, level});
  return true;
}

bool Lowering::add_node(const Node& node) {
  Level level;
  if (!find_level(node, &level)) return false;
  const bool reduces = is_reduction(node) && reduced_axes(node) != 0;
  const Dims& out_sizes = node.outputs[0].geometry.sizes;
  LoopValue value{.kind = LoopValue::Kind::Op, .op = node.op, .dtype = node.outputs[0].dtype};
  value.compute = expression_dtype(node);
  value.level = level;
  for (const GraphOperand& input : node.inputs) {
    int argument;
    // A reduction's operand has the sizes of its own full space.
    if (!read(input, is_reduction(node) ? node.inputs[0].geometry.sizes : out_sizes, level, &argument))
      return false;
    value.args.push_back(argument);
  }
  if (info(node.op).kind == OpKind::Generator) value.args.push_back(add_index(out_sizes, level));
  if (is_reduction(node)) value.kind = reduces ? LoopValue::Kind::Reduction : LoopValue::Kind::Single;
  if (reduces) {
    if (level != Level::Full) return refuse(name(node.op), " reduces a row-level value");
    value.level = level = Level::Row;
    Level kept;
    Node probe;
    probe.op = Op::copy;
    probe.outputs = node.outputs;
    if (!find_level(probe, &kept) || kept != Level::Row)
      return refuse(name(node.op), " gives sizes of its own");
  }
  return write(node.outputs[0], level, add_value(std::move(value)));
}

bool Lowering::check_stages() {
  int reductions = 0, full = 0, stores = 0;
  for (const LoopValue& value : nest_.values) {
    if (value.kind == LoopValue::Kind::Reduction) reductions = std::max(reductions, value.stage);
    if (value.level == Level::Full) full = std::max(full, value.stage);
  }
  for (const LoopStore& store : nest_.stores)
    if (nest_.values[store.value].level == Level::Full)
      stores = std::max(stores, nest_.values[store.value].stage + 1);
  if (nest_.kind == LoopNest::Kind::Columns && full > 0)
    return refuse("full-level nodes use a column reduction");
  nest_.passes = std::max(reductions, stores);
  return true;
}

bool Lowering::analyse(const std::vector<Node>& body, const std::vector<GraphOperand>* outputs) {
  if (body.empty()) return refuse("an empty group");
  if (!find_space(body)) return false;
  for (const Node& node : body)
    if (!add_node(node)) return false;
  const auto stored = [outputs](int buffer) {
    return !outputs || std::any_of(outputs->begin(), outputs->end(),
                                   [buffer](const GraphOperand& o) { return o.buffer == buffer; });
  };
  // In body order, so that the source does not depend on buffer numbers.
  std::vector<const Written*> writes;
  for (const Node& node : body) {
    if (!stored(node.outputs[0].buffer)) continue;
    for (const Written& written : buffers_[node.outputs[0].buffer].written)
      if (std::find(writes.begin(), writes.end(), &written) == writes.end()) writes.push_back(&written);
  }
  for (const Written* written : writes) {
    const int window = add_window(written->operand, written->access.strides, written->operand.dtype, true);
    nest_.stores.push_back({written->value, window});
    for (const Read& read : buffers_[written->operand.buffer].reads) {
      if (disjoint(read.access, written->access) || read.access.slot == written->access.slot) continue;
      kernel_.same_address.emplace_back(windows_[nest_.values[read.value].window].pointer,
                                        windows_[window].pointer);
    }
  }
  if (!has_reductions_) order_pointwise();
  return check_stages();
}

/// Memory order of the first stored window.
void Lowering::order_pointwise() {
  if (nest_.stores.empty()) return;
  const Strides& strides = windows_[nest_.stores[0].window].strides;
  std::stable_sort(order_, order_ + nd_, [&](int a, int b) { return strides[a] > strides[b]; });
}

bool can_lower(const std::vector<Node>& body, std::string* why) {
  Lowering lowering;
  if (lowering.analyse(body, nullptr)) return true;
  if (why) *why = lowering.why();
  return false;
}

LoweredKernel lower(const Node& fused) {
  ETCH_INVARIANT(fused.op == Op::fused && fused.group);
  Lowering lowering;
  ETCH_CHECK(lowering.analyse(fused.group->body, &fused.outputs), InternalError,
             "lower: expected a group that can_lower(), got ", lowering.why());
  return lowering.finish();
}

}  // namespace etch::codegen
