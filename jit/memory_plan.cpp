// Live ranges, in-place reuse, and greedy packing.
#include "jit/memory_plan.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "jit/graph_facts.h"

namespace etch::jit {
namespace {

int64_t align(int64_t bytes) { return (bytes + kPlanAlignment - 1) / kPlanAlignment * kPlanAlignment; }

/// Places the ranges in the order given, each at the lowest gap (or the tightest one) among those it meets in
/// time.
int64_t pack_in_order(std::vector<LiveRange>& ranges, const std::vector<int>& order, bool tightest) {
  std::vector<int> placed;  // by rising offset
  int64_t top = 0;
  for (int r : order) {
    LiveRange& range = ranges[r];
    int64_t end = 0, best = -1, best_gap = 0;
    for (int p : placed) {
      const LiveRange& other = ranges[p];
      if (other.first > range.last || other.last < range.first) continue;
      const int64_t gap = other.offset - end;
      if (gap >= range.bytes && (best < 0 || gap < best_gap)) {
        best = end;
        best_gap = gap;
        if (!tightest) break;
      }
      end = std::max(end, other.offset + other.bytes);
    }
    range.offset = best >= 0 ? best : end;
    top = std::max(top, range.offset + range.bytes);
    auto at = std::upper_bound(placed.begin(), placed.end(), range.offset,
                               [&](int64_t offset, int p) { return offset < ranges[p].offset; });
    placed.insert(at, r);
  }
  return top;
}

int64_t largest_live(const std::vector<LiveRange>& ranges) {
  int last = -1;
  for (const LiveRange& r : ranges) last = std::max(last, r.last);
  std::vector<int64_t> change(last + 2, 0);
  for (const LiveRange& r : ranges) {
    change[r.first] += r.bytes;
    change[r.last + 1] -= r.bytes;
  }
  int64_t sum = 0, most = 0;
  for (int64_t c : change) most = std::max(most, sum += c);
  return most;
}

}  // namespace

int64_t pack(std::vector<LiveRange>& ranges) {
  const int64_t bound = largest_live(ranges);
  std::vector<int> order(ranges.size());
  std::iota(order.begin(), order.end(), 0);
  auto length = [&](int i) { return int64_t{ranges[i].last} - ranges[i].first + 1; };
  using Less = std::function<bool(int, int)>;
  const Less orders[] = {
      [&](int a, int b) { return ranges[a].bytes > ranges[b].bytes; },
      [&](int a, int b) { return ranges[a].bytes * length(a) > ranges[b].bytes * length(b); },
      [&](int a, int b) { return length(a) > length(b); },
      [&](int a, int b) { return ranges[a].first < ranges[b].first; },
  };
  int64_t best = -1;
  std::vector<int64_t> offsets(ranges.size());
  for (const Less& less : orders)
    for (bool tightest : {false, true}) {
      if (best >= 0 && best <= bound + bound / 200) break;
      std::stable_sort(order.begin(), order.end(), less);
      const int64_t top = pack_in_order(ranges, order, tightest);
      if (best >= 0 && top >= best) continue;
      best = top;
      for (size_t i = 0; i < ranges.size(); ++i) offsets[i] = ranges[i].offset;
    }
  for (size_t i = 0; i < ranges.size(); ++i) ranges[i].offset = offsets[i];
  return std::max<int64_t>(best, 0);
}

MemoryPlan plan_memory(const Graph& graph, const std::vector<int64_t>& scratch_bytes, const ShareRule& rule) {
  const std::vector<BufferFacts> facts = buffer_facts(graph);
  const int buffers = static_cast<int>(graph.buffers.size());
  const int nodes = static_cast<int>(graph.nodes.size());
  MemoryPlan plan;
  plan.places.resize(buffers);
  plan.scratch.assign(nodes, -1);
  plan.live.assign(nodes, 0);
  plan.dead.resize(nodes);

  // A block is what buffers share that hand their bytes on; block[b] names it by its first buffer.
  std::vector<int> block(buffers);
  std::vector<LiveRange> range(buffers, {0, -1, 0});
  std::vector<int> output(buffers, -1);
  for (int b = 0; b < buffers; ++b) {
    block[b] = b;
    const GraphBuffer& buffer = graph.buffers[b];
    if (buffer.kind == GraphBuffer::Kind::External || facts[b].writers.empty()) continue;
    range[b] = {facts[b].writers.front(), facts[b].writers.back(), align(buffer.bytes)};
    if (!facts[b].readers.empty()) range[b].last = std::max(range[b].last, facts[b].readers.back());
    if (buffer.kind == GraphBuffer::Kind::Output) {
      output[b] = b;
      range[b].last = nodes;
      plan.output_bytes += buffer.bytes;
    } else {
      plan.unshared_bytes += range[b].bytes;
    }
  }
  std::vector<int> taken(buffers, -1);
  for (int i = 0; i < nodes; ++i)
    for (const GraphOperand& out : graph.nodes[i].outputs) {
      const int b = out.buffer;
      if (range[b].last < 0 || !facts[b].value || block[b] != b || range[b].first != i) continue;
      for (const GraphOperand& in : graph.nodes[i].inputs) {
        if (!in.is_tensor() || graph.buffers[in.buffer].kind != GraphBuffer::Kind::Internal) continue;
        const int from = block[in.buffer];
        // Dies here: nothing of its block is touched later (a block handed on has its last moved past i).
        if (from == b || taken[from] == i || range[from].last != i || range[in.buffer].last != i ||
            !facts[in.buffer].value)
          continue;
        // Sizes to the byte: with the same geometry and nothing around it, the window is at the same address.
        if (graph.buffers[in.buffer].bytes != graph.buffers[b].bytes || (output[from] >= 0 && output[b] >= 0))
          continue;
        if (!rule.may_share(i, in, out)) continue;
        block[b] = from;
        taken[from] = i;
        range[from].last = range[b].last;
        if (output[b] >= 0) output[from] = output[b];
        ++plan.in_place;
        break;
      }
    }

  std::vector<LiveRange> ranges;
  std::vector<int> owner;  // a block, or minus one minus a node
  for (int b = 0; b < buffers; ++b)
    if (block[b] == b && range[b].last >= 0 && output[b] < 0 && range[b].bytes > 0) {
      ranges.push_back(range[b]);
      owner.push_back(b);
    }
  for (int i = 0; i < nodes; ++i)
    if (scratch_bytes[i] > 0) {
      ranges.push_back({i, i, align(scratch_bytes[i])});
      owner.push_back(-1 - i);
    }
  plan.arena_bytes = pack(ranges);

  std::vector<int64_t> offset(buffers, 0);
  for (size_t r = 0; r < ranges.size(); ++r) {
    for (int i = ranges[r].first; i <= ranges[r].last; ++i) plan.live[i] += ranges[r].bytes;
    plan.dead[ranges[r].last].push_back({ranges[r].offset, ranges[r].bytes});
    if (owner[r] >= 0)
      offset[owner[r]] = ranges[r].offset;
    else
      plan.scratch[-1 - owner[r]] = ranges[r].offset;
  }
  for (int64_t live : plan.live) plan.lower_bound = std::max(plan.lower_bound, live);
  for (int b = 0; b < buffers; ++b) {
    if (range[b].last < 0) continue;
    plan.places[b] = {output[block[b]], output[block[b]] < 0 ? offset[block[b]] : 0};
  }
  return plan;
}

}  // namespace etch::jit
