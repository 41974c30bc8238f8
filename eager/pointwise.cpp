// The pointwise functions, one a row of tracer/ops.def, with promotion and tape; in-place forms.
#include "eager/apply.h"
#include "eager/gradients.h"
#include "eager/tape.h"
#include "tracer/promotion.h"

namespace etch {

namespace {

bool wants_tape(std::span<const Arg> operands) {
  if (!grad_enabled()) return false;
  bool wanted = false;
  for (const Arg& operand : operands) wanted |= operand.is_tensor() && is_on_tape(operand.tensor());
  return wanted;
}

// What the row computes in, given the operands' common dtype.
DType compute_in(Op op, DType common) {
  const DTypeRule rule = info(op).rule;
  return rule == DTypeRule::Float && !is_floating(common) ? DType::F32 : common;
}

// Writes casts of the tensor operands that do not have `dtype` yet into `casts`, and refers to them.
void cast_operands(Op op, std::span<Arg> operands, DType dtype, Tensor* casts) {
  const size_t first = info(op).rule == DTypeRule::Where ? 1 : 0;
  for (size_t i = first; i < operands.size(); ++i) {
    if (!operands[i].is_tensor() || operands[i].tensor().dtype() == dtype) continue;
    casts[i] = operands[i].tensor().to(dtype);
    operands[i] = Arg(casts[i]);
  }
}

// A copy made of what counts: reading all of a temporary just written would stall.
inline Arg operand(const Arg& arg) { return arg.is_tensor() ? Arg(arg.tensor()) : Arg(arg.scalar()); }

Tensor pointwise(Op op, std::span<Arg> operands) {
  for (const Arg& operand : operands)
    ETCH_CHECK(!operand.is_tensor() || operand.tensor().defined(), ValueError, name(op),
               ": expected defined tensors, got an undefined one");
  Tensor casts[4];
  const bool where_rule = info(op).rule == DTypeRule::Where;
  const DType common = result_type(where_rule ? operands.subspan(1) : operands);
  cast_operands(op, operands, compute_in(op, common), casts);
  bool any_tensor = false;
  for (const Arg& operand : operands) any_tensor |= operand.is_tensor();
  Tensor zero_d;
  if (!any_tensor) {
    zero_d = scalar_tensor(operands[0].scalar());
    operands[0] = Arg(zero_d);
  }
  Tensor output;
  apply(op, operands, {}, compute_in(op, common), {&output, 1});
  if (wants_tape(operands)) attach_pointwise_node(make_pointwise_node(op, operands, output), output);
  return output;
}

// x^2 is a product: exact, fast, and a different op in the stream.
bool is_square(Op op, std::span<const Arg> operands) {
  if (op != Op::pow || !operands[0].is_tensor() || operands[1].is_tensor()) return false;
  const Scalar exponent = operands[1].scalar();
  const DType dtype = operands[0].tensor().dtype();
  return exponent.to_double() == 2.0 && dtype != DType::Bool &&
         (exponent.kind() == Scalar::Kind::Int || is_floating(dtype));
}

Tensor& pointwise_in_place(Op op, Tensor& self, std::span<Arg> operands) {
  const auto function = [op] { return std::string(name(op)) + "_"; };
  for (const Arg& operand : operands) {
    if (!operand.is_tensor()) continue;
    ETCH_CHECK(can_broadcast_to(operand.tensor().sizes(), self.sizes()), ShapeError, function(),
               ": expected an operand that broadcasts to ", to_string(self.sizes()), ", got ",
               to_string(operand.tensor().sizes()));
  }
  ETCH_CHECK(!may_self_overlap(self.impl().geometry), ShapeError, function(),
             ": expected distinct elements, got a broadcast tensor of strides ", to_string(self.strides()),
             "; clone() it first");
  const bool tape = wants_tape(operands);
  if (tape) check_in_place(function(), self, tape);
  const DType dtype = compute_in(op, result_type(operands));
  ETCH_CHECK(info(op).rule != DTypeRule::Numeric || dtype != DType::Bool, DTypeError, function(),
             ": expected a numeric dtype, got bool");
  ETCH_CHECK(kind_of(dtype) <= kind_of(self.dtype()), DTypeError, function(),
             ": expected a result that fits ", name(self.dtype()), ", got ", name(dtype));
  if (dtype != self.dtype() || info(op).rule == DTypeRule::Bool) return self.copy_(pointwise(op, operands));
  Tensor casts[4];
  cast_operands(op, operands, dtype, casts);
  // Made before the write: it saves versions from before, and edges to what this tensor was.
  const Ref<TapeNode> node = tape ? make_pointwise_node(op, operands, self) : Ref<TapeNode>();
  // A result that backward needs is kept apart, or the next write would lose it: through a view that may be
  // one to any other part of the base. Only relu_ on a tensor of its own is worth the memory.
  if (node && saves_output(*node) && (op != Op::relu || self.impl().base))
    return self.copy_(pointwise(op, operands));
  apply(op, operands, {}, dtype, {&self, 1});
  if (tape) replace_pointwise_node(node, self, /*reads_written=*/true);
  return self;
}

}  // namespace

#define ETCH_ARRAY_1 operand(a)
#define ETCH_ARRAY_2 operand(a), operand(b)
#define ETCH_ARRAY_3 operand(a), operand(b), operand(c)
#define ETCH_ARRAY_4 operand(a), operand(b), operand(c), operand(d)
#define ETCH_POINTWISE(name, arity, ...)                                            \
  Tensor name(ETCH_ARGS_##arity) {                                                  \
    Arg operands[] = {ETCH_ARRAY_##arity};                                          \
    if (is_square(Op::name, operands)) return pointwise(Op::square, {operands, 1}); \
    return pointwise(Op::name, operands);                                           \
  }
#define ETCH_GENERATOR(...)
#define ETCH_REDUCTION(...)
#define ETCH_OP(...)
#define ETCH_COMPOSITE(...)
#include "tracer/ops.def"

#undef ETCH_METHOD_1
#undef ETCH_METHOD_2
#define ETCH_METHOD_1(name) \
  Tensor Tensor::name() const { return etch::name(*this); }
#define ETCH_METHOD_2(name) \
  Tensor Tensor::name(const Arg& other) const { return etch::name(*this, other); }
#define ETCH_POINTWISE(name, arity, ...) ETCH_METHOD_##arity(name)
#include "tracer/ops.def"

Tensor Tensor::clamp(Scalar low, Scalar high) const { return etch::clamp(*this, low, high); }
Tensor Tensor::masked_fill(const Tensor& mask, Scalar value) const { return where(mask, value, *this); }

#define ETCH_DEFINE_IN_PLACE(name)                        \
  Tensor& Tensor::name##_(const Arg& other) {             \
    Arg operands[] = {*this, other};                      \
    return pointwise_in_place(Op::name, *this, operands); \
  }
ETCH_DEFINE_IN_PLACE(add)
ETCH_DEFINE_IN_PLACE(sub)
ETCH_DEFINE_IN_PLACE(mul)
ETCH_DEFINE_IN_PLACE(div)
#undef ETCH_DEFINE_IN_PLACE

Tensor& Tensor::clamp_(Scalar low, Scalar high) {
  Arg operands[] = {*this, low, high};
  return pointwise_in_place(Op::clamp, *this, operands);
}
Tensor& Tensor::relu_() {
  Arg operands[] = {*this};
  return pointwise_in_place(Op::relu, *this, operands);
}

Tensor& Tensor::fill_(Scalar value) {
  ETCH_CHECK(!may_self_overlap(impl().geometry), ShapeError,
             "fill_: expected distinct elements, got a broadcast tensor; clone() it first");
  check_in_place("fill_", *this, false);
  const Arg operand(value);
  apply(Op::copy, {&operand, 1}, pack_sizes(sizes()), dtype(), {this, 1});
  if (grad_enabled() && !is_leaf()) rewrite_history(*this, {}, false);  // the old value no longer matters
  return *this;
}

Tensor& Tensor::copy_(const Tensor& source) {
  ETCH_CHECK(can_broadcast_to(source.sizes(), sizes()), ShapeError,
             "copy_: expected a source that broadcasts to ", etch::to_string(sizes()), ", got ",
             etch::to_string(source.sizes()));
  ETCH_CHECK(!may_self_overlap(impl().geometry), ShapeError,
             "copy_: expected distinct elements, got a broadcast tensor; clone() it first");
  const Arg operand(source);
  const bool tape = wants_tape({&operand, 1});
  check_in_place("copy_", *this, tape);
  const Ref<TapeNode> node = tape ? make_pointwise_node(Op::copy, {&operand, 1}, *this) : Ref<TapeNode>();
  apply(Op::copy, {&operand, 1}, {}, dtype(), {this, 1});
  if (tape || (grad_enabled() && !is_leaf())) replace_pointwise_node(node, *this, /*reads_written=*/false);
  return *this;
}

Tensor Tensor::to(DType dtype) const {
  if (dtype == impl().dtype) return *this;
  Tensor output;
  const Arg operand(*this);
  apply(Op::copy, {&operand, 1}, {}, dtype, {&output, 1});
  if (wants_tape({&operand, 1}))
    attach_pointwise_node(make_pointwise_node(Op::copy, {&operand, 1}, output), output);
  return output;
}

}  // namespace etch
