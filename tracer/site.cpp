// Insertion into a site's trie, and the words that explain its paths.
#include "tracer/site.h"

#include <algorithm>
#include <cstring>

#include "runtime/config.h"
#include "tracer/background.h"

namespace etch {

std::string_view describe(FlushReason reason) {
  switch (reason) {
    case FlushReason::EndOfBody:
      return "end of the body";
    case FlushReason::HostRead:
      return "the host read a value";
    case FlushReason::HostWrite:
      return "the host wrote to a tensor in use";
    case FlushReason::Explicit:
      return "etch::flush()";
    case FlushReason::Limit:
      break;
  }
  return "the stream grew too long";
}

PathNode* PathNode::find(const std::vector<uint64_t>& words) const {
  const size_t bytes = words.size() * sizeof(uint64_t);
  for (PathNode* child = first_child.load(std::memory_order_acquire); child;
       child = child->next_sibling.load(std::memory_order_acquire)) {
    if (child->key.size() == words.size() && std::memcmp(child->key.data(), words.data(), bytes) == 0)
      return child;
  }
  return nullptr;
}

Site::Site(SiteOptions options) : options_(std::move(options)) {}
Site::~Site() {
  if (options_.background) cancel_background(&options_);
}

PathNode* Site::insert(PathNode* parent, const std::vector<uint64_t>& key, const RecordedOp& op,
                       std::vector<RecordedStorage> new_storages) {
  std::lock_guard lock(mutex_);
  if (PathNode* found = parent->find(key)) return found;
  auto& node = nodes_.emplace_back(std::make_unique<PathNode>());
  node->op = op;
  node->key = key;
  node->parent = parent;
  node->depth = parent->depth + 1;
  node->new_storages = std::move(new_storages);
  // Siblings are appended, so that the oldest path is the first to be compared.
  std::atomic<PathNode*>* link = &parent->first_child;
  while (PathNode* sibling = link->load(std::memory_order_relaxed)) link = &sibling->next_sibling;
  link->store(node.get(), std::memory_order_release);
  return node.get();
}

void Site::give_up(const std::string& why) {
  if (gave_up_.exchange(true, std::memory_order_relaxed)) return;
  log(1, concat({options_.name, ": ", why,
                 "; runs eagerly from now on. explain() tells what differed between its paths"}));
}

PathEnd* Site::end_at(PathNode* node, FlushReason reason, SourceLocation where) {
  if (PathEnd* end = node->end.load(std::memory_order_acquire)) return end;
  std::lock_guard lock(mutex_);
  if (PathEnd* end = node->end.load(std::memory_order_relaxed)) return end;
  if (gave_up()) return nullptr;
  if (static_cast<int>(ends_.size()) >= options_.max_paths) {
    give_up(concat({"more than ", options_.max_paths, " paths"}));
    return nullptr;
  }
  auto& end = ends_.emplace_back(std::make_unique<PathEnd>());
  end->node = node;
  end->reason = reason;
  end->where = where;
  end->path = std::make_unique<Path>(path_to(node));
  if (ends_.size() > 1) end->diverged = describe_divergence(node);
  node->end.store(end.get(), std::memory_order_release);
  return end.get();
}

// Streams that exceptions end are no paths, or a few bad calls would use up the limit; but they grow the
// trie.
PathEnd* Site::abandoned_at(PathNode* node) {
  PathEnd* end = node->end.load(std::memory_order_acquire);
  if (!end && !gave_up() && abandoned_.fetch_add(1, std::memory_order_relaxed) + 1 >= 64 * options_.max_paths)
    give_up(concat({64 * options_.max_paths, " calls that threw"}));
  return end;
}

std::vector<PathEnd*> Site::ends() const {
  std::lock_guard lock(mutex_);
  std::vector<PathEnd*> ends;
  for (const auto& end : ends_) ends.push_back(end.get());
  return ends;
}

Path path_to(const PathNode* node) {
  std::vector<const PathNode*> chain;
  for (const PathNode* at = node; at->parent; at = at->parent) chain.push_back(at);
  std::reverse(chain.begin(), chain.end());
  Path path;
  for (const PathNode* at : chain) {
    path.ops.push_back(&at->op);
    path.storages.insert(path.storages.end(), at->new_storages.begin(), at->new_storages.end());
  }
  return path;
}

namespace {

std::string describe_operand(const RecordedOperand& operand) {
  switch (operand.kind) {
    case RecordedOperand::Kind::Absent:
      return "nothing";
    case RecordedOperand::Kind::Scalar:
      return operand.scalar_kind == Scalar::Kind::Float ? "a floating scalar"
             : operand.scalar_kind == Scalar::Kind::Int ? "an integer scalar"
                                                        : "a bool scalar";
    case RecordedOperand::Kind::Tensor:
      break;
  }
  return concat({name(operand.dtype), to_string(operand.geometry.sizes), " of storage %", operand.number});
}

// The first difference between two ops that follow the same prefix.
std::string describe_difference(const RecordedOp& before, const RecordedOp& now) {
  if (before.op != now.op) return concat({"op ", name(before.op), " before, ", name(now.op), " now"});
  if (before.attrs != now.attrs) return concat({name(now.op), ": other attributes"});
  const auto compare = [&](const char* role, const auto& olds, const auto& news) -> std::string {
    for (size_t i = 0; i < std::min(olds.size(), news.size()); ++i) {
      const RecordedOperand& a = olds[i];
      const RecordedOperand& b = news[i];
      if (describe_operand(a) != describe_operand(b))
        return concat({name(now.op), ", ", role, " ", static_cast<int>(i), ": ", describe_operand(a),
                       " before, ", describe_operand(b), " now"});
      if (a.kind == RecordedOperand::Kind::Tensor && a.geometry.strides != b.geometry.strides)
        return concat({name(now.op), ", ", role, " ", static_cast<int>(i), ": strides ",
                       to_string(a.geometry.strides), " before, ", to_string(b.geometry.strides), " now"});
    }
    return "";
  };
  std::string text = compare("input", before.inputs, now.inputs);
  if (text.empty()) text = compare("output", before.outputs, now.outputs);
  return text.empty() ? concat({name(now.op), ": storages of other sizes, or another number of threads"})
                      : text;
}

}  // namespace

std::string describe_divergence(const PathNode* node) {
  if (node->first_child.load(std::memory_order_acquire))
    return concat({"ended after op ", node->depth - 1, ", where an earlier path went on"});
  for (const PathNode* at = node; at->parent; at = at->parent) {
    const PathNode* oldest = at->parent->first_child.load(std::memory_order_acquire);
    if (oldest != at) return concat({"op ", at->depth - 1, ": ", describe_difference(oldest->op, at->op)});
    if (at->parent->parent && at->parent->end.load(std::memory_order_acquire))
      return concat(
          {"went on with op ", at->depth - 1, " (", name(at->op.op), "), where an earlier path ended"});
  }
  return "";
}

}  // namespace etch
