// The backward pass: nodes run when all gradients that can reach them have, without recursion.
#include <absl/cleanup/cleanup.h>
#include <absl/container/flat_hash_map.h>
#include <absl/container/flat_hash_set.h>

#include <algorithm>

#include "eager/accumulation.h"
#include "eager/apply.h"
#include "eager/grad.h"
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

// What is given away must not alias what others hold: a later write would reach them.
Tensor own(Tensor gradient) {
  const bool shared = !is_unshared(gradient) || !is_dense(gradient.impl().geometry);
  return !grad_enabled() && shared ? gradient.clone() : std::move(gradient);
}

void run_leaf_hooks(TensorImpl& leaf, Tensor& gradient) {
  if (!leaf.autograd) return;
  for (const Hook& hook : leaf.autograd->leaf_hooks) run_hook(hook, gradient);
}

void accumulate_leaf(TensorImpl& leaf, Tensor gradient) {
  run_leaf_hooks(leaf, gradient);
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
  gradient = own(std::move(gradient));
  if (gradient.storage().category() == MemoryCategory::Temporary)
    gradient.storage().set_category(MemoryCategory::Gradient);
  grad = std::move(gradient);
}

// Where gradients are wanted, instead of in .grad of all leaves, and the nodes that lead there.
class Targets {
 public:
  void add(const Edge& edge) {
    if (edge.leaf)
      leaves_.try_emplace(edge.leaf.get());
    else
      outputs_.try_emplace({edge.node.get(), edge.index});
  }

  // Each node after those that its edges lead to.
  void find_leading(TapeNode* root) {
    struct Visit {
      TapeNode* node;
      size_t next_edge = 0;
    };
    absl::flat_hash_set<TapeNode*> seen{root};
    std::vector<Visit> path{{root}};
    while (!path.empty()) {
      Visit& visit = path.back();
      if (visit.next_edge < visit.node->edges.size()) {
        TapeNode* next = visit.node->edges[visit.next_edge++].node.get();
        if (next && seen.insert(next).second) path.push_back({next});
        continue;
      }
      for (const Edge& edge : visit.node->edges)
        if (wants(edge)) leading_.insert(visit.node);
      path.pop_back();
    }
  }

  bool leads(TapeNode& node) const { return leading_.contains(&node); }
  bool wants(const Edge& edge) const {
    if (edge.leaf) return leaves_.contains(edge.leaf.get());
    return edge.node && (leads(*edge.node) || outputs_.contains({edge.node.get(), edge.index}));
  }

  void take(TapeNode& node, std::span<const Tensor> gradients) {
    for (size_t i = 0; i < gradients.size(); ++i)
      if (const auto at = outputs_.find({&node, static_cast<int>(i)}); at != outputs_.end())
        at->second = own(gradients[i]);
  }
  void take(TensorImpl& leaf, Tensor gradient) {
    run_leaf_hooks(leaf, gradient);
    leaves_.find(&leaf)->second = own(std::move(gradient));
  }
  const Tensor& taken(const Edge& edge) const {
    return edge.leaf ? leaves_.find(edge.leaf.get())->second
                     : outputs_.find({edge.node.get(), edge.index})->second;
  }

 private:
  absl::flat_hash_map<TensorImpl*, Tensor> leaves_;
  absl::flat_hash_map<std::pair<TapeNode*, int>, Tensor> outputs_;
  absl::flat_hash_set<TapeNode*> leading_;
};

class Engine {
 public:
  explicit Engine(BackwardOptions options, Targets* targets = nullptr)
      : keep_(options.retain_graph || options.create_graph), targets_(targets) {}

  void run(Edge root, Tensor gradient) {
    if (targets_ && root.node) targets_->find_leading(root.node.get());
    if (!wants(root)) return;
    if (root.leaf) {
      give_to_leaf(*root.leaf, std::move(gradient));
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
  bool wants(const Edge& edge) const { return targets_ ? targets_->wants(edge) : edge.defined(); }

  void count_edges(const Ref<TapeNode>& root) {
    std::vector<TapeNode*> pending{root.get()};
    states_.try_emplace(root.get());
    while (!pending.empty()) {
      TapeNode* node = pending.back();
      pending.pop_back();
      for (const Edge& edge : node->edges) {
        if (!wants(edge)) continue;
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
      if (targets_) {
        targets_->take(node, {gradients.data(), gradients.size()});
        if (!targets_->leads(node)) return;
      } else {
        for (const auto& [output, impl] : node.retained)
          if (gradients[output].defined()) Tensor(Ref<TensorImpl>(impl)).set_grad(gradients[output]);
      }
      ETCH_CHECK(!node.released, AutogradError, node.name(),
                 ": expected saved tensors, got a tape that an earlier backward() freed; pass {.retain_graph "
                 "= true} there");
      absl::InlinedVector<Edge, 2> wanted;
      if (targets_)
        for (const Edge& edge : node.edges) wanted.push_back(wants(edge) ? edge : Edge());
      node.backward({gradients.data(), gradients.size()},
                    {{slots.data(), slots.size()}, targets_ ? wanted : node.edges});
      if (!keep_) release_node(node);
    }
    gradients.clear();
    for (size_t i = 0; i < node.edges.size(); ++i) {
      const Edge& edge = node.edges[i];
      if (!wants(edge)) continue;
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
      give_to_leaf(leaf, std::exchange(state.gradient, Tensor()));
  }

  void give_to_leaf(TensorImpl& leaf, Tensor gradient) {
    if (targets_)
      targets_->take(leaf, std::move(gradient));
    else
      accumulate_leaf(leaf, std::move(gradient));
  }

  bool keep_;
  Targets* targets_;  // null: all leaves get their .grad
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

namespace {

// The gradient that `what` starts with at `output`. Under the gradient mode of the pass.
Tensor start_of(std::string_view what, const Tensor& output, const Tensor& gradient) {
  ETCH_CHECK(output.requires_grad(), AutogradError, what,
             ": expected a tensor computed from leaves that require gradients, got one without a tape");
  ETCH_CHECK(gradient.defined() || output.numel() == 1, ShapeError, what,
             ": expected a one-element tensor or a gradient, got ", to_string(output.sizes()));
  Tensor start = gradient.defined() ? gradient : ones_like(output);
  ETCH_CHECK(start.sizes() == output.sizes(), ShapeError, what, ": expected a gradient of sizes ",
             to_string(output.sizes()), ", got ", to_string(start.sizes()));
  return start;
}

}  // namespace

void Tensor::backward(const Tensor& gradient, BackwardOptions options) const {
  GradMode mode(options.create_graph);
  Tensor start = start_of("backward", *this, gradient);
  Engine(options).run(edge_of(*this), std::move(start));
}

std::vector<Tensor> grad(const Tensor& output, const std::vector<Tensor>& inputs, const Tensor& gradient,
                         GradOptions options) {
  ETCH_CHECK(!inputs.empty(), ValueError, "grad: expected inputs, got none");
  GradMode mode(options.create_graph);
  Tensor start = start_of("grad", output, gradient);
  Targets targets;
  std::vector<Edge> edges;
  for (size_t i = 0; i < inputs.size(); ++i) {
    ETCH_CHECK(inputs[i].requires_grad(), AutogradError,
               "grad: expected inputs that require gradients, got input ", static_cast<int64_t>(i),
               " that does not");
    targets.add(edges.emplace_back(edge_of(inputs[i])));
  }
  Engine({.retain_graph = options.retain_graph, .create_graph = options.create_graph}, &targets)
      .run(edge_of(output), std::move(start));
  std::vector<Tensor> gradients;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Tensor& taken = targets.taken(edges[i]);
    ETCH_CHECK(taken.defined() || options.allow_unused, AutogradError,
               "grad: expected inputs that the output depends on, got input ", static_cast<int64_t>(i),
               " that it does not; pass {.allow_unused = true} for an undefined gradient there");
    gradients.push_back(taken);
  }
  return gradients;
}

}  // namespace etch
