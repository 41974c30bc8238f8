// The tape side of the pointwise rows: which operands a row saves, and its gradient.
#pragma once

#include "eager/tape.h"
#include "tracer/op.h"

namespace etch {

/// The tape node of a pointwise (or generator) call whose operands already have one dtype, made before the
/// call runs; null if the row has no gradient. `output` gives the sizes and dtype, and may be one of the
/// operands (in place).
Ref<TapeNode> make_pointwise_node(Op op, std::span<const Arg> operands, const Tensor& output);
/// Whether the gradient of such a node needs the output.
bool saves_output(const TapeNode& pointwise_node);
/// Makes `output`, now computed, the node's output.
void attach_pointwise_node(const Ref<TapeNode>& node, const Tensor& output);
/// The same for an output written in place, see rewrite_history().
void replace_pointwise_node(const Ref<TapeNode>& node, const Tensor& written, bool reads_written);

/// x with elements zeroed with probability p and the rest scaled, from the given Philox state.
Tensor dropout_from(const Arg& x, const Arg& seed, const Arg& offset, const Arg& p);

/// g shared equally among the elements of a that equal the extremum y (kept dimensions).
Tensor share_of_ties(const Tensor& g, const Tensor& a, const Tensor& y);

}  // namespace etch
