// Sums of pieces: what fills a buffer, writes a run of it and adds it to others becomes one node that reads
// the runs alone (jit/piece_sum.h), with the copy that is all the sum is for.
#include <algorithm>

#include "jit/graph_facts.h"
#include "jit/passes.h"
#include "jit/piece_sum.h"

namespace etch::jit {
namespace {

/// Smaller sums are better off fused with what is around them.
constexpr int64_t kMinBytes = 1 << 16;

class Gatherer {
 public:
  explicit Gatherer(Graph& graph)
      : graph_(graph), facts_(buffer_facts(graph)), chain_(graph.nodes.size()), gone_(graph.nodes.size()) {}

  void run() {
    const int count = static_cast<int>(graph_.nodes.size());
    for (int i = 0; i < count; ++i)
      if (graph_.nodes[i].op == Op::add) extend(i);
    // The longest chains: those that no other took over.
    std::vector<Node> sums(count);
    for (int i = count; i-- > 0;)
      if (!gone_[i] && !chain_[i].empty()) {
        sums[i] = gather(i);
        gone_[i] = false;
      }
    std::vector<Node> nodes;
    for (int i = 0; i < count; ++i)
      if (!gone_[i]) nodes.push_back(std::move(chain_[i].empty() ? graph_.nodes[i] : sums[i]));
    graph_.nodes = std::move(nodes);
  }

 private:
  /// The nodes that make a piece for `reader` alone: a fill and a copy.
  std::vector<int> piece_for(int buffer, int reader) const {
    const BufferFacts& f = facts_[buffer];
    if (graph_.buffers[buffer].kind != GraphBuffer::Kind::Internal || f.writers.size() != 2 ||
        f.readers != std::vector<int>{reader} || f.writers[1] > reader)
      return {};
    for (int w : f.writers)
      if (graph_.nodes[w].op != Op::copy) return {};
    return f.writers;
  }

  void extend(int add) {
    const Node& node = graph_.nodes[add];
    if (graph_.buffers[node.outputs[0].buffer].bytes < kMinBytes) return;
    std::vector<int> chain;
    for (const GraphOperand& input : node.inputs) {
      if (!input.is_tensor()) return;
      const BufferFacts& f = facts_[input.buffer];
      if (const std::vector<int> piece = piece_for(input.buffer, add); !piece.empty()) {
        chain.insert(chain.end(), piece.begin(), piece.end());
      } else if (f.value && graph_.buffers[input.buffer].kind == GraphBuffer::Kind::Internal &&
                 f.readers == std::vector<int>{add} && !chain_[f.writers.front()].empty()) {
        const std::vector<int>& before = chain_[f.writers.front()];
        chain.insert(chain.end(), before.begin(), before.end());
      }
    }
    if (chain.empty()) return;
    chain.push_back(add);
    std::sort(chain.begin(), chain.end());
    if (stays(chain, add)) chain_[add] = std::move(chain);
  }

  /// What the chain loads still holds where its last node runs, and the chain is a sum of pieces.
  bool stays(const std::vector<int>& chain, int last) const {
    for (int i : chain)
      for (const GraphOperand& input : graph_.nodes[i].inputs) {
        if (!input.is_tensor()) continue;
        const std::vector<int>& writers = facts_[input.buffer].writers;
        for (auto w = std::upper_bound(writers.begin(), writers.end(), i); w != writers.end() && *w < last;
             ++w)
          return false;
      }
    return as_piece_sum(fuse(chain, last)).has_value();
  }

  Node fuse(const std::vector<int>& chain, int last) const {
    std::vector<bool> stored(graph_.buffers.size(), false);
    stored[graph_.nodes[last].outputs[0].buffer] = true;
    std::vector<Node> body;
    for (int i : chain) body.push_back(graph_.nodes[i]);
    return make_group(Op::fused, std::move(body), stored);
  }

  /// The only use of the sum, if it is a copy to a value of its own.
  int copy_of(int last) const {
    const int buffer = graph_.nodes[last].outputs[0].buffer;
    const BufferFacts& f = facts_[buffer];
    if (graph_.buffers[buffer].kind != GraphBuffer::Kind::Internal || !f.value || f.readers.size() != 1)
      return -1;
    const int reader = f.readers.front();
    const Node& copy = graph_.nodes[reader];
    if (copy.op != Op::copy) return -1;
    const int target = copy.outputs[0].buffer;
    return graph_.buffers[target].kind == GraphBuffer::Kind::Internal && facts_[target].value ? reader : -1;
  }

  Node gather(int last) {
    std::vector<int> chain = chain_[last];
    for (int i : chain) gone_[i] = true;
    if (const int copy = copy_of(last); copy >= 0) {
      chain.push_back(copy);
      if (Node node = fuse(chain, copy); as_piece_sum(node)) {
        gone_[copy] = true;
        return node;
      }
      chain.pop_back();
    }
    return fuse(chain, last);
  }

  Graph& graph_;
  std::vector<BufferFacts> facts_;
  std::vector<std::vector<int>> chain_;  ///< that ends with the node
  std::vector<bool> gone_;
};

}  // namespace

Graph gather_pieces(Graph graph) {
  Gatherer(graph).run();
  return graph;
}

}  // namespace etch::jit
