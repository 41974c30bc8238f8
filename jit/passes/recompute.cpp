// Recomputation: a value that waits through contractions for its late readers, and that a few pointwise nodes
// can make again from what lives on anyway, is made again just before those readers.
//
// The measure is the bytes alive while contractions run: pointwise temporaries fuse away, and between two
// contractions the values that wait are what counts. A value is taken only if it waits through a contraction
// that runs near the peak, and the result only if the peak falls. What one recomputation reads late is
// pinned: it is not recomputed itself, or chains of values would all come back at once.
#include <algorithm>
#include <map>

#include "jit/graph_facts.h"
#include "jit/passes.h"

namespace etch::jit {
namespace {

constexpr int64_t kMinBytes = 4096;
constexpr size_t kMaxChain = 12;
/// Operands of at most this share of the value may be kept alive for it.
constexpr int64_t kSmallShare = 16;

/// The most bytes alive at a contraction; `live` by node.
int64_t contraction_peak(const Graph& graph, const std::vector<int64_t>& live) {
  int64_t most = 0;
  for (size_t i = 0; i < graph.nodes.size(); ++i)
    if (is_heavy(graph.nodes[i])) most = std::max(most, live[i]);
  return most;
}

class Recomputer {
 public:
  explicit Recomputer(Graph graph)
      : graph_(std::move(graph)),
        facts_(buffer_facts(graph_)),
        live_(live_bytes(graph_)),
        peak_(contraction_peak(graph_, live_)),
        pinned_(graph_.buffers.size(), false),
        hole_(graph_.buffers.size()) {
    heavy_before_.push_back(0);
    for (const Node& node : graph_.nodes) heavy_before_.push_back(heavy_before_.back() + is_heavy(node));
  }

  Graph run();

 private:
  /// The value is gone before node `end`, and its copy lives from there to `last`.
  struct Hole {
    int end = -1, last = -1, copy = -1;
  };

  bool find_hole(int buffer, Hole* hole) const;
  bool collect(int node, int at, int64_t value_bytes, std::vector<int>& chain, std::vector<int>& kept,
               int64_t& extended) const;
  void take(int buffer, Hole hole, const std::vector<int>& chain, const std::vector<int>& kept);
  int last_access(int buffer) const {
    const BufferFacts& f = facts_[buffer];
    return f.readers.empty() ? f.writers.back() : std::max(f.writers.back(), f.readers.back());
  }

  Graph graph_;
  std::vector<BufferFacts> facts_;
  std::vector<int64_t> live_;
  int64_t peak_;
  std::vector<int> heavy_before_;
  std::vector<bool> pinned_;
  std::vector<Hole> hole_;
  std::map<int, std::vector<Node>> inserted_;  ///< before the node
};

/// The longest wait, counted in contractions strictly between two accesses, that spans one near the peak.
bool Recomputer::find_hole(int buffer, Hole* hole) const {
  const BufferFacts& f = facts_[buffer];
  int longest = 0, from = f.writers.front();
  for (int reader : f.readers) {
    const int waits = heavy_before_[reader] - heavy_before_[from + 1];
    if (waits > longest) {
      int64_t most = 0;
      for (int i = from + 1; i < reader; ++i)
        if (is_heavy(graph_.nodes[i])) most = std::max(most, live_[i]);
      if (most >= peak_ / 2) {
        longest = waits;
        *hole = {reader, f.readers.back(), -1};
      }
    }
    from = reader;
  }
  return longest > 0;
}

/// The nodes that make again what `node` gives, before position `at`; false if that takes more than it saves.
bool Recomputer::collect(int node, int at, int64_t value_bytes, std::vector<int>& chain,
                         std::vector<int>& kept, int64_t& extended) const {
  if (std::find(chain.begin(), chain.end(), node) != chain.end()) return true;
  const Node& made = graph_.nodes[node];
  if (!is_pointwise(made) || checked_operand(made) >= 0 || chain.size() >= kMaxChain) return false;
  chain.push_back(node);
  for (const GraphOperand& input : made.inputs) {
    if (!input.is_tensor()) continue;
    const BufferFacts& f = facts_[input.buffer];
    const GraphBuffer& buffer = graph_.buffers[input.buffer];
    if (buffer.kind == GraphBuffer::Kind::External) {
      auto write = std::upper_bound(f.writers.begin(), f.writers.end(), node);
      if (write != f.writers.end() && *write < at) return false;
      continue;
    }
    if (!f.value) return false;
    const Hole& hole = hole_[input.buffer];
    const bool lives = hole.end < 0
                           ? last_access(input.buffer) >= at || buffer.kind == GraphBuffer::Kind::Output
                           : hole.end <= at && hole.last >= at;
    if (lives) {
      kept.push_back(input.buffer);
      continue;
    }
    if (hole.end < 0 && buffer.bytes * kSmallShare <= value_bytes) {
      extended += buffer.bytes;
      kept.push_back(input.buffer);
      continue;
    }
    if (!collect(f.writers.front(), at, value_bytes, chain, kept, extended)) return false;
  }
  return true;
}

void Recomputer::take(int buffer, Hole hole, const std::vector<int>& chain, const std::vector<int>& kept) {
  std::map<int, int> copies;
  std::vector<Node>& before = inserted_[hole.end];
  for (int node : chain) {
    Node copy = graph_.nodes[node];
    for (GraphOperand& input : copy.inputs) {
      if (!input.is_tensor()) continue;
      auto made = copies.find(input.buffer);
      if (made != copies.end())
        input.buffer = made->second;
      else if (hole_[input.buffer].end >= 0)
        input.buffer = hole_[input.buffer].copy;
    }
    const int from = copy.outputs[0].buffer;
    copies[from] = copy.outputs[0].buffer =
        graph_.add_buffer(GraphBuffer::Kind::Internal, graph_.buffers[from].bytes);
    before.push_back(std::move(copy));
  }
  for (int b : kept) pinned_[b] = true;
  hole.copy = copies[buffer];
  hole_[buffer] = hole;
}

Graph Recomputer::run() {
  if (peak_ < kMinBytes) return graph_;
  const int count = static_cast<int>(graph_.buffers.size());
  std::vector<int> order;
  for (int b = 0; b < count; ++b)
    if (facts_[b].value && graph_.buffers[b].kind == GraphBuffer::Kind::Internal &&
        graph_.buffers[b].bytes >= kMinBytes && !facts_[b].readers.empty())
      order.push_back(b);
  std::stable_sort(order.begin(), order.end(), [this](int a, int b) {
    if (graph_.buffers[a].bytes != graph_.buffers[b].bytes)
      return graph_.buffers[a].bytes > graph_.buffers[b].bytes;
    return facts_[a].writers.front() > facts_[b].writers.front();
  });
  for (int b : order) {
    Hole hole;
    if (pinned_[b] || !find_hole(b, &hole)) continue;
    std::vector<int> chain, kept;
    int64_t extended = 0;
    const int64_t bytes = graph_.buffers[b].bytes;
    if (!collect(facts_[b].writers.front(), hole.end, bytes, chain, kept, extended)) continue;
    if (extended * 4 > bytes) continue;
    std::sort(chain.begin(), chain.end());
    take(b, hole, chain, kept);
  }
  if (inserted_.empty()) return graph_;

  Graph result;
  result.device = graph_.device;
  result.buffers = graph_.buffers;
  result.num_slots = graph_.num_slots;
  for (int i = 0; i < static_cast<int>(graph_.nodes.size()); ++i) {
    auto before = inserted_.find(i);
    if (before != inserted_.end())
      for (Node& node : before->second) result.nodes.push_back(std::move(node));
    Node node = graph_.nodes[i];
    for (GraphOperand& input : node.inputs)
      if (input.is_tensor() && hole_[input.buffer].end >= 0 && i >= hole_[input.buffer].end)
        input.buffer = hole_[input.buffer].copy;
    result.nodes.push_back(std::move(node));
  }
  // What only served to be kept may be dead now.
  result = eliminate_dead_code(std::move(result));
  return contraction_peak(result, live_bytes(result)) < peak_ ? result : graph_;
}

}  // namespace

Graph recompute(Graph graph) { return Recomputer(std::move(graph)).run(); }

}  // namespace etch::jit
