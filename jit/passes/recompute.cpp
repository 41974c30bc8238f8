// Recomputation: a value that waits through contractions for its late readers, and that a few pointwise nodes
// can make again from what lives on anyway, is made again just before those readers.
//
// The measure is the bytes alive while contractions run: pointwise temporaries fuse away, and between two
// contractions the values that wait are what counts. A value is taken only if it waits through a contraction
// that runs near the peak, and the result only if the peak falls. What one recomputation reads late is
// pinned: it is not recomputed itself, or chains of values would all come back at once.
#include <algorithm>
#include <map>
#include <optional>

#include "jit/graph_facts.h"
#include "jit/passes.h"

namespace etch::jit {
namespace {

constexpr int64_t kMinBytes = 4096;
constexpr size_t kMaxChain = 12;
constexpr size_t kMaxTrials = 300;
/// Operands of at most this share of the value may be kept alive for it.
constexpr int64_t kSmallShare = 16;

/// The most bytes alive at a contraction; `live` by node.
int64_t contraction_peak(const Graph& graph, const std::vector<int64_t>& live) {
  int64_t most = 0;
  for (size_t i = 0; i < graph.nodes.size(); ++i)
    if (is_heavy(graph.nodes[i])) most = std::max(most, live[i]);
  return most;
}

/// Bytes beyond the budget, summed over the contractions.
int64_t excess(const Graph& graph, int64_t budget) {
  const std::vector<int64_t> live = live_bytes(graph);
  int64_t sum = 0;
  for (size_t i = 0; i < graph.nodes.size(); ++i)
    if (is_heavy(graph.nodes[i])) sum += std::max<int64_t>(0, live[i] - budget);
  return sum;
}

/// What a chain may be made of.
struct Limits {
  size_t nodes = kMaxChain;
  bool reductions = false;
  bool contractions = false;
  int64_t crowded = 0;  ///< bytes alive at a contraction that make waiting through it worth avoiding
};

class Recomputer {
 public:
  Recomputer(const Graph& graph, const Limits& limits)
      : graph_(graph),
        limits_(limits),
        facts_(buffer_facts(graph_)),
        live_(live_bytes(graph_)),
        pinned_(graph_.buffers.size(), false),
        hole_(graph_.buffers.size()) {
    heavy_before_.push_back(0);
    for (const Node& node : graph_.nodes) heavy_before_.push_back(heavy_before_.back() + is_heavy(node));
  }

  /// Takes all values that qualify; the graph as it was if there is none.
  Graph run();
  /// Takes one value.
  std::optional<Graph> run_one(int buffer);
  /// Values large enough, the largest and then the latest first.
  std::vector<int> values() const;

 private:
  /// The value is gone before node `end`, and its copy lives from there to `last`.
  struct Hole {
    int end = -1, last = -1, copy = -1;
  };

  bool try_value(int buffer);
  Graph build();
  bool may_repeat(const Node& node) const;
  bool find_hole(int buffer, Hole* hole) const;
  bool collect(int node, int at, int64_t value_bytes, std::vector<int>& chain, std::vector<int>& kept,
               int64_t& extended) const;
  void take(int buffer, Hole hole, const std::vector<int>& chain, const std::vector<int>& kept);
  int last_access(int buffer) const {
    const BufferFacts& f = facts_[buffer];
    return f.readers.empty() ? f.writers.back() : std::max(f.writers.back(), f.readers.back());
  }

  Graph graph_;
  Limits limits_;
  std::vector<BufferFacts> facts_;
  std::vector<int64_t> live_;
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
      if (most >= limits_.crowded) {
        longest = waits;
        *hole = {reader, f.readers.back(), -1};
      }
    }
    from = reader;
  }
  return longest > 0;
}

bool Recomputer::may_repeat(const Node& node) const {
  if (node.group || node.outputs.size() != 1 || info(node.op).flags & kWritesInputs) return false;
  if (checked_operand(node) >= 0 && !checks_early(graph_, facts_, node)) return false;
  if (is_pointwise(node)) return true;
  return is_heavy(node) ? limits_.contractions : limits_.reductions;
}

/// The nodes that make again what `node` gives, before position `at`; false if that takes more than it saves.
bool Recomputer::collect(int node, int at, int64_t value_bytes, std::vector<int>& chain,
                         std::vector<int>& kept, int64_t& extended) const {
  if (std::find(chain.begin(), chain.end(), node) != chain.end()) return true;
  const Node& made = graph_.nodes[node];
  if (!may_repeat(made) || chain.size() >= limits_.nodes) return false;
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

std::vector<int> Recomputer::values() const {
  std::vector<int> result;
  for (int b = 0; b < static_cast<int>(facts_.size()); ++b)
    if (facts_[b].value && graph_.buffers[b].kind == GraphBuffer::Kind::Internal &&
        graph_.buffers[b].bytes >= kMinBytes && !facts_[b].readers.empty())
      result.push_back(b);
  std::stable_sort(result.begin(), result.end(), [this](int a, int b) {
    if (graph_.buffers[a].bytes != graph_.buffers[b].bytes)
      return graph_.buffers[a].bytes > graph_.buffers[b].bytes;
    return facts_[a].writers.front() > facts_[b].writers.front();
  });
  return result;
}

bool Recomputer::try_value(int buffer) {
  Hole hole;
  // Earlier trials may have made it dead.
  if (!facts_[buffer].value || facts_[buffer].readers.empty()) return false;
  if (pinned_[buffer] || !find_hole(buffer, &hole)) return false;
  std::vector<int> chain, kept;
  int64_t extended = 0;
  const int64_t bytes = graph_.buffers[buffer].bytes;
  if (!collect(facts_[buffer].writers.front(), hole.end, bytes, chain, kept, extended)) return false;
  if (extended * 4 > bytes) return false;
  std::sort(chain.begin(), chain.end());
  take(buffer, hole, chain, kept);
  return true;
}

Graph Recomputer::build() {
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
  return eliminate_dead_code(std::move(result));
}

Graph Recomputer::run() {
  for (int b : values()) try_value(b);
  return inserted_.empty() ? graph_ : build();
}

std::optional<Graph> Recomputer::run_one(int buffer) {
  if (!try_value(buffer)) return std::nullopt;
  return build();
}

/// Tries values one by one until no contraction has more than the budget alive.
Graph fit(Graph graph, int64_t budget) {
  const Limits levels[] = {{24, true, false, budget}, {32, true, true, budget}, {120, true, true, budget}};
  int64_t beyond = excess(graph, budget);
  for (const Limits& limits : levels) {
    size_t trials = 0;
    for (int b : Recomputer(graph, limits).values()) {
      if (beyond == 0) return graph;
      if (++trials > kMaxTrials) break;
      std::optional<Graph> trial = Recomputer(graph, limits).run_one(b);
      if (!trial) continue;
      const int64_t left = excess(*trial, budget);
      if (left >= beyond) continue;
      beyond = left;
      graph = *std::move(trial);
    }
  }
  return graph;
}

}  // namespace

Graph recompute(Graph graph, int64_t memory_budget) {
  const int64_t peak = contraction_peak(graph, live_bytes(graph));
  if (peak >= kMinBytes) {
    Graph next = Recomputer(graph, {.crowded = peak / 2}).run();
    if (contraction_peak(next, live_bytes(next)) < peak) graph = std::move(next);
  }
  return memory_budget > 0 ? fit(std::move(graph), memory_budget) : graph;
}

}  // namespace etch::jit
