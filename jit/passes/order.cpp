// The order of nodes, for a low peak.
#include "jit/passes.h"

#include <algorithm>

#include "jit/graph_facts.h"

namespace etch::jit {
namespace {

int64_t peak(const Graph& graph) {
  const std::vector<int64_t> live = live_bytes(graph);
  return live.empty() ? 0 : *std::max_element(live.begin(), live.end());
}

/// A list schedule. A ready node that frees at least twice what it takes runs at once (the one that frees
/// most first), so a parameter is updated as soon as its gradient is complete. Otherwise program order,
/// except that of nodes close by that read the same buffer the one that takes least comes first: a weight's
/// gradient is then not held while the gradient of the layer's input is computed.
class Scheduler {
 public:
  explicit Scheduler(const Graph& graph)
      : graph_(graph),
        facts_(buffer_facts(graph)),
        order_(dependences(graph, facts_)),
        left_(graph.buffers.size()),
        made_(graph.buffers.size(), false),
        touched_(graph.nodes.size()) {
    for (int i = 0; i < static_cast<int>(graph.nodes.size()); ++i) {
      std::vector<int>& touched = touched_[i];
      for (const auto* operands : {&graph.nodes[i].inputs, &graph.nodes[i].outputs})
        for (const GraphOperand& operand : *operands)
          if (operand.is_tensor() && graph.buffers[operand.buffer].kind != GraphBuffer::Kind::External)
            touched.push_back(operand.buffer);
      std::sort(touched.begin(), touched.end());
      touched.erase(std::unique(touched.begin(), touched.end()), touched.end());
      for (int b : touched) ++left_[b];
    }
  }

  std::vector<int> run() {
    const int count = static_cast<int>(graph_.nodes.size());
    std::vector<int> waits(count), ready, schedule;
    for (int i = 0; i < count; ++i) {
      waits[i] = static_cast<int>(order_.before[i].size());
      if (waits[i] == 0) ready.push_back(i);
    }
    while (!ready.empty()) {
      auto chosen = ready.begin();
      int64_t least = 0;
      for (auto at = ready.begin(); at != ready.end(); ++at) {
        const Change change = bytes_change(*at);
        if (change.freed >= 2 * change.taken && change.taken - change.freed < least) {
          least = change.taken - change.freed;
          chosen = at;
        }
      }
      if (least == 0) chosen = sibling(ready);
      const int node = *chosen;
      ready.erase(chosen);
      schedule.push_back(node);
      for (int b : touched_[node]) {
        made_[b] = true;
        --left_[b];
      }
      for (int next : order_.after[node])
        if (--waits[next] == 0) ready.insert(std::upper_bound(ready.begin(), ready.end(), next), next);
    }
    return schedule;
  }

 private:
  struct Change {
    int64_t taken = 0, freed = 0;
  };

  Change bytes_change(int node) const {
    Change change;
    for (int b : touched_[node]) {
      const GraphBuffer& buffer = graph_.buffers[b];
      if (!made_[b]) change.taken += buffer.bytes;
      if (left_[b] == 1 && buffer.kind == GraphBuffer::Kind::Internal) change.freed += buffer.bytes;
    }
    return change;
  }

  /// The first ready node, or one just behind it that shares an operand and takes less.
  std::vector<int>::iterator sibling(std::vector<int>& ready) const {
    constexpr int kNear = 8;
    auto chosen = ready.begin();
    const int first = *chosen;
    int64_t least = bytes_change(first).taken;
    for (auto at = ready.begin() + 1; at != ready.end() && *at <= first + kNear; ++at) {
      const bool shares = std::any_of(touched_[*at].begin(), touched_[*at].end(), [&](int b) {
        return std::binary_search(touched_[first].begin(), touched_[first].end(), b);
      });
      const int64_t taken = bytes_change(*at).taken;
      if (!shares || taken >= least) continue;
      least = taken;
      chosen = at;
    }
    return chosen;
  }

  const Graph& graph_;
  std::vector<BufferFacts> facts_;
  Dependences order_;
  std::vector<int> left_;
  std::vector<bool> made_;
  std::vector<std::vector<int>> touched_;
};

}  // namespace

Graph order_for_memory(Graph graph) {
  const std::vector<int> schedule = Scheduler(graph).run();
  ETCH_INVARIANT(schedule.size() == graph.nodes.size());
  Graph ordered;
  ordered.device = graph.device;
  ordered.buffers = graph.buffers;
  ordered.num_slots = graph.num_slots;
  for (int i : schedule) ordered.nodes.push_back(graph.nodes[i]);
  return peak(ordered) < peak(graph) ? ordered : graph;
}

}  // namespace etch::jit
