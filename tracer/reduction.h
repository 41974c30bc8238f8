// The one order in which reductions add up, shared by eager kernels, generated kernels and composites.
//
// A reduction's operand is first brought into memory order: size-1 dimensions dropped, the rest sorted by
// falling stride (ties keep their order; stride 0 counts as smallest). If the innermost dimension is reduced
// the reduction is of kind Rows, else of kind Columns. Both depend on the operand's recorded sizes and
// strides alone, never on threads or fusion, so results are the same bits everywhere.
//
// Rows: the innermost run of reduced dimensions (those that are adjacent and innermost, taken as one run of
// length n in
//   that order) is cut into blocks of kBlock elements. In a block, kLanes accumulators start at the identity
//   and lane l takes the elements l, l + kLanes, ... in order; then lanes fold in halves: lane[i] =
//   combine(lane[i], lane[i + w]) for w = kLanes/2, ..., 1. The run's result starts at the identity and
//   combines the blocks in order; if further reduced dimensions lie outside (separated by kept ones), the
//   result starts at the identity and combines the runs in order.
// Columns: the reduced dimensions form R rows in memory order, cut into chunks of chunk_rows(R). A chunk
// starts at the
//   identity and combines its rows in order; the result starts at the identity and combines the chunks in
//   order.
//
// F16 and BF16 accumulate in F32 and round once, at the end.
#pragma once

#include <cstdint>

#include "runtime/shape.h"

namespace etch {

inline constexpr int64_t kReductionLanes = 32;
inline constexpr int64_t kReductionBlock = 4096;

/// Rows of one chunk of a column reduction over R rows.
constexpr int64_t chunk_rows(int64_t rows) {
  const int64_t even = (rows + 127) / 128;
  return even < 64 ? 64 : even;
}

/// A reduction in memory order.
struct ReductionOrder {
  enum class Kind { Rows, Columns };
  Kind kind = Kind::Rows;
  /// Dimensions of the operand, outermost first, without those of size 1.
  int ndim = 0;
  int axis[kMaxDims];  ///< which of the operand's axes
  int64_t size[kMaxDims];
  int64_t stride[kMaxDims];
  bool reduced[kMaxDims];
};

/// The order for reducing the axes in `mask` of an operand of this geometry.
ReductionOrder reduction_order(const Geometry& operand, uint64_t mask);

}  // namespace etch
