// The backward pass: nodes run when all gradients that can reach them have, without recursion.
#include <absl/cleanup/cleanup.h>
#include <absl/container/flat_hash_map.h>

#include <algorithm>

#include "eager/accumulation.h"
#include "eager/apply.h"
#include "eager/tape.h"
#include "tracer/recorder.h"

namespace etch {

namespace {

struct NodeState {
  int missing = 0;  // edges into the node that have not delivered yet
  absl::InlinedVector<Tensor, 2> gradients;
};

struct LeafState {
  int missing = 0;  // edges to the leaf that have not delivered yet
  Tensor gradient;
};

// Nobody else holds these bytes, so they may be taken over or added to. A recorder's own reference does not
// count.
bool is_unshared(const Tensor& tensor) {
  const Storage& storage = tensor.storage();
  const uint32_t recorder = Recorder::active() && !storage.has_bytes() ? 1 : 0;
  return tensor.ref()->use_count() == 1 && storage.use_count() == 1 + recorder && !storage.is_foreign();
}

Tensor add_gradients(Tensor sum, const Tensor& more) {
  if (!grad_enabled() && is_unshared(sum) && sum.sizes() == more.sizes() && is_dense(sum.impl().geometry)) {
    sum.add_(more);
    return sum;
  }
  return sum + more;
}

thread_local int running_hooks = 0;

// What the hook returns takes the gradient's place, in its sizes and dtype.
void run_hook(const Hook& hook, Tensor& gradient) {
  ++running_hooks;
  const absl::Cleanup leave = [] { --running_hooks; };
  Tensor replaced = hook(gradient);
  if (!replaced.defined()) return;
  ETCH_CHECK(replaced.sizes() == gradient.sizes(), ShapeError, "hook: expected a gradient of sizes ",
             etch::to_string(gradient.sizes()), ", got ", etch::to_string(replaced.sizes()),
             "; return one like the hook's argument, or Tensor() to leave it as it is");
  gradient = replaced.to(gradient.dtype());
}

// A freed node's hooks cannot run again. One that holds its own tensor, and so its node, would keep both for
// ever. A hook may run a backward of its own through its node: what still executes stays.
void release_node(TapeNode& node) {
  node.release();
  node.released = true;
  if (running_hooks == 0) std::exchange(node.hooks, {}).clear();
}

thread_local GradientWatch* innermost_watch = nullptr;

void accumulate_leaf(TensorImpl& leaf, Tensor gradient) {
  if (!leaf.autograd) leaf.autograd = std::make_unique<AutogradMeta>();
  for (const Hook& hook : leaf.autograd->leaf_hooks) run_hook(hook, gradient);
  if (!leaf.autograd) leaf.autograd = std::make_unique<AutogradMeta>();
  GradientWatch::note(leaf);
  Tensor& grad = leaf.autograd->grad;
  if (grad.defined()) {
    if (grad_enabled() || grad.impl().autograd) {
      grad = grad + gradient;
    } else {
      grad.add_(gradient);
    }
    return;
  }
  // The leaf's gradient must not alias what others hold: a later add_ would write it.
  if (!grad_enabled() && (!is_unshared(gradient) || !is_dense(gradient.impl().geometry)))
    gradient = gradient.clone();
  if (gradient.storage().category() == MemoryCategory::Temporary)
    gradient.storage().set_category(MemoryCategory::Gradient);
  grad = std::move(gradient);
}

class Engine {
 public:
  explicit Engine(BackwardOptions options) : keep_(options.retain_graph || options.create_graph) {}

  void run(Edge root, Tensor gradient) {
    if (root.leaf) {
      accumulate_leaf(*root.leaf, std::move(gradient));
      return;
    }
    count_edges(root.node);
    states_[root.node.get()].missing = 0;
    deposit(root, std::move(gradient));
    ready_.push_back(root.node);
    while (!ready_.empty()) {
      const Ref<TapeNode> node = std::move(ready_.back());
      ready_.pop_back();
      run_node(*node);
    }
  }

 private:
  void count_edges(const Ref<TapeNode>& root) {
    std::vector<TapeNode*> pending{root.get()};
    states_.try_emplace(root.get());
    while (!pending.empty()) {
      TapeNode* node = pending.back();
      pending.pop_back();
      for (const Edge& edge : node->edges) {
        if (edge.leaf) ++leaves_[edge.leaf.get()].missing;
        if (!edge.node) continue;
        const auto [it, fresh] = states_.try_emplace(edge.node.get());
        ++it->second.missing;
        if (fresh) pending.push_back(edge.node.get());
      }
    }
  }

  void deposit(const Edge& edge, Tensor gradient) {
    NodeState& state = states_[edge.node.get()];
    if (state.gradients.empty()) state.gradients.resize(edge.node->num_outputs);
    Tensor& slot = state.gradients[edge.index];
    slot = slot.defined() ? add_gradients(std::move(slot), gradient) : std::move(gradient);
  }

  void run_node(TapeNode& node) {
    absl::InlinedVector<Tensor, 2> gradients = std::move(states_[&node].gradients);
    gradients.resize(node.num_outputs);
    bool any = false;
    for (const Tensor& gradient : gradients) any |= gradient.defined();
    absl::InlinedVector<Tensor, 4> slots(node.edges.size());
    if (any) {
      for (const auto& [output, hook] : node.hooks) {
        if (gradients[output].defined()) run_hook(hook, gradients[output]);
      }
      for (const auto& [output, impl] : node.retained)
        if (gradients[output].defined()) Tensor(Ref<TensorImpl>(impl)).set_grad(gradients[output]);
      ETCH_CHECK(!node.released, AutogradError, node.name(),
                 ": expected saved tensors, got a tape that an earlier backward() freed; pass {.retain_graph "
                 "= true} there");
      node.backward({gradients.data(), gradients.size()}, {{slots.data(), slots.size()}, node.edges});
      if (!keep_) release_node(node);
    }
    gradients.clear();
    for (size_t i = 0; i < node.edges.size(); ++i) {
      const Edge& edge = node.edges[i];
      if (edge.leaf) {
        deliver_to_leaf(*edge.leaf, std::move(slots[i]));
      } else if (edge.node) {
        if (slots[i].defined()) deposit(edge, std::move(slots[i]));
        if (--states_[edge.node.get()].missing == 0) ready_.push_back(edge.node);
      }
    }
  }

  // A leaf gets its gradient in one piece, when the last part has come: no copy of a first part has to wait
  // for the rest.
  void deliver_to_leaf(TensorImpl& leaf, Tensor part) {
    LeafState& state = leaves_[&leaf];
    if (part.defined())
      state.gradient =
          state.gradient.defined() ? add_gradients(std::move(state.gradient), part) : std::move(part);
    if (--state.missing == 0 && state.gradient.defined())
      accumulate_leaf(leaf, std::exchange(state.gradient, Tensor()));
  }

  bool keep_;
  // Never iterated: order must not depend on addresses.
  absl::flat_hash_map<TapeNode*, NodeState> states_;
  absl::flat_hash_map<TensorImpl*, LeafState> leaves_;
  std::vector<Ref<TapeNode>> ready_;
};

}  // namespace

GradientWatch::GradientWatch() : previous_(std::exchange(innermost_watch, this)) {}
GradientWatch::~GradientWatch() { innermost_watch = previous_; }
void GradientWatch::note(TensorImpl& leaf) {
  if (!innermost_watch || !leaf.storage->has_bytes()) return;
  GradientWatch& watch = *innermost_watch;
  const auto is_leaf = [&](const Ref<TensorImpl>& other) { return other.get() == &leaf; };
  if (std::any_of(watch.made_inside_.begin(), watch.made_inside_.end(), is_leaf) ||
      std::any_of(watch.added_.begin(), watch.added_.end(),
                  [&](const Added& added) { return is_leaf(added.leaf); }))
    return;
  const Tensor& grad = leaf.autograd->grad;
  // To hold a gradient would keep it alive.
  if (grad.defined() && !grad.storage().has_bytes())
    watch.made_inside_.emplace_back(&leaf);
  else
    watch.added_.push_back({Ref<TensorImpl>(&leaf), grad.ref()});
}
std::vector<GradientWatch::Added> GradientWatch::take() {
  made_inside_.clear();
  std::erase_if(added_, [](const Added& added) { return added.leaf->use_count() == 1; });
  return std::move(added_);
}

void Tensor::backward(const Tensor& gradient, BackwardOptions options) const {
  ETCH_CHECK(
      requires_grad(), AutogradError,
      "backward: expected a tensor computed from leaves that require gradients, got one without a tape");
  ETCH_CHECK(gradient.defined() || numel() == 1, ShapeError,
             "backward: expected a one-element tensor or a gradient, got ", etch::to_string(sizes()));
  GradMode mode(options.create_graph);
  Tensor start = gradient.defined() ? gradient : ones_like(*this);
  ETCH_CHECK(start.sizes() == sizes(), ShapeError, "backward: expected a gradient of sizes ",
             etch::to_string(sizes()), ", got ", etch::to_string(start.sizes()));
  Engine(options).run(edge_of(*this), std::move(start));
}

}  // namespace etch
