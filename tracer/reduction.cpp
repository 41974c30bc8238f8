// The memory order of reductions.
#include "tracer/reduction.h"

#include <algorithm>

namespace etch {

ReductionOrder reduction_order(const Geometry& operand, uint64_t mask) {
  ReductionOrder order;
  for (int axis = 0; axis < operand.ndim(); ++axis)
    if (operand.sizes[axis] != 1) order.axis[order.ndim++] = axis;
  std::stable_sort(order.axis, order.axis + order.ndim,
                   [&](int a, int b) { return operand.strides[a] > operand.strides[b]; });
  for (int i = 0; i < order.ndim; ++i) {
    order.size[i] = operand.sizes[order.axis[i]];
    order.stride[i] = operand.strides[order.axis[i]];
    order.reduced[i] = mask >> order.axis[i] & 1;
  }
  const bool rows = order.ndim > 0 && order.reduced[order.ndim - 1];
  order.kind = rows ? ReductionOrder::Kind::Rows : ReductionOrder::Kind::Columns;
  return order;
}

}  // namespace etch
