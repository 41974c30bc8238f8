// The autograd tape: nodes, edges, saved tensors.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <absl/container/inlined_vector.h>

#include "eager/tensor.h"
#include "runtime/object_pool.h"
#include "tracer/op.h"

namespace etch {

/// Where a gradient goes next: output `index` of a node, or the .grad of a leaf. Neither: nowhere.
struct Edge {
  Ref<TapeNode> node;
  int index = 0;
  Ref<TensorImpl> leaf;

  bool defined() const { return node || leaf; }
};
/// The edge that gradients of `tensor` take.
Edge edge_of(const Tensor& tensor);
/// The same as last recorded: a stale view has another now, see is_stale_view().
Edge recorded_edge(const Ref<TensorImpl>& impl);

/// Gradients a node computes, by input.
class InputGradients {
 public:
  InputGradients(std::span<Tensor> slots, std::span<const Edge> edges) : slots_(slots), edges_(edges) {}
  /// Whether anybody wants the gradient of input i.
  bool needs(int i) const { return edges_[i].defined(); }
  void set(int i, Tensor gradient) { slots_[i] = std::move(gradient); }

 private:
  std::span<Tensor> slots_;
  std::span<const Edge> edges_;
};

using Hook = std::function<Tensor(const Tensor&)>;

/// One recorded op.
class TapeNode : public RefCounted {
 public:
  virtual ~TapeNode() = default;
  /// "MulBackward".
  virtual std::string name() const = 0;
  /// `gradients` has one entry an output, undefined where none arrived.
  virtual void backward(std::span<const Tensor> gradients, InputGradients inputs) = 0;
  /// Drops what was saved; backward() cannot run again.
  virtual void release() = 0;

  absl::InlinedVector<Edge, 2> edges;  ///< one an input tensor
  int num_outputs = 1;
  bool released = false;
  std::vector<std::pair<int, Hook>> hooks;  ///< rare: an output's, in order
  /// Outputs that keep their gradient. The tensors deregister when they die.
  std::vector<std::pair<int, TensorImpl*>> retained;

  /// Deletes iteratively: a chain of any length does not recurse.
  static void destroy(TapeNode* node);
};

struct AutogradMeta {
  Tensor grad;
  Ref<TapeNode> grad_fn;
  int output_index = 0;
  bool retains_grad = false;
  std::vector<Hook> leaf_hooks;

  static void* operator new(size_t) { return ObjectPool<AutogradMeta>::allocate(); }
  static void operator delete(void* data) noexcept { ObjectPool<AutogradMeta>::release(data); }
};

/// A tensor kept for backward. Unpacking checks that nobody has written it since.
class SavedTensor {
 public:
  SavedTensor() = default;
  /// An operand of the op being recorded, with its history as of now: what is written to it later may come
  /// from this very op, and would make a cycle.
  SavedTensor(const Tensor& tensor, std::string_view saver);
  /// The op's own result: kept without its tape node, which would be a cycle.
  static SavedTensor output(const Tensor& tensor, std::string_view saver);

  bool defined() const { return tensor_.defined(); }
  /// Throws AutogradError naming the op that saved it and the one that overwrote it. `owner` is the node
  /// whose output this is, if it is one.
  Tensor unpack(TapeNode* owner = nullptr) const;
  void reset() { tensor_ = {}; }

 private:
  Tensor tensor_;
  uint32_t version_ = 0;
  bool is_output_ = false;
  int16_t output_index_ = 0;
  std::string_view saver_;
};

/// A view whose base, or another view of it, has been written on the tape since its history was looked up.
/// Threads that share a view may ask at once: where it is not stale the history it was last given is to be
/// seen.
inline bool is_stale_view(TensorImpl& impl) {
  return impl.is_view &&
         impl.storage->taped_version > std::atomic_ref(impl.view_version).load(std::memory_order_acquire);
}
/// Gives a stale view the history it has now: a window of its base. Throws AutogradError for a view without a
/// base, since its history would be wrong.
void refresh_view(TensorImpl& view);
/// Whether an op over this tensor must be recorded, while gradients are enabled. Throws as refresh_view().
inline bool is_on_tape(const Tensor& tensor) {
  TensorImpl& impl = tensor.impl();
  if (is_stale_view(impl)) [[unlikely]]
    refresh_view(impl);
  return impl.requires_grad || (impl.autograd && impl.autograd->grad_fn);
}
/// Whether an op over these tensors must be recorded.
inline bool needs_tape(std::initializer_list<const Tensor*> tensors) {
  if (!grad_enabled()) return false;
  bool needed = false;
  for (const Tensor* tensor : tensors) needed |= tensor->defined() && is_on_tape(*tensor);
  return needed;
}

/// Makes `output` the given output of `node`.
void set_grad_fn(const Tensor& output, Ref<TapeNode> node, int index);
/// The same for a tensor that `node` wrote in place (null: with values that are not on the tape). The history
/// of a view's base is rewritten instead, and its views follow when they are used next. `reads_written`: the
/// first edge of `node` is the written tensor's own old value. Call it right after the write.
void rewrite_history(const Tensor& written, const Ref<TapeNode>& node, bool reads_written);
/// Makes `node` (or nothing) the history of `impl`; a gradient it retains is from now on its new value's.
void set_history(TensorImpl& impl, const Ref<TapeNode>& node);
/// Takes the tensor off its node's list of retained outputs.
void forget_retained(TensorImpl& impl);

/// Sets whether ops on this thread are recorded, while alive.
class GradMode {
 public:
  explicit GradMode(bool enabled);
  ~GradMode();
  GradMode(const GradMode&) = delete;
  GradMode& operator=(const GradMode&) = delete;

 private:
  bool previous_;
};

/// A node whose backward is a closure: void(std::span<const Tensor> gradients, InputGradients inputs).
template <class F>
class ClosureNode final : public TapeNode {
 public:
  ClosureNode(std::string_view op, F backward) : op_(op), backward_(std::move(backward)) {}
  std::string name() const override { return backward_name(op_); }
  void backward(std::span<const Tensor> gradients, InputGradients inputs) override {
    (*backward_)(gradients, inputs);
  }
  void release() override { backward_.reset(); }

  static std::string backward_name(std::string_view op);

 private:
  std::string_view op_;
  std::optional<F> backward_;
};
/// "batch_norm" -> "BatchNormBackward".
std::string backward_name(std::string_view op);
template <class F>
std::string ClosureNode<F>::backward_name(std::string_view op) {
  return etch::backward_name(op);
}

/// Records an op: `op` is a string that lives for ever.
template <class F>
void record_on_tape(std::string_view op, std::initializer_list<const Tensor*> inputs,
                    std::initializer_list<const Tensor*> outputs, F backward) {
  const Ref<TapeNode> node = Ref<TapeNode>::first(new ClosureNode<F>(op, std::move(backward)));
  for (const Tensor* input : inputs) node->edges.push_back(input->defined() ? edge_of(*input) : Edge{});
  node->num_outputs = static_cast<int>(outputs.size());
  int index = 0;
  for (const Tensor* output : outputs) {
    if (is_floating(output->dtype())) set_grad_fn(*output, node, index);
    ++index;
  }
}

/// `gradient` summed down to `sizes` (the reverse of broadcasting), in `dtype`.
Tensor reduce_to(const Tensor& gradient, const Dims& sizes, DType dtype);

}  // namespace etch
