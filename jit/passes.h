// The passes. Each takes a graph and returns one that computes the same bits; pipeline.cpp orders them.
#pragma once

#include "tracer/graph.h"

namespace etch::jit {

/// Offsets of windows as large as their buffer are zero, whatever slot they come in.
Graph fix_offsets(Graph graph);
/// Nodes without effect vanish, with their data checks.
Graph eliminate_dead_code(Graph graph);
/// A buffer that is overwritten in full becomes a new buffer at each such write, so that more buffers are
/// values.
Graph rename_overwritten(Graph graph);
/// Readers of a plain copy read its source; readers of a filled buffer take the scalar.
Graph canonicalise(Graph graph);
/// Nodes that compute what an earlier one has computed vanish.
Graph merge_common(Graph graph);
/// Pointwise values kept for long, whose operands live on anyway, are computed again before their late uses.
/// With a budget, reductions and contractions too, as long as more bytes than that are alive at a
/// contraction. merge_common() must not run after it.
Graph recompute(Graph graph, int64_t memory_budget = 0);
/// Additions of buffers that are filled but for a run of elements become one node each.
Graph gather_pieces(Graph graph);
/// Pointwise, generator and reduction nodes become fused nodes.
Graph fuse(Graph graph);
/// A fused group computes again what it would load from another group whose operands it loads too.
Graph inline_recomputed(Graph graph);
/// Products and the groups between them become tiled nodes. Large matrices between them are computed again
/// for a backward, and with a budget all, as long as more bytes than that are alive anywhere.
Graph tile_products(Graph graph, int64_t memory_budget = 0);
/// Nodes are ordered for a low peak; program order otherwise.
Graph order_for_memory(Graph graph);

/// The node with a group that `body` becomes. `stored` says of a buffer whether anything outside reads it or
/// it outlives the call.
Node make_group(Op op, std::vector<Node> body, const std::vector<bool>& stored);
/// The graph with every group that `pick` chooses replaced by its body, down to nodes without one.
Graph split_groups(Graph graph, const std::vector<bool>& pick);

}  // namespace etch::jit
