// Groups that add up pieces: buffers filled with one value and then written in one run of elements. Where the
// run lies is known at each call only, so no generated kernel can hold them; eager/cpu/piece_sum.h does.
#pragma once

#include <optional>
#include <vector>

#include "tracer/graph.h"

namespace etch::jit {

struct PieceSum {
  struct Term {
    GraphOperand source;  ///< contiguous
    GraphOperand fill;    ///< a scalar; absent where the source is the whole term
    GraphOperand window;  ///< the run in the term; the source itself where that is the whole
  };
  std::vector<Term> terms;  ///< added from left to right
  GraphOperand out;
  /// The dimensions of the sum in order, with their steps in `out`. The innermost step is 1.
  Geometry layout;
};

/// What the fused node adds up, if all it does is that: F32, contiguous, fixed offsets but for the runs. The
/// sum itself may be stored with its dimensions in another order.
std::optional<PieceSum> as_piece_sum(const Node& node);

}  // namespace etch::jit
