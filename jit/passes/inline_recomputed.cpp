// Values that one group would store only for other groups to load, made again inside those from what they can
// load at no more cost.
//
// A value qualifies if every reader outside its group is a group, the pointwise nodes of the chain behind it
// end in windows that no node writes in between, and those windows weigh no more than the value or are loaded
// by the reader anyway. What has to live longer for it weighs no more than the value, which goes. Costly
// functions are repeated only to free memory across a contraction.
// merge_common() must not run after it.
#include <algorithm>
#include <string_view>

#include "codegen/kernel.h"
#include "jit/graph_facts.h"
#include "jit/passes.h"
#include "jit/piece_sum.h"

namespace etch::jit {
namespace {

constexpr int64_t kMinBytes = 4096;
constexpr size_t kMaxChain = 8;
constexpr size_t kMaxBody = 80;
constexpr int64_t kSmallShare = 16;

bool is_costly(Op op) {
  const std::string_view text = info(op).expression ? info(op).expression : "";
  for (std::string_view call :
       {"exp", "log", "tanh", "erf", "pow", "sin", "cos", "sigmoid", "normal", "random"})
    if (text.find(call) != std::string_view::npos) return true;
  return false;
}

class Inliner {
 public:
  explicit Inliner(Graph& graph) : graph_(graph), facts_(buffer_facts(graph)) {
    heavy_before_.push_back(0);
    for (const Node& node : graph.nodes) heavy_before_.push_back(heavy_before_.back() + is_heavy(node));
  }
  void run() {
    for (int at = 0; at < static_cast<int>(graph_.nodes.size()); ++at)
      if (graph_.nodes[at].op == Op::fused && !as_piece_sum(graph_.nodes[at])) visit(at);
    remove_empty();
  }

 private:
  struct Chain {
    std::vector<int> nodes;  ///< positions in the body
    std::vector<GraphOperand> leaves;
    bool costly = false;
  };

  void visit(int at);
  bool find_chain(const Node& fused, int buffer, Chain* chain) const;
  bool extend(const Node& fused, int buffer, int64_t bytes, Chain* chain) const;
  bool available(const Chain& chain, int from, int to, int64_t bytes, int64_t spend) const;
  bool rebuild(int reader, int from, int buffer, const Chain& chain, Node* result);
  bool inline_everywhere(int at, int buffer, const std::vector<int>& readers, const Chain& chain);
  void inline_where_free(int at, int buffer, const std::vector<int>& readers, const Chain& chain);
  void replace(int reader, int buffer, const Chain& chain, Node node);
  void shrink(int at, const std::vector<bool>& dropped);
  void remove_empty();

  Graph& graph_;
  std::vector<BufferFacts> facts_;
  std::vector<int> heavy_before_;
};

bool Inliner::extend(const Node& fused, int buffer, int64_t bytes, Chain* chain) const {
  const std::vector<Node>& body = fused.group->body;
  int made = -1;
  for (int i = 0; i < static_cast<int>(body.size()); ++i)
    if (body[i].outputs[0].buffer == buffer) made = i;
  if (made < 0 || !is_pointwise(body[made])) return false;
  if (std::find(chain->nodes.begin(), chain->nodes.end(), made) != chain->nodes.end()) return true;
  if (chain->nodes.size() >= kMaxChain) return false;
  chain->nodes.push_back(made);
  chain->costly = chain->costly || is_costly(body[made].op);
  for (const GraphOperand& input : body[made].inputs) {
    if (!input.is_tensor()) continue;
    // Memory that the group also writes is not made by it: whether it still holds is for available() to say.
    // What lives inside a group has no writers among the nodes.
    const BufferFacts& facts = facts_[input.buffer];
    const bool outside = (!facts.value && !facts.writers.empty()) ||
                         std::none_of(body.begin(), body.end(), [&](const Node& node) {
                           return node.outputs[0].buffer == input.buffer;
                         });
    const bool stored = std::any_of(fused.outputs.begin(), fused.outputs.end(),
                                    [&](const GraphOperand& o) { return o.buffer == input.buffer; });
    if (outside || (stored && graph_.buffers[input.buffer].bytes * kSmallShare <= bytes))
      chain->leaves.push_back(input);
    else if (!extend(fused, input.buffer, bytes, chain))
      return false;
  }
  return true;
}

bool Inliner::find_chain(const Node& fused, int buffer, Chain* chain) const {
  if (!extend(fused, buffer, graph_.buffers[buffer].bytes, chain)) return false;
  std::sort(chain->nodes.begin(), chain->nodes.end());
  return true;
}

/// The leaves still hold at `to` what they held at `from`. Of those that are large next to the value's bytes,
/// loading takes no more than `spend` more, and so do those that have to live longer for it.
bool Inliner::available(const Chain& chain, int from, int to, int64_t bytes, int64_t spend) const {
  int64_t loads = 0, extended = 0;
  std::vector<int> counted;
  for (const GraphOperand& leaf : chain.leaves) {
    const BufferFacts& f = facts_[leaf.buffer];
    const GraphBuffer& buffer = graph_.buffers[leaf.buffer];
    const int64_t weight = buffer.bytes * kSmallShare > bytes ? buffer.bytes : 0;
    bool lives = true;
    if (buffer.kind == GraphBuffer::Kind::External) {
      auto write = std::lower_bound(f.writers.begin(), f.writers.end(), from);
      if (write != f.writers.end() && *write < to) return false;
    } else {
      if (!f.value) return false;
      lives = buffer.kind == GraphBuffer::Kind::Output || f.readers.back() >= to;
    }
    const bool loaded = std::any_of(graph_.nodes[to].inputs.begin(), graph_.nodes[to].inputs.end(),
                                    [&](const GraphOperand& input) { return same_window(input, leaf); });
    if (std::find(counted.begin(), counted.end(), leaf.buffer) != counted.end()) continue;
    counted.push_back(leaf.buffer);
    if (!loaded) loads += weight;
    if (!lives) extended += weight;
  }
  return loads <= spend && extended <= spend;
}

/// The reader's group with the chain in front; buffers of the chain become copies private to it.
bool Inliner::rebuild(int reader, int from, int buffer, const Chain& chain, Node* result) {
  const std::vector<Node>& source = graph_.nodes[from].group->body;
  const Node& old = graph_.nodes[reader];
  std::vector<Node> body;
  std::vector<std::pair<int, int>> copies;
  auto rename = [&](GraphOperand& operand) {
    for (auto [original, copy] : copies)
      if (operand.is_tensor() && operand.buffer == original) operand.buffer = copy;
  };
  for (int i : chain.nodes) {
    Node node = source[i];
    for (GraphOperand& input : node.inputs) rename(input);
    const int made = node.outputs[0].buffer;
    node.outputs[0].buffer = graph_.add_buffer(GraphBuffer::Kind::Internal, graph_.buffers[made].bytes);
    facts_.emplace_back().value = true;
    copies.emplace_back(made, node.outputs[0].buffer);
    body.push_back(std::move(node));
  }
  copies.erase(std::remove_if(copies.begin(), copies.end(), [&](auto& c) { return c.first != buffer; }),
               copies.end());
  for (Node node : old.group->body) {
    for (GraphOperand& input : node.inputs) rename(input);
    body.push_back(std::move(node));
  }
  if (body.size() > kMaxBody || !codegen::can_lower(body)) return false;
  std::vector<bool> stored(graph_.buffers.size(), false);
  for (const GraphOperand& output : old.outputs) stored[output.buffer] = true;
  *result = make_group(Op::fused, std::move(body), stored);
  return true;
}

void Inliner::replace(int reader, int buffer, const Chain& chain, Node node) {
  graph_.nodes[reader] = std::move(node);
  std::vector<int>& readers = facts_[buffer].readers;
  readers.erase(std::find(readers.begin(), readers.end(), reader));
  for (const GraphOperand& leaf : chain.leaves) {
    std::vector<int>& list = facts_[leaf.buffer].readers;
    auto at = std::lower_bound(list.begin(), list.end(), reader);
    if (at == list.end() || *at != reader) list.insert(at, reader);
  }
}

void Inliner::visit(int at) {
  std::vector<bool> dropped(graph_.buffers.size(), false);
  bool any = false;
  // The latest values first: what they were made from is then free to go as well.
  const std::vector<GraphOperand> outputs = graph_.nodes[at].outputs;
  for (size_t o = outputs.size(); o-- > 0;) {
    const int buffer = outputs[o].buffer;
    const int64_t bytes = graph_.buffers[buffer].bytes;
    if (graph_.buffers[buffer].kind != GraphBuffer::Kind::Internal || !facts_[buffer].value ||
        bytes < kMinBytes)
      continue;
    std::vector<int> readers;
    bool groups = true;
    for (int r : facts_[buffer].readers) {
      if (r == at) continue;
      groups = groups && graph_.nodes[r].op == Op::fused;
      if (graph_.nodes[r].op == Op::fused) readers.push_back(r);
    }
    Chain chain;
    if (readers.empty() || readers.size() > 4 || !find_chain(graph_.nodes[at], buffer, &chain)) continue;
    if (chain.costly && (!groups || heavy_before_[readers.front()] == heavy_before_[at])) continue;
    if (groups && inline_everywhere(at, buffer, readers, chain))
      dropped[buffer] = any = true;
    else if (!chain.costly)
      inline_where_free(at, buffer, readers, chain);
  }
  if (any) shrink(at, dropped);
}

bool Inliner::inline_everywhere(int at, int buffer, const std::vector<int>& readers, const Chain& chain) {
  const int64_t bytes = graph_.buffers[buffer].bytes;
  std::vector<Node> rebuilt(readers.size());
  for (size_t i = 0; i < readers.size(); ++i)
    if (!available(chain, at, readers[i], bytes, bytes) ||
        !rebuild(readers[i], at, buffer, chain, &rebuilt[i]))
      return false;
  for (size_t i = 0; i < readers.size(); ++i) replace(readers[i], buffer, chain, std::move(rebuilt[i]));
  return true;
}

void Inliner::inline_where_free(int at, int buffer, const std::vector<int>& readers, const Chain& chain) {
  Node rebuilt;
  for (int reader : readers)
    if (available(chain, at, reader, graph_.buffers[buffer].bytes, 0) &&
        rebuild(reader, at, buffer, chain, &rebuilt))
      replace(reader, buffer, chain, std::move(rebuilt));
}

/// The group without the stores in `dropped`, and without nodes that only they needed.
void Inliner::shrink(int at, const std::vector<bool>& dropped) {
  const Node& old = graph_.nodes[at];
  std::vector<bool> stored(graph_.buffers.size(), false);
  for (const GraphOperand& output : old.outputs)
    stored[output.buffer] = static_cast<size_t>(output.buffer) >= dropped.size() || !dropped[output.buffer];
  std::vector<bool> needed = stored;
  std::vector<Node> body;
  for (size_t i = old.group->body.size(); i-- > 0;) {
    const Node& node = old.group->body[i];
    if (!needed[node.outputs[0].buffer]) continue;
    for (const GraphOperand& input : node.inputs)
      if (input.is_tensor()) needed[input.buffer] = true;
    body.push_back(node);
  }
  std::reverse(body.begin(), body.end());
  Node next;
  if (body.size() == 1)
    next = body[0];
  else if (!body.empty())
    next = make_group(Op::fused, std::move(body), stored);
  // Windows that only dropped nodes loaded have a reader less.
  for (const GraphOperand& input : old.inputs) {
    if (!input.is_tensor()) continue;
    const bool kept = std::any_of(next.inputs.begin(), next.inputs.end(), [&](const GraphOperand& other) {
      return other.is_tensor() && other.buffer == input.buffer;
    });
    std::vector<int>& list = facts_[input.buffer].readers;
    auto found = std::find(list.begin(), list.end(), at);
    if (!kept && found != list.end()) list.erase(found);
  }
  graph_.nodes[at] = std::move(next);
}

void Inliner::remove_empty() {
  auto& nodes = graph_.nodes;
  nodes.erase(
      std::remove_if(nodes.begin(), nodes.end(), [](const Node& node) { return node.outputs.empty(); }),
      nodes.end());
}

}  // namespace

Graph inline_recomputed(Graph graph) {
  Inliner(graph).run();
  return graph;
}

}  // namespace etch::jit
