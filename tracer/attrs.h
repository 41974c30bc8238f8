// How structure attributes are packed into Attrs, one struct a kind of op.
#pragma once

#include "tracer/op.h"

namespace etch {

/// sum, prod, amax, amin, any, all: which axes, and whether they stay with size 1. argmax, argmin: one axis,
/// or all.
struct ReductionAttrs {
  uint64_t axes = 0;  ///< bit i: axis i is reduced
  bool keepdim = false;

  explicit ReductionAttrs(const Attrs& attrs) : axes(attrs[0]), keepdim(attrs[1]) {}
  ReductionAttrs(uint64_t mask, bool keep) : axes(mask), keepdim(keep) {}
  Attrs pack() const { return {static_cast<int64_t>(axes), keepdim}; }
};

/// softmax and its kin, index_select, index_add, gather, scatter_add: a non-negative axis.
struct AxisAttrs {
  int axis = 0;

  explicit AxisAttrs(const Attrs& attrs) : axis(static_cast<int>(attrs[0])) {}
  explicit AxisAttrs(int value) : axis(value) {}
  Attrs pack() const { return {axis}; }
};

/// conv2d and its gradients. `sizes` is what cannot be told from the operands: H and W of x for
/// conv2d_input_grad, KH and KW for conv2d_weight_grad, unused by conv2d.
struct ConvAttrs {
  int64_t stride[2] = {1, 1}, padding[2] = {0, 0}, dilation[2] = {1, 1}, groups = 1, sizes[2] = {0, 0};

  ConvAttrs() = default;
  explicit ConvAttrs(const Attrs& a)
      : stride{a[0], a[1]}, padding{a[2], a[3]}, dilation{a[4], a[5]}, groups(a[6]), sizes{a[7], a[8]} {}
  Attrs pack() const {
    return {stride[0],   stride[1], padding[0], padding[1], dilation[0],
            dilation[1], groups,    sizes[0],   sizes[1]};
  }
};

/// Pooling. `sizes` is H and W of x for the gradients, unused forward.
struct PoolAttrs {
  int64_t kernel[2] = {1, 1}, stride[2] = {1, 1}, padding[2] = {0, 0}, sizes[2] = {0, 0};

  PoolAttrs() = default;
  explicit PoolAttrs(const Attrs& a)
      : kernel{a[0], a[1]}, stride{a[2], a[3]}, padding{a[4], a[5]}, sizes{a[6], a[7]} {}
  Attrs pack() const {
    return {kernel[0], kernel[1], stride[0], stride[1], padding[0], padding[1], sizes[0], sizes[1]};
  }
};

/// Generators and other calls without a tensor operand: the sizes of the output.
inline Attrs pack_sizes(const Dims& sizes) {
  Attrs attrs;
  for (int64_t size : sizes) attrs.values[attrs.count++] = size;
  return attrs;
}
inline Dims unpack_sizes(const Attrs& attrs) {
  return Dims(std::span<const int64_t>(attrs.values.data(), attrs.count));
}

/// cross_entropy and its gradient: the label that does not count.
struct CrossEntropyAttrs {
  int64_t ignore_index = -100;

  explicit CrossEntropyAttrs(const Attrs& attrs) : ignore_index(attrs[0]) {}
  explicit CrossEntropyAttrs(int64_t ignore) : ignore_index(ignore) {}
  Attrs pack() const { return {ignore_index}; }
};

}  // namespace etch
