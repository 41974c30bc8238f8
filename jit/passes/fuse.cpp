// Fusion: convex groups of pointwise, generator and reduction nodes, each one generated kernel.
//
// Nodes are taken in program order. A node joins the group of a producer, else the latest group that reads
// the same buffer over the same sizes, if codegen can lower the result and no path leaves the group and comes
// back; then the groups of its other producers are merged in. Paths run over all dependences, those through
// memory included, so a producer is never moved over a write to what it loads. A node does not join a group
// from before the latest contraction, as its result would live across, unless it is the only reader of what
// it takes or frees as many bytes there as it makes.
#include "jit/passes.h"

#include <algorithm>

#include "codegen/kernel.h"
#include "jit/graph_facts.h"

namespace etch::jit {
namespace {

constexpr size_t kMaxBody = 64;
constexpr size_t kMaxWindows = 48;
/// Stretches of this many nodes are fused apart: reachability takes a bit for each pair.
constexpr int kStretch = 4096;
constexpr int kMaxCandidates = 6;

void add_window(std::vector<GraphOperand>& windows, const GraphOperand& window) {
  for (const GraphOperand& other : windows)
    if (same_window(other, window)) return;
  windows.push_back(window);
}

/// Rows of bits: which clusters a cluster depends on, directly or not.
class Ancestors {
 public:
  explicit Ancestors(int count) : words_((count + 63) / 64), bits_(words_ * count) {}
  bool test(int row, int bit) const { return bits_[words_ * row + bit / 64] >> (bit % 64) & 1; }
  void set(int row, int bit) { bits_[words_ * row + bit / 64] |= uint64_t{1} << (bit % 64); }
  void clear(int row, int bit) { bits_[words_ * row + bit / 64] &= ~(uint64_t{1} << (bit % 64)); }
  void add_row(int row, int other) {
    for (size_t w = 0; w < words_; ++w) bits_[words_ * row + w] |= bits_[words_ * other + w];
  }

 private:
  size_t words_;
  std::vector<uint64_t> bits_;
};

class Fuser {
 public:
  Fuser(Graph& graph, const std::vector<BufferFacts>& facts, const Dependences& order, int first, int last);
  void run();
  /// The clusters as nodes, in an order that keeps all dependences.
  void emit(std::vector<Node>& nodes);

 private:
  struct Cluster {
    std::vector<int> members;
    std::vector<Node> body;
    bool fusable = false;
  };

  void place(int node);
  std::vector<int> candidates(int node, size_t* producers) const;
  bool is_near(int cluster, int node) const;
  bool may_run_early(int cluster, int node) const;
  bool joins(int node, int cluster);
  bool merges(int into, int from);
  bool comes_back(int from, int to) const;
  bool fits(const std::vector<Node>& body, const std::vector<int>& members) const;
  void absorb(int into, int from);
  Node make_node(Cluster& cluster) const;
  bool is_stored(int buffer, const std::vector<int>& members) const;
  int cluster_of(int node) const { return cluster_of_[node - first_]; }

  Graph& graph_;
  const std::vector<BufferFacts>& facts_;
  const Dependences& order_;
  const int first_, last_;
  std::vector<Cluster> clusters_;
  std::vector<int> cluster_of_;
  std::vector<int> heavy_before_;
  std::vector<int> latest_reader_;  // by buffer: a fusable cluster, or -1
  Ancestors ancestors_;
};

Fuser::Fuser(Graph& graph, const std::vector<BufferFacts>& facts, const Dependences& order, int first,
             int last)
    : graph_(graph),
      facts_(facts),
      order_(order),
      first_(first),
      last_(last),
      clusters_(last - first),
      cluster_of_(last - first),
      heavy_before_(last - first + 1),
      latest_reader_(graph.buffers.size(), -1),
      ancestors_(last - first) {
  for (int i = first; i < last; ++i)
    heavy_before_[i - first + 1] = heavy_before_[i - first] + is_heavy(graph.nodes[i]);
}

void Fuser::run() {
  for (int node = first_; node < last_; ++node) place(node);
}

bool Fuser::fits(const std::vector<Node>& body, const std::vector<int>& members) const {
  if (body.size() > kMaxBody) return false;
  std::vector<GraphOperand> windows;
  std::vector<int> made;
  for (const Node& node : body) {
    for (const GraphOperand& input : node.inputs)
      if (input.is_tensor() && std::find(made.begin(), made.end(), input.buffer) == made.end())
        add_window(windows, input);
    made.push_back(node.outputs[0].buffer);
  }
  size_t stores = 0;
  for (int b : made) stores += is_stored(b, members);
  return windows.size() + stores <= kMaxWindows && codegen::can_lower(body);
}

/// Nothing but cheap nodes runs between, or the node alone reads what the cluster makes for it.
bool Fuser::is_near(int cluster, int node) const {
  const int last = clusters_[cluster].members.back();
  if (heavy_before_[node - first_] == heavy_before_[last - first_]) return true;
  bool reads = false;
  for (const Node& inner : clusters_[cluster].body) {
    const int b = inner.outputs[0].buffer;
    const std::vector<int>& readers = facts_[b].readers;
    if (!std::binary_search(readers.begin(), readers.end(), node)) continue;
    if (graph_.buffers[b].kind != GraphBuffer::Kind::Internal || readers.size() != 1)
      return may_run_early(cluster, node);
    reads = true;
  }
  return reads || may_run_early(cluster, node);
}

/// All that the node needs is there where the cluster runs, and it takes no more bytes than it frees.
bool Fuser::may_run_early(int cluster, int node) const {
  const Node& op = graph_.nodes[node];
  if (!is_pointwise(op)) return false;
  const int heavies = heavy_before_[clusters_[cluster].members.back() - first_];
  for (int before : order_.before[node])
    if (before >= first_ && heavy_before_[before - first_ + 1] > heavies) return false;
  int64_t freed = 0;
  for (size_t i = 0; i < op.inputs.size(); ++i) {
    const GraphOperand& input = op.inputs[i];
    const bool again = std::any_of(op.inputs.begin(), op.inputs.begin() + static_cast<int64_t>(i),
                                   [&](const GraphOperand& other) { return other.buffer == input.buffer; });
    if (!input.is_tensor() || again) continue;
    const BufferFacts& facts = facts_[input.buffer];
    if (graph_.buffers[input.buffer].kind == GraphBuffer::Kind::Internal && facts.readers.back() == node)
      freed += graph_.buffers[input.buffer].bytes;
  }
  const GraphBuffer& made = graph_.buffers[op.outputs[0].buffer];
  return made.kind == GraphBuffer::Kind::Internal && facts_[op.outputs[0].buffer].value &&
         made.bytes <= freed;
}

/// Producers' clusters first, latest first; then clusters that read the same buffers.
std::vector<int> Fuser::candidates(int node, size_t* producers) const {
  std::vector<int> result;
  auto add = [&](int cluster) {
    if (clusters_[cluster].fusable && std::find(result.begin(), result.end(), cluster) == result.end() &&
        is_near(cluster, node))
      result.push_back(cluster);
  };
  for (const GraphOperand& input : graph_.nodes[node].inputs) {
    if (!input.is_tensor()) continue;
    const std::vector<int>& writers = facts_[input.buffer].writers;
    auto after = std::lower_bound(writers.begin(), writers.end(), node);
    if (after != writers.begin() && *--after >= first_) add(cluster_of(*after));
  }
  std::sort(result.begin(), result.end(),
            [this](int a, int b) { return clusters_[a].members.back() > clusters_[b].members.back(); });
  *producers = result.size();
  const size_t own = result.size();
  for (const GraphOperand& input : graph_.nodes[node].inputs) {
    if (!input.is_tensor() || latest_reader_[input.buffer] < 0) continue;
    const int reader = cluster_of_[latest_reader_[input.buffer]];
    // Reading the same small operand (a scale, a mask) is no reason to run together.
    if (input.geometry.numel() == graph_.nodes[node].outputs[0].geometry.numel() || own == 0)
      if (facts_[input.buffer].readers.size() < 64) add(reader);
  }
  return result;
}

bool Fuser::comes_back(int from, int to) const {
  for (int member : clusters_[to].members)
    for (int before : order_.before[member]) {
      if (before < first_) continue;
      const int cluster = cluster_of(before);
      if (cluster != from && cluster != to && ancestors_.test(cluster, from)) return true;
    }
  return false;
}

void Fuser::absorb(int into, int from) {
  ancestors_.add_row(into, from);
  ancestors_.clear(into, into);
  ancestors_.clear(into, from);
  Cluster& target = clusters_[into];
  for (int member : clusters_[from].members) cluster_of_[member - first_] = into;
  clusters_[from] = {};
  const int newest = target.members.back() - first_;
  for (int c = 0; c <= newest; ++c) {
    if (c == into || clusters_[c].members.empty()) continue;
    if (!ancestors_.test(c, into) && !ancestors_.test(c, from)) continue;
    ancestors_.add_row(c, into);
    ancestors_.set(c, into);
    ancestors_.clear(c, from);
  }
}

bool Fuser::joins(int node, int cluster) {
  const int own = node - first_;
  if (comes_back(cluster, own)) return false;
  Cluster& group = clusters_[cluster];
  group.members.push_back(node);
  group.body.push_back(std::move(clusters_[own].body[0]));
  if (!fits(group.body, group.members)) {
    clusters_[own].body[0] = std::move(group.body.back());
    group.body.pop_back();
    group.members.pop_back();
    return false;
  }
  absorb(cluster, own);
  return true;
}

bool Fuser::merges(int into, int from) {
  Cluster &a = clusters_[into], &b = clusters_[from];
  if (a.body.size() + b.body.size() > kMaxBody || comes_back(into, from) || comes_back(from, into))
    return false;
  std::vector<int> members(a.members.size() + b.members.size());
  std::merge(a.members.begin(), a.members.end(), b.members.begin(), b.members.end(), members.begin());
  std::vector<Node> body;
  for (size_t i = 0, j = 0; i + j < members.size();) {
    const bool first = i < a.members.size() && members[i + j] == a.members[i];
    body.push_back(first ? a.body[i] : b.body[j]);
    ++(first ? i : j);
  }
  if (!fits(body, members)) return false;
  a.body = std::move(body);
  a.members = std::move(members);
  absorb(into, from);
  return true;
}

void Fuser::place(int node) {
  const int own = node - first_;
  Cluster& cluster = clusters_[own];
  cluster_of_[own] = own;
  cluster.members = {node};
  for (int before : order_.before[node])
    if (before >= first_) {
      ancestors_.add_row(own, cluster_of(before));
      ancestors_.set(own, cluster_of(before));
    }
  const Node& op = graph_.nodes[node];
  cluster.fusable = op.op != Op::fused && (is_pointwise(op) || info(op.op).kind == OpKind::Reduction) &&
                    codegen::can_lower({op});
  cluster.body.push_back(op);
  if (!cluster.fusable) return;

  size_t producers = 0;
  const std::vector<int> near = candidates(node, &producers);
  int home = own;
  for (size_t i = 0; i < near.size() && i < kMaxCandidates; ++i) {
    if (home == own) {
      if (joins(node, near[i])) home = near[i];
    } else if (i < producers && near[i] != home && clusters_[near[i]].fusable) {
      merges(home, near[i]);
    }
  }
  for (const GraphOperand& input : op.inputs)
    if (input.is_tensor()) latest_reader_[input.buffer] = own;
}

void Fuser::emit(std::vector<Node>& nodes) {
  // Each cluster at the place of its last member, or before the first cluster that needs it.
  const int count = static_cast<int>(clusters_.size());
  std::vector<std::vector<int>> before(count);
  std::vector<int> turn;
  for (int c = 0; c < count; ++c) {
    if (clusters_[c].members.empty()) continue;
    turn.push_back(c);
    for (int member : clusters_[c].members)
      for (int b : order_.before[member])
        if (b >= first_ && cluster_of(b) != c) before[c].push_back(cluster_of(b));
    std::sort(before[c].begin(), before[c].end(),
              [this](int x, int y) { return clusters_[x].members.back() > clusters_[y].members.back(); });
  }
  std::sort(turn.begin(), turn.end(),
            [this](int x, int y) { return clusters_[x].members.back() < clusters_[y].members.back(); });
  std::vector<bool> done(count, false);
  std::vector<int> stack;
  for (int next : turn) {
    stack.push_back(next);
    while (!stack.empty()) {
      const int c = stack.back();
      if (!done[c] && !before[c].empty()) {
        const int b = before[c].back();
        before[c].pop_back();
        if (!done[b]) stack.push_back(b);
        continue;
      }
      stack.pop_back();
      if (done[c]) continue;
      done[c] = true;
      nodes.push_back(make_node(clusters_[c]));
    }
  }
}

Node Fuser::make_node(Cluster& cluster) const {
  if (cluster.body.size() == 1) return std::move(cluster.body[0]);
  std::vector<bool> stored(graph_.buffers.size(), false);
  for (const Node& inner : cluster.body)
    for (const GraphOperand& out : inner.outputs) stored[out.buffer] = is_stored(out.buffer, cluster.members);
  return make_group(Op::fused, std::move(cluster.body), stored);
}

/// Someone outside the members reads the buffer, or it is more than a value of theirs.
bool Fuser::is_stored(int buffer, const std::vector<int>& members) const {
  const BufferFacts& f = facts_[buffer];
  return graph_.buffers[buffer].kind != GraphBuffer::Kind::Internal || !f.value ||
         !std::all_of(f.readers.begin(), f.readers.end(),
                      [&](int r) { return std::binary_search(members.begin(), members.end(), r); });
}

void append_body(const NodeGroup& group, std::vector<Node>& nodes) {
  for (const Node& node : group.body)
    if (node.group)
      append_body(*node.group, nodes);
    else
      nodes.push_back(node);
}

}  // namespace

Node make_group(Op op, std::vector<Node> body, const std::vector<bool>& stored) {
  Node fused;
  fused.op = op;
  std::vector<GraphOperand> written;
  for (const Node& node : body) {
    for (const GraphOperand& input : node.inputs) {
      if (input.is_scalar()) fused.inputs.push_back(input);
      if (!input.is_tensor()) continue;
      // A value made inside is not loaded; of other buffers a window is, unless it was just written.
      bool inside = false;
      for (const GraphOperand& w : written)
        inside = inside || (w.buffer == input.buffer &&
                            (!stored[w.buffer] || (w.slot < 0 && input.slot < 0) || same_window(w, input)));
      if (!inside) add_window(fused.inputs, input);
    }
    for (const GraphOperand& output : node.outputs) {
      add_window(written, output);
      if (stored[output.buffer]) add_window(fused.outputs, output);
    }
  }
  fused.group = std::make_shared<const NodeGroup>(NodeGroup{std::move(body)});
  return fused;
}

Graph split_groups(Graph graph, const std::vector<bool>& pick) {
  std::vector<Node> nodes;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    Node& node = graph.nodes[i];
    if (node.group && pick[i])
      append_body(*node.group, nodes);
    else
      nodes.push_back(std::move(node));
  }
  graph.nodes = std::move(nodes);
  return graph;
}

Graph fuse(Graph graph) {
  const std::vector<BufferFacts> facts = buffer_facts(graph);
  const Dependences order = dependences(graph, facts);
  std::vector<Node> nodes;
  const int count = static_cast<int>(graph.nodes.size());
  for (int first = 0; first < count; first += kStretch) {
    Fuser fuser(graph, facts, order, first, std::min(count, first + kStretch));
    fuser.run();
    fuser.emit(nodes);
  }
  graph.nodes = std::move(nodes);
  return graph;
}

}  // namespace etch::jit
