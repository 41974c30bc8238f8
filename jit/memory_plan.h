// Offsets in the arena for what lives only inside a call.
#pragma once

#include <cstdint>
#include <vector>

#include "tracer/graph.h"

namespace etch::jit {

/// What a buffer's bytes are: a place in the arena, or the block of an output (own, or one that it hands its
/// bytes on to).
struct Place {
  int output = -1;      ///< the buffer whose block it lives in; -1: the arena
  int64_t offset = -1;  ///< in the arena; -1: no place (externals, buffers that no node touches)
};

/// A stretch of the arena that a step leaves behind without a reader.
struct DeadRange {
  int64_t offset, bytes;
};

struct MemoryPlan {
  std::vector<Place> places;     ///< by buffer
  std::vector<int64_t> scratch;  ///< by node: where its scratch lies in the arena
  int64_t arena_bytes = 0;
  int64_t lower_bound = 0;  ///< the largest sum of bytes that any step needs in the arena
  int64_t output_bytes = 0;
  int64_t unshared_bytes = 0;                ///< of all internal buffers, laid side by side
  int64_t in_place = 0;                      ///< buffers that took over an operand's bytes
  std::vector<int64_t> live;                 ///< by node: bytes needed in the arena
  std::vector<std::vector<DeadRange>> dead;  ///< by node
};

inline constexpr int64_t kPlanAlignment = 64;

/// `scratch_bytes` by node. `may_share(node, input, output)`: the node may write its output over that input.
class ShareRule {
 public:
  virtual ~ShareRule() = default;
  virtual bool may_share(int node, const GraphOperand& input, const GraphOperand& output) const = 0;
};
MemoryPlan plan_memory(const Graph& graph, const std::vector<int64_t>& scratch_bytes, const ShareRule& rule);

/// One thing to place: bytes alive during the steps [first, last].
struct LiveRange {
  int first, last;
  int64_t bytes;
  int64_t offset = 0;
};
/// Fills the offsets; returns the bytes needed. Ranges that meet in time never meet in space.
int64_t pack(std::vector<LiveRange>& ranges);

}  // namespace etch::jit
