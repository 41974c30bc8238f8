// Gradients of the pointwise rows, expanded from tracer/ops.def.
#include "eager/gradients.h"

#include <cmath>

#include "eager/apply.h"
#include "runtime/object_pool.h"

namespace etch {

namespace {

// An operand inside a gradient expression: a tensor or a number. Numbers among themselves are computed on the
// host.
class Value {
 public:
  Value() = default;
  Value(Tensor tensor) : tensor_(std::move(tensor)) {}
  template <class T>
  requires std::is_arithmetic_v<T> Value(T number) : number_(number) {}
  Value(Scalar number) : number_(number) {}

  bool is_tensor() const { return tensor_.defined(); }
  operator Arg() const { return is_tensor() ? Arg(tensor_) : Arg(number_); }
  const Tensor& tensor() const { return tensor_; }
  double number() const { return number_.to_double(); }

 private:
  Tensor tensor_;
  Scalar number_;
};

#define ETCH_VALUE_OPERATOR(symbol, function)                                         \
  Value operator symbol(const Value& x, const Value& y) {                             \
    if (!x.is_tensor() && !y.is_tensor()) return Value(x.number() symbol y.number()); \
    return function(Arg(x), Arg(y));                                                  \
  }
ETCH_VALUE_OPERATOR(+, add)
ETCH_VALUE_OPERATOR(-, sub)
ETCH_VALUE_OPERATOR(*, mul)
ETCH_VALUE_OPERATOR(/, div)
ETCH_VALUE_OPERATOR(>=, ge)
ETCH_VALUE_OPERATOR(<=, le)
ETCH_VALUE_OPERATOR(<, lt)
ETCH_VALUE_OPERATOR(>, gt)
#undef ETCH_VALUE_OPERATOR
Value operator-(const Value& x) { return x.is_tensor() ? Value(neg(x.tensor())) : Value(-x.number()); }

// The value broadcast rules give a number in place of a tensor only for operands, never for gradients.
Tensor to_gradient(const Value& value) { return value.is_tensor() ? value.tensor() : Tensor(); }

Value dropout(const Value& x, const Value& seed, const Value& offset, const Value& p) {
  return dropout_from(Arg(x), Arg(seed), Arg(offset), Arg(p));
}

Value log(const Value& x) { return x.is_tensor() ? Value(etch::log(Arg(x))) : Value(std::log(x.number())); }

// The gradients of pow, with PyTorch's values where the formulas give 0 times infinity.
Value pow_base_grad(const Value& g, const Value& a, const Value& b) {
  if (!b.is_tensor()) return b.number() == 0 ? g * 0 : g * (b * Value(etch::pow(Arg(a), Arg(b - 1))));
  return where(logical_and(eq(Arg(a), 0), eq(Arg(b), 0)), 0,
               Arg(g * (b * Value(etch::pow(Arg(a), Arg(b - 1))))));
}
Value pow_exponent_grad(const Value& g, const Value& a, const Value& b, const Value& y) {
  if (!a.is_tensor()) return a.number() == 0 ? g * 0 : g * (y * log(a));
  return where(logical_and(eq(Arg(a), 0), ge(Arg(b), 0)), 0, Arg(g * (y * log(a))));
}

struct Operands {
  Value a, b, c, d, y, g;
};
using Gradient = Tensor (*)(int slot, const Operands& operands);

// One function a row; in it the row's expressions see a, b, c, d, y and g.
#define NONE Value()
#define NO_GRAD NONE
#define ETCH_CASE(slot_number, expression) \
  if (slot == slot_number) return to_gradient(expression);
#define GRAD1(e0) ETCH_CASE(0, e0)
#define GRAD2(e0, e1) ETCH_CASE(0, e0) ETCH_CASE(1, e1)
#define GRAD3(e0, e1, e2) GRAD2(e0, e1) ETCH_CASE(2, e2)
#define GRAD4(e0, e1, e2, e3) GRAD3(e0, e1, e2) ETCH_CASE(3, e3)
#undef NO_GRAD
#define NO_GRAD
#define ETCH_POINTWISE(name, arity, rule, expression, gradients, flags, doc)                 \
  Tensor gradient_of_##name([[maybe_unused]] int slot, [[maybe_unused]] const Operands& v) { \
    [[maybe_unused]] const Value &a = v.a, &b = v.b, &c = v.c, &d = v.d, &y = v.y, &g = v.g; \
    gradients;                                                                               \
    return {};                                                                               \
  }
#define ETCH_GENERATOR ETCH_POINTWISE
#define ETCH_REDUCTION(...)
#define ETCH_OP(...)
#define ETCH_COMPOSITE(...)
#include "tracer/ops.def"

// Whether a gradient's text mentions an operand as a name of its own.
constexpr bool mentions(std::string_view text, char operand) {
  const auto is_word = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  };
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != operand) continue;
    if ((i == 0 || !is_word(text[i - 1])) && (i + 1 == text.size() || !is_word(text[i + 1]))) return true;
  }
  return false;
}

// The text of one slot of "GRADn(slot 0, slot 1, ..)"; empty if there is none.
constexpr std::string_view slot_text(std::string_view gradients, int slot) {
  int depth = 0, at = 0;
  size_t begin = 0;
  for (size_t i = 0; i < gradients.size(); ++i) {
    const char c = gradients[i];
    const bool last = c == ')' && depth == 1;
    if ((c == ',' && depth == 1) || last) {
      if (at == slot) return gradients.substr(begin, i - begin);
      ++at;
    }
    if ((c == ',' && depth == 1) || (c == '(' && depth == 0)) begin = i + 1;
    depth += c == '(' ? 1 : c == ')' ? -1 : 0;
  }
  return {};
}

// What the gradient of one operand needs: bits 0 to 3 for a to d, bit 4 for y.
constexpr uint8_t needs_of(std::string_view gradients, int slot) {
  const std::string_view text = slot_text(gradients, slot);
  uint8_t needs = 0;
  for (int i = 0; i < 4; ++i) needs |= mentions(text, static_cast<char>('a' + i)) ? 1 << i : 0;
  return needs | (mentions(text, 'y') ? 16 : 0);
}

struct PointwiseRow {
  Gradient gradient = nullptr;
  uint8_t needs[4] = {};
};
constexpr PointwiseRow kRows[] = {
#define ETCH_POINTWISE(name, arity, rule, expression, gradients, flags, doc) \
  {std::string_view(#gradients) == "NO_GRAD" ? nullptr : gradient_of_##name, \
   {needs_of(#gradients, 0), needs_of(#gradients, 1), needs_of(#gradients, 2), needs_of(#gradients, 3)}},
#define ETCH_GENERATOR ETCH_POINTWISE
#define ETCH_REDUCTION(...) {},
#define ETCH_OP(...) {},
#define ETCH_COMPOSITE(...) {},
#include "tracer/ops.def"
};

class PointwiseNode final : public TapeNode {
 public:
  PointwiseNode(Op op, std::span<const Arg> operands, const Tensor& output)
      : op_(op), arity_(static_cast<uint8_t>(operands.size())) {
    const PointwiseRow& row = kRows[static_cast<int>(op)];
    uint8_t needs = 0;
    for (int i = 0; i < arity_; ++i)
      if (operands[i].is_tensor() && operands[i].tensor().requires_grad()) needs |= row.needs[i];
    saves_output_ = needs & 16;
    for (int i = 0; i < arity_; ++i) {
      if (!operands[i].is_tensor()) {
        scalars_[i] = operands[i].scalar();
        continue;
      }
      const Tensor& operand = operands[i].tensor();
      slots_[edges.size()] = static_cast<uint8_t>(i);
      edges.push_back(edge_of(operand));
      dtype_ = operand.dtype();
      broadcast_ |= operand.sizes() != output.sizes();
      if (needs & 1 << i)
        saved_[i] = operand.is_same(output)
                        ? SavedTensor(operand.clone(), etch::name(op))  // about to be overwritten
                        : SavedTensor(operand, etch::name(op));
    }
    if (broadcast_) {
      for (const Arg& operand : operands)
        if (operand.is_tensor()) sizes_.push_back(operand.tensor().sizes());
    }
  }

  bool saves_output() const { return saves_output_; }
  // The output is saved once it has its tape node.
  void save_output(const Tensor& output) {
    if (saves_output_) saved_output_ = SavedTensor::output(output, etch::name(op_));
  }

  std::string name() const override { return backward_name(etch::name(op_)); }

  void backward(std::span<const Tensor> gradients, InputGradients inputs) override {
    Value values[4];
    for (int i = 0; i < arity_; ++i)
      values[i] = saved_[i].defined() ? Value(saved_[i].unpack()) : Value(scalars_[i]);
    const Operands operands{
        values[0], values[1], values[2], values[3], Value(saved_output_.unpack(this)), Value(gradients[0])};
    for (size_t i = 0; i < edges.size(); ++i) {
      if (!inputs.needs(static_cast<int>(i))) continue;
      Tensor gradient = kRows[static_cast<int>(op_)].gradient(slots_[i], operands);
      if (!gradient.defined()) continue;
      if (broadcast_ || gradient.dtype() != dtype_)
        gradient = reduce_to(gradient, broadcast_ ? sizes_[i] : gradient.sizes(), dtype_);
      inputs.set(static_cast<int>(i), std::move(gradient));
    }
  }

  void release() override {
    for (SavedTensor& saved : saved_) saved.reset();
    saved_output_.reset();
  }

  static void* operator new(size_t) { return ObjectPool<PointwiseNode>::allocate(); }
  static void operator delete(void* data) noexcept { ObjectPool<PointwiseNode>::release(data); }

 private:
  Op op_;
  uint8_t arity_;
  uint8_t slots_[4] = {};  // operand of each edge
  bool broadcast_ = false;
  bool saves_output_;
  DType dtype_ = DType::F32;  // of the operands that have gradients
  Scalar scalars_[4];
  SavedTensor saved_[4];
  SavedTensor saved_output_;
  std::vector<Dims> sizes_;  // of the tensor operands, where they were broadcast
};

}  // namespace

Ref<TapeNode> make_pointwise_node(Op op, std::span<const Arg> operands, const Tensor& output) {
  if (!kRows[static_cast<int>(op)].gradient || !is_floating(output.dtype())) return {};
  return Ref<TapeNode>::first(new PointwiseNode(op, operands, output));
}

bool saves_output(const TapeNode& node) { return static_cast<const PointwiseNode&>(node).saves_output(); }

void attach_pointwise_node(const Ref<TapeNode>& node, const Tensor& output) {
  if (!node) return;
  set_grad_fn(output, node, 0);
  static_cast<PointwiseNode&>(*node).save_output(output);
}

void replace_pointwise_node(const Ref<TapeNode>& node, const Tensor& written, bool reads_written) {
  rewrite_history(written, node, reads_written);
  if (node) static_cast<PointwiseNode&>(*node).save_output(written);
}

Tensor dropout_from(const Arg& x, const Arg& seed, const Arg& offset, const Arg& p) {
  const Arg operands[] = {x, seed, offset, p};
  Tensor output;
  apply(Op::dropout, operands, {}, x.tensor().dtype(), {&output, 1});
  if (needs_tape({&x.tensor()}))
    attach_pointwise_node(make_pointwise_node(Op::dropout, operands, output), output);
  return output;
}

Tensor share_of_ties(const Tensor& g, const Tensor& a, const Tensor& y) {
  // NaN is its own extremum: it ties with the NaNs.
  const Tensor ties = logical_or(eq(a, y), logical_and(isnan(a), isnan(y)));
  Dims axes;
  for (int i = 0; i < a.ndim(); ++i)
    if (y.sizes()[i] != a.sizes()[i]) axes.push_back(i);
  const Tensor ones = ties.to(g.dtype());
  const Tensor count = axes.empty() ? ones : ones.sum(axes, true);
  return where(ties, g / count, 0.0);
}

}  // namespace etch
