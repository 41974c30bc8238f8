// infer() and operand_dtype(): dispatch, and the rules of pointwise rows, generators and reductions.
#include "tracer/shape_rules.h"

#include <algorithm>

#include "tracer/promotion.h"

namespace etch {
namespace shape_rules {

namespace {

bool is_broadcast(const Geometry& geometry) {
  for (int i = 0; i < geometry.ndim(); ++i)
    if (geometry.strides[i] == 0 && geometry.sizes[i] != 1) return true;
  return false;
}

/// Exactly channels_last_strides(), in dimensions of size 1 too.
bool is_packed_channels_last(const Geometry& geometry) {
  const Dims &sizes = geometry.sizes, &strides = geometry.strides;
  return strides[1] == 1 && strides[3] == sizes[1] && strides[2] == strides[3] * sizes[3] &&
         strides[0] == strides[2] * sizes[2];
}

}  // namespace

void Inference::need_tensor(int i, std::string_view what) const {
  ETCH_CHECK(inputs[i].is_tensor(), ValueError, name(), ": expected a tensor as ", what, ", got ",
             inputs[i].present ? "a scalar" : "nothing");
}

void Inference::need_scalar(int i, std::string_view what) const {
  ETCH_CHECK(inputs[i].is_scalar(), ValueError, name(), ": expected a scalar as ", what, ", got ",
             inputs[i].present ? "a tensor" : "nothing");
}

void Inference::need_ndim(int i, int ndim, std::string_view what) const {
  need_tensor(i, what);
  ETCH_CHECK(geometry(i).ndim() == ndim, ShapeError, name(), ": expected ", what, " of ", ndim,
             " dimensions, got ", to_string(sizes(i)));
}

void Inference::need_sizes(int i, const Dims& expected, std::string_view what) const {
  need_tensor(i, what);
  ETCH_CHECK(sizes(i) == expected, ShapeError, name(), ": expected ", what, " of sizes ", to_string(expected),
             ", got ", to_string(sizes(i)));
}

void Inference::need_dtype(int i, DType expected, std::string_view what) const {
  need_tensor(i, what);
  ETCH_CHECK(dtype(i) == expected, DTypeError, name(), ": expected ", what, " of dtype ",
             etch::name(expected), ", got ", etch::name(dtype(i)));
}

void Inference::need_floating(int i, std::string_view what) const {
  need_tensor(i, what);
  ETCH_CHECK(is_floating(dtype(i)), DTypeError, name(), ": expected ", what, " of a floating dtype, got ",
             etch::name(dtype(i)));
}

void Inference::give_like(int i, int operand, DType dtype) const {
  give(i, sizes(operand), strides_like(geometry(operand)), dtype);
}

void Inference::give_operand(int i) const {
  const int operand = written_operand(op, i);
  outputs[i] = {geometry(operand), dtype(operand)};
}

// On the path of every eager op: the common layouts are recognised in one pass each.
Dims strides_like(const Geometry& like) {
  const int ndim = like.ndim();
  Dims strides = like.sizes;
  bool same = true;
  for (int64_t i = ndim - 1, expected = 1; i >= 0; --i) {
    const int64_t size = like.sizes[i];
    same &= size == 1 || like.strides[i] == expected;
    strides[i] = expected;
    expected *= size == 0 ? 1 : size;
  }
  if (same || is_broadcast(like) || like.numel() == 0) return strides;
  if (ndim == 4 && is_packed_channels_last(like)) return like.strides;
  return packed_strides_like(like.sizes, like.strides);
}

namespace {

/// Broadcast sizes of the tensor operands, in the memory order of the first full-size one.
void infer_pointwise_geometry(const Inference& call, Geometry& output) {
  const Geometry* first = nullptr;
  bool broadcast = false;
  for (const Operand& operand : call.inputs) {
    if (!operand.is_tensor()) continue;
    if (!first)
      first = operand.geometry;
    else
      broadcast |= operand.geometry != first && !(operand.geometry->sizes == first->sizes);
  }
  if (!first) {
    output = {};
    return;
  }
  output.sizes = first->sizes;
  if (broadcast)
    for (const Operand& operand : call.inputs)
      if (operand.is_tensor())
        output.sizes = broadcast_sizes(call.name(), output.sizes, operand.geometry->sizes);
  for (const Operand& operand : call.inputs)
    if (operand.is_tensor() && (!broadcast || operand.geometry->sizes == output.sizes) &&
        !is_broadcast(*operand.geometry)) {
      output.strides = strides_like(*operand.geometry);
      return;
    }
  output.strides = contiguous_strides(output.sizes);
}

void infer_pointwise(const Inference& call) {
  const DType expected = operand_dtype(call.op, call.inputs);
  const DTypeRule rule = info(call.op).rule;
  if (rule == DTypeRule::Where && call.inputs[0].is_tensor()) call.need_dtype(0, DType::Bool, "condition");
  for (size_t i = rule == DTypeRule::Where; i < call.inputs.size(); ++i)
    if (call.inputs[i].is_tensor() && call.inputs[i].dtype != expected)
      call.need_dtype(static_cast<int>(i), expected, "operands");
  const bool fill = rule == DTypeRule::Cast && call.inputs[0].is_scalar();
  if (fill)
    call.outputs[0].geometry = contiguous(unpack_sizes(call.attrs));
  else
    infer_pointwise_geometry(call, call.outputs[0].geometry);
  call.outputs[0].dtype = rule == DTypeRule::Cast   ? call.given
                          : rule == DTypeRule::Bool ? DType::Bool
                                                    : expected;
}

void infer_generator(const Inference& call) {
  const OpInfo& row = info(call.op);
  if (row.rule == DTypeRule::Given) {
    for (int i = 0; i < row.arity; ++i) call.need_scalar(i, "operand");
    ETCH_CHECK(call.given != DType::Bool && (!(row.flags & kRandom) || is_floating(call.given)), DTypeError,
               call.name(), ": expected a ", row.flags & kRandom ? "floating" : "numeric", " dtype, got ",
               name(call.given));
    return call.give_contiguous(0, unpack_sizes(call.attrs), call.given);
  }
  call.need_floating(0, "the operand");
  for (int i = 1; i < row.arity; ++i) call.need_scalar(i, "seed, offset and probability");
  call.give_like(0, 0, call.dtype(0));
}

DType reduced_dtype(const Inference& call) {
  switch (info(call.op).rule) {
    case DTypeRule::Sum:
      return is_floating(call.dtype(0)) ? call.dtype(0) : DType::I64;
    case DTypeRule::Bool:
      return DType::Bool;
    case DTypeRule::Same:
      return call.dtype(0);
    default:
      return DType::I64;
  }
}

void infer_reduction(const Inference& call) {
  call.need_tensor(0, "the operand");
  const Geometry& operand = call.geometry(0);
  const ReductionAttrs attrs(call.attrs);
  const int ndim = operand.ndim();
  ETCH_CHECK(attrs.axes >> std::max(ndim, 1) == 0, ShapeError, call.name(), ": expected axes below ", ndim,
             ", got sizes ", to_string(operand.sizes));
  Dims sizes, strides;
  for (int i = 0; i < ndim; ++i) {
    const bool reduced = attrs.axes >> i & 1;
    ETCH_CHECK(!reduced || operand.sizes[i] > 0 || !(info(call.op).flags & kNeedsElements), ShapeError,
               call.name(), ": expected at least one element along the reduced axes, got ",
               to_string(operand.sizes));
    if (reduced && !attrs.keepdim) continue;
    sizes.push_back(reduced ? 1 : operand.sizes[i]);
    strides.push_back(operand.strides[i]);
  }
  call.give(0, sizes, packed_strides_like(sizes, strides), reduced_dtype(call));
}

/// One axis, or all of them.
void infer_argument(const Inference& call) {
  call.need_tensor(0, "the operand");
  const uint64_t axes = ReductionAttrs(call.attrs).axes;
  const uint64_t all = (uint64_t{1} << call.geometry(0).ndim()) - 1;
  ETCH_CHECK(axes == all || (axes & (axes - 1)) == 0, ShapeError, call.name(),
             ": expected one axis or all of them, got several of ", to_string(call.sizes(0)));
  ETCH_CHECK(call.dtype(0) != DType::Bool, DTypeError, call.name(), ": expected a numeric dtype, got bool");
  infer_reduction(call);
}

}  // namespace

void infer_argmax(const Inference& call) { infer_argument(call); }
void infer_argmin(const Inference& call) { infer_argument(call); }

}  // namespace shape_rules

int infer(Op op, std::span<const Operand> inputs, const Attrs& attrs, DType given, OutputSpec* outputs) {
  using namespace shape_rules;
  const OpInfo& row = info(op);
  ETCH_CHECK(static_cast<int>(inputs.size()) == row.arity, ValueError, row.name, ": expected ",
             static_cast<int>(row.arity), " operands, got ", static_cast<int64_t>(inputs.size()));
  for (int i = 0; i + (row.flags & kOptionalLast ? 1 : 0) < row.arity; ++i)
    ETCH_CHECK(inputs[i].present, ValueError, row.name, ": expected operand ", i, ", got nothing");
  const Inference call{op, inputs, attrs, given, outputs};
  switch (op) {
#define ETCH_POINTWISE(name, ...) \
  case Op::name:                  \
    infer_pointwise(call);        \
    break;
#define ETCH_GENERATOR(name, ...) \
  case Op::name:                  \
    infer_generator(call);        \
    break;
#define ETCH_REDUCTION(name, ...) \
  case Op::name:                  \
    infer_reduction(call);        \
    break;
#define ETCH_OP(name, ...) \
  case Op::name:           \
    infer_##name(call);    \
    break;
#define ETCH_COMPOSITE(name, ...) \
  case Op::name:                  \
    infer_##name(call);           \
    break;
#include "tracer/ops.def"
    case Op::fused:
    case Op::tiled:
      fail<InternalError>("infer: a group has no shape rule");
  }
  return row.outputs;
}

namespace {

DType promoted(std::span<const Operand> inputs) {
  Promotion promotion;
  for (const Operand& operand : inputs) {
    if (operand.is_tensor())
      promotion.add_tensor(operand.dtype, operand.geometry->ndim());
    else if (operand.present)
      promotion.add_scalar(operand.scalar.kind());
  }
  return promotion.result();
}

}  // namespace

DType operand_dtype(Op op, std::span<const Operand> inputs) {
  const OpInfo& row = info(op);
  if (row.kind != OpKind::Pointwise) {
    const DType dtype = inputs[0].is_tensor() ? inputs[0].dtype : inputs[0].scalar.default_dtype();
    return row.rule == DTypeRule::Float && !is_floating(dtype) ? DType::F32 : dtype;
  }
  const DType dtype = promoted(row.rule == DTypeRule::Where ? inputs.subspan(1) : inputs);
  ETCH_CHECK(row.rule != DTypeRule::Numeric || dtype != DType::Bool, DTypeError, row.name,
             ": expected a numeric dtype, got bool");
  return row.rule == DTypeRule::Float && !is_floating(dtype) ? DType::F32 : dtype;
}

}  // namespace etch
