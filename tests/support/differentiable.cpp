// The differentiable function that a sample's row belongs to.
#include "tests/support/differentiable.h"

#include "eager/functional.h"
#include "eager/gradients.h"
#include "tracer/attrs.h"

namespace etch::testing {

namespace {

constexpr std::string_view kPointwiseGradients[] = {
#define ETCH_POINTWISE(name, arity, rule, expression, gradients, flags, doc) #gradients,
#define ETCH_GENERATOR ETCH_POINTWISE
#define ETCH_REDUCTION(...) "",
#define ETCH_OP(...) "",
#define ETCH_COMPOSITE(...) "",
#include "tracer/ops.def"
};

Dims axes_of(const OpSample& sample) {
  const ReductionAttrs attrs(sample.attrs);
  Dims axes;
  for (int i = 0; i < kMaxDims; ++i)
    if (attrs.axes >> i & 1) axes.push_back(i);
  return axes;
}

Conv2dOptions conv_options(const Attrs& packed) {
  const ConvAttrs attrs(packed);
  return {{attrs.stride[0], attrs.stride[1]},
          {attrs.padding[0], attrs.padding[1]},
          {attrs.dilation[0], attrs.dilation[1]},
          attrs.groups};
}

Pool2dOptions pool_options(const Attrs& packed) {
  const PoolAttrs attrs(packed);
  return {{attrs.kernel[0], attrs.kernel[1]},
          {attrs.stride[0], attrs.stride[1]},
          {attrs.padding[0], attrs.padding[1]}};
}

double number(const OpSample& sample, int operand) {
  return std::get<Scalar>(sample.operands[operand]).to_double();
}

// A pointwise call with the tensor operands replaced.
Function pointwise_form(const OpSample& sample) {
  return [&sample](std::span<const Tensor> x) {
    std::vector<Arg> args;
    size_t next = 0;
    for (const SampleOperand& operand : sample.operands) {
      const Scalar* scalar = std::get_if<Scalar>(&operand);
      args.push_back(scalar ? Arg(*scalar) : Arg(x[next++]));
    }
    return call_pointwise(sample.op, args);
  };
}

Function reduction_form(const OpSample& sample, Tensor (Tensor::*method)(const Axes&, bool) const) {
  return [&sample, method](std::span<const Tensor> x) {
    return (x[0].*method)(axes_of(sample), ReductionAttrs(sample.attrs).keepdim);
  };
}

}  // namespace

std::vector<Values> tensor_operands(const OpSample& sample) {
  std::vector<Values> values;
  for (const SampleOperand& operand : sample.operands)
    if (const Values* tensor = std::get_if<Values>(&operand)) values.push_back(*tensor);
  return values;
}

Function differentiable_form(const OpSample& sample) {
  using Inputs = std::span<const Tensor>;
  const OpSample& s = sample;
  const auto axis = [&s] { return AxisAttrs(s.attrs).axis; };
  switch (sample.op) {
    case Op::dropout:
      return [&s](Inputs x) {
        return dropout_from(x[0], std::get<Scalar>(s.operands[1]), std::get<Scalar>(s.operands[2]),
                            std::get<Scalar>(s.operands[3]));
      };
    case Op::sum:
      return reduction_form(s, &Tensor::sum);
    case Op::amax:
      return reduction_form(s, &Tensor::amax);
    case Op::amin:
      return reduction_form(s, &Tensor::amin);
    case Op::matmul:
      return [](Inputs x) { return x[0].matmul(x[1]); };
    case Op::conv2d:
      return [&s](Inputs x) {
        return conv2d(x[0], x[1], x.size() > 2 ? x[2] : Tensor(), conv_options(s.attrs));
      };
    case Op::max_pool2d:
      return [&s](Inputs x) { return max_pool2d(x[0], pool_options(s.attrs)); };
    case Op::avg_pool2d:
      return [&s](Inputs x) { return avg_pool2d(x[0], pool_options(s.attrs)); };
    case Op::index_select:
      return [axis](Inputs x) { return x[0].index_select(axis(), x[1]); };
    case Op::index_add:
      return [axis](Inputs x) { return x[0].index_add(axis(), x[1], x[2]); };
    case Op::gather:
      return [axis](Inputs x) { return x[0].gather(axis(), x[1]); };
    case Op::scatter_add:
      return [axis](Inputs x) { return x[0].scatter_add(axis(), x[1], x[2]); };
    case Op::softmax:
      return [axis](Inputs x) { return x[0].softmax(axis()); };
    case Op::log_softmax:
      return [axis](Inputs x) { return x[0].log_softmax(axis()); };
    case Op::cross_entropy:
      return [&s](Inputs x) {
        return cross_entropy(
            x[0], x[1], {.reduction = Loss::None, .ignore_index = CrossEntropyAttrs(s.attrs).ignore_index});
      };
    case Op::layer_norm:
      return [&s](Inputs x) { return layer_norm(x[0], x[1], x[2], number(s, 3)); };
    case Op::batch_norm:
      return [&s](Inputs x) {
        Tensor mean = x[3].detach().clone(), variance = x[4].detach().clone();
        return batch_norm(x[0], x[1], x[2], mean, variance,
                          {.training = true, .momentum = number(s, 5), .eps = number(s, 6)});
      };
    case Op::batch_norm_eval:
      return [&s](Inputs x) {
        // The running statistics have no gradient.
        Tensor mean = std::get<Values>(s.operands[3]).tensor(DType::F64);
        Tensor variance = std::get<Values>(s.operands[4]).tensor(DType::F64);
        return batch_norm(x[0], x[1], x[2], mean, variance, {.training = false, .eps = number(s, 5)});
      };
    default:
      break;
  }
  const std::string_view gradients = kPointwiseGradients[static_cast<int>(sample.op)];
  if (gradients.empty() || gradients == "NO_GRAD") return nullptr;
  return pointwise_form(sample);
}

}  // namespace etch::testing
