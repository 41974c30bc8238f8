// Products and the row groups between them (attention: scores, softmax, weighted sum) become one tiled node,
// which computes them a block of rows at a time. What only they read exists only inside; a backward's tile
// reads the weights that the forward's stored, or computes them again.
#include <algorithm>
#include <map>
#include <optional>

#include "jit/graph_facts.h"
#include "jit/passes.h"
#include "jit/tile_plan.h"
#include "runtime/parallel.h"

namespace etch::jit {
namespace {

class Tiler {
 public:
  Tiler(Graph graph, int64_t memory_budget) : graph_(std::move(graph)), facts_(buffer_facts(graph_)) {
    const std::vector<int64_t> live = live_bytes(graph_);
    over_budget_ = memory_budget > 0 &&
                   std::any_of(live.begin(), live.end(), [&](int64_t b) { return b > memory_budget; });
  }

  Graph run() {
    const int count = static_cast<int>(graph_.nodes.size());
    tile_of_.assign(count, -1);
    for (int i = 0; i < count; ++i)
      if (graph_.nodes[i].op == Op::fused && tile_of_[i] < 0) visit(i);
    if (tiles_.empty()) return std::move(graph_);
    std::vector<Node> nodes;
    for (int i = 0; i < count; ++i) {
      if (tile_of_[i] < 0)
        nodes.push_back(std::move(graph_.nodes[i]));
      else if (Tile& tile = tiles_[tile_of_[i]]; tile.last == i)
        nodes.push_back(std::move(tile.node));
    }
    graph_.nodes = std::move(nodes);
    return std::move(graph_);
  }

 private:
  struct Tile {
    Node node;
    int last = -1;  ///< the place of its last member
  };

  /// Written once and read by nodes alone, so that it may be left unwritten, or written later.
  bool is_internal_value(int buffer) const {
    return facts_[buffer].value && graph_.buffers[buffer].kind == GraphBuffer::Kind::Internal;
  }
  /// The same at any time after it has been made.
  bool is_stable(int buffer) const {
    return facts_[buffer].value ||
           (graph_.buffers[buffer].kind == GraphBuffer::Kind::External && facts_[buffer].writers.empty());
  }

  /// The one buffer that the node makes, if it is a value; -1.
  int made_by(int node) const {
    const Node& n = graph_.nodes[node];
    return n.outputs.size() == 1 && facts_[n.outputs[0].buffer].value ? n.outputs[0].buffer : -1;
  }

  /// The products that nobody but the node reads.
  std::vector<int> products_into(int node) const {
    std::vector<int> products;
    for (const GraphOperand& input : graph_.nodes[node].inputs) {
      if (!input.is_tensor() || !is_internal_value(input.buffer)) continue;
      const BufferFacts& facts = facts_[input.buffer];
      const int writer = facts.writers[0];
      if (facts.readers.size() == 1 && graph_.nodes[writer].op == Op::matmul && tile_of_[writer] < 0)
        products.push_back(writer);
    }
    return products;
  }

  struct Readers {
    std::vector<int> by_rows, by_terms;  ///< products with the buffer on the left, and as its transpose
    std::vector<int> groups;
  };
  std::optional<Readers> readers_of(int buffer) const {
    Readers readers;
    for (int r : facts_[buffer].readers) {
      const Node& node = graph_.nodes[r];
      if (tile_of_[r] >= 0) return std::nullopt;
      if (node.op == Op::fused) {
        readers.groups.push_back(r);
      } else if (node.op == Op::matmul && node.inputs[0].buffer == buffer &&
                 node.inputs[1].buffer != buffer) {
        const Geometry& g = node.inputs[0].geometry;
        (g.strides[g.ndim() - 1] == 1 ? readers.by_rows : readers.by_terms).push_back(r);
      } else {
        return std::nullopt;
      }
    }
    return readers;
  }

  static void append(std::vector<int>& to, const std::vector<int>& from) {
    to.insert(to.end(), from.begin(), from.end());
  }

  void visit(int group) {
    const int made = made_by(group);
    std::vector<int> inner = products_into(group);
    if (made < 0 || inner.empty()) return;
    const std::optional<Readers> readers = readers_of(made);
    if (!readers || readers->groups.size() > 1) return;
    inner.push_back(group);
    Members forward{readers->by_rows, inner, {}}, backward{readers->by_terms, {}, inner};
    if (!readers->groups.empty()) {
      const int second = readers->groups[0], gradient = made_by(second);
      if (gradient < 0 || !is_internal_value(gradient)) return;
      const std::optional<Readers> uses = readers_of(gradient);
      if (!uses || !uses->groups.empty()) return;
      backward.inner = products_into(second);
      backward.inner.push_back(second);
      append(backward.outer, uses->by_rows);
      append(backward.outer, uses->by_terms);
    }
    const bool kept = graph_.buffers[made].kind != GraphBuffer::Kind::Internal;
    if (!kept && (forward.outer.empty() || backward.outer.empty())) {
      append(forward.outer, backward.outer);
      append(forward.inner, backward.inner);
      if (!forward.outer.empty()) add(forward);
      return;
    }
    if (!kept && computes_again(made)) {
      if (!add(forward) || add(backward)) return;
      // Without the second tile the first may not keep its values to itself.
      for (int& tile : tile_of_)
        if (tile + 1 == static_cast<int>(tiles_.size())) tile = -1;
      tiles_.pop_back();
    }
    forward.inner.pop_back();
    forward.outer.push_back(group);
    backward.again.clear();
    if (!readers->by_rows.empty()) add(forward);
    if (!backward.inner.empty()) add(backward);
  }

  /// Matrices from this size on are computed again for the backward. That takes about as long as to write
  /// them and to read them again from memory; smaller ones often stay in the outer caches.
  bool computes_again(int buffer) const {
    constexpr int64_t kLarge = 16 << 20;
    return graph_.buffers[buffer].bytes >= kLarge || over_budget_;
  }

  struct Members {
    std::vector<int> outer;  ///< what they make is stored
    std::vector<int> inner;  ///< what they make is only read inside
    std::vector<int> again;  ///< inner ones of another tile, computed here as well
  };

  /// Makes the members one node; false if they do not go together.
  bool add(const Members& members) {
    const std::map<int, Copied> copies = copied_results(members.outer);
    return (!copies.empty() && add(members, copies)) || add(members, {});
  }

  /// A product that only a copy in another order reads, as heads are brought together after attention: the
  /// tile stores it where the copy would have.
  struct Copied {
    int copy = -1;
    GraphOperand place;
  };
  std::map<int, Copied> copied_results(const std::vector<int>& nodes) const {
    std::map<int, Copied> copies;
    for (int n : nodes) {
      const GraphOperand& made = graph_.nodes[n].outputs[0];
      const std::vector<int>& readers = facts_[made.buffer].readers;
      if (graph_.nodes[n].op != Op::matmul || !is_internal_value(made.buffer) || readers.size() != 1)
        continue;
      const Node& copy = graph_.nodes[readers[0]];
      if (copy.op != Op::copy || tile_of_[readers[0]] >= 0) continue;
      if (const std::optional<GraphOperand> place = place_in(copy, made)) copies[n] = {readers[0], *place};
    }
    return copies;
  }

  /// The window of what the copy writes that has the elements of `made` in their order; none unless the copy
  /// is of all of them and moves them only.
  static std::optional<GraphOperand> place_in(const Node& copy, const GraphOperand& made) {
    const GraphOperand &from = copy.inputs[0], &to = copy.outputs[0];
    if (from.dtype != made.dtype || to.dtype != made.dtype || from.offset != 0 || from.slot >= 0 ||
        !(from.geometry.sizes == to.geometry.sizes) || from.geometry.numel() != made.geometry.numel() ||
        !(made.geometry == contiguous(made.geometry.sizes)))
      return std::nullopt;
    GraphOperand place = to;
    place.geometry = made.geometry;
    for (int d = 0; d < made.geometry.ndim(); ++d) {
      if (made.geometry.sizes[d] == 1) continue;
      int at = 0;
      while (at < from.geometry.ndim() && (from.geometry.sizes[at] != made.geometry.sizes[d] ||
                                           from.geometry.strides[at] != made.geometry.strides[d]))
        ++at;
      if (at == from.geometry.ndim()) return std::nullopt;
      place.geometry.strides[d] = to.geometry.strides[at];
    }
    return place;
  }

  bool add(const Members& members, const std::map<int, Copied>& copies) {
    std::vector<int> own = members.outer;
    append(own, members.inner);
    std::sort(own.begin(), own.end());
    const int last = own.back();
    std::map<int, int> renamed;
    for (int n : members.again) rename_written(graph_.nodes[n], renamed);
    std::vector<Node> body;
    std::vector<int> order = members.again;
    append(order, own);
    for (int n : order) {
      body.push_back(with_names(graph_.nodes[n], renamed));
      if (const auto copied = copies.find(n); copied != copies.end())
        body.back().outputs[0] = copied->second.place;
    }

    std::vector<bool> stored(graph_.buffers.size(), true);
    for (const auto& [from, to] : renamed) stored[to] = false;
    for (int n : members.inner) stored[graph_.nodes[n].outputs[0].buffer] = false;
    for (const Node& node : body) {
      for (const GraphOperand& input : node.inputs)
        if (input.is_tensor() && stored[input.buffer] && !is_stable(input.buffer)) return false;
      for (const GraphOperand& output : node.outputs) {
        if (!stored[output.buffer]) continue;
        const BufferFacts& facts = facts_[output.buffer];
        const auto early = [&](int r) { return r <= last && !std::binary_search(own.begin(), own.end(), r); };
        if (!facts.value || std::any_of(facts.readers.begin(), facts.readers.end(), early)) return false;
      }
    }
    Tile tile{make_group(Op::tiled, std::move(body), stored), last};
    const std::optional<TilePlan> plan = plan_tile(tile.node);
    if (!plan || !keeps_threads_busy(plan->batches)) return false;
    for (int n : own) tile_of_[n] = static_cast<int>(tiles_.size());
    for (const auto& [n, copied] : copies) tile_of_[copied.copy] = static_cast<int>(tiles_.size());
    tiles_.push_back(std::move(tile));
    return true;
  }

  /// A batch is one thread's: at least three quarters of the threads work on average.
  static bool keeps_threads_busy(int64_t batches) {
    const int64_t threads = num_threads(), rounds = (batches + threads - 1) / threads;
    return 4 * batches >= 3 * rounds * threads;
  }

  /// New buffers for all that the node and its group write.
  void rename_written(const Node& node, std::map<int, int>& renamed) {
    for (const GraphOperand& output : node.outputs)
      if (!renamed.count(output.buffer)) {
        renamed[output.buffer] =
            graph_.add_buffer(GraphBuffer::Kind::Internal, graph_.buffers[output.buffer].bytes);
        facts_.emplace_back();
      }
    if (node.group)
      for (const Node& inner : node.group->body) rename_written(inner, renamed);
  }

  static Node with_names(Node node, const std::map<int, int>& renamed) {
    for (auto* operands : {&node.inputs, &node.outputs})
      for (GraphOperand& operand : *operands)
        if (const auto found = renamed.find(operand.buffer); operand.is_tensor() && found != renamed.end())
          operand.buffer = found->second;
    if (node.group) {
      NodeGroup group;
      for (const Node& inner : node.group->body) group.body.push_back(with_names(inner, renamed));
      node.group = std::make_shared<const NodeGroup>(std::move(group));
    }
    return node;
  }

  Graph graph_;
  std::vector<BufferFacts> facts_;
  std::vector<int> tile_of_;  ///< by node; -1: none
  std::vector<Tile> tiles_;
  bool over_budget_ = false;
};

}  // namespace

Graph tile_products(Graph graph, int64_t memory_budget) {
  return Tiler(std::move(graph), memory_budget).run();
}

}  // namespace etch::jit
