// The tape node of a user's Function, and what it checks.
#include "eager/function.h"

#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>

#include "eager/apply.h"
#include "eager/tape.h"

namespace etch {

namespace {

// "Cube" of "app::(anonymous namespace)::Cube".
std::string short_name(const std::type_info& type) {
  int status = 0;
  char* text = abi::__cxa_demangle(type.name(), nullptr, nullptr, &status);
  std::string name = status == 0 ? text : type.name();
  std::free(text);
  const size_t parameters = name.find('<');
  const size_t scope = name.rfind("::", parameters);
  return scope == std::string::npos ? name : name.substr(scope + 2);
}

bool contains(const std::vector<Tensor>& list, const Tensor& tensor) {
  return std::any_of(list.begin(), list.end(), [&](const Tensor& each) { return each.is_same(tensor); });
}

}  // namespace

class FunctionNode final : public TapeNode {
 public:
  FunctionNode(std::string name, detail::Backward backward, const std::vector<Tensor>& inputs)
      : name_(std::move(name)), backward_(backward) {
    for (const Tensor& input : inputs) {
      const bool needed = input.defined() && grad_enabled() && is_on_tape(input);
      context_.needs_.push_back(needed);
      wanted_ |= needed;
      edges.push_back(input.defined() ? edge_of(input) : Edge{});
      inputs_.push_back(input.defined() ? Like{input.sizes(), input.dtype(), input.device()} : Like{});
    }
  }

  std::string name() const override { return name_ + "Backward"; }
  bool wanted() const { return wanted_; }
  FunctionContext& context() { return context_; }

  std::vector<Tensor> unpack() const {
    ETCH_CHECK(
        !to_release_, AutogradError, name_,
        ": expected saved tensors, got a tape that an earlier backward() freed; pass {.retain_graph = true} "
        "there");
    std::vector<Tensor> tensors;
    for (const SavedTensor& tensor : saved_)
      tensors.push_back(tensor.unpack(const_cast<FunctionNode*>(this)));
    return tensors;
  }

  // Puts what forward returned on the tape.
  void finish(const std::vector<Tensor>& inputs, std::vector<Tensor>& outputs) {
    const std::vector<Tensor> returned = outputs;
    for (const Tensor& output : outputs)
      ETCH_CHECK(output.defined(), ValueError, name_,
                 ": expected defined tensors from forward, got an undefined one");
    for (const Tensor& dirty : context_.dirty_) check_dirty(dirty, inputs, outputs);
    num_outputs = static_cast<int>(outputs.size());
    std::vector<const TensorImpl*> taken;
    for (int i = 0; i < num_outputs; ++i) {
      Tensor& output = outputs[i];
      outputs_.push_back({output.sizes(), output.dtype(), output.device()});
      const bool dirty = contains(context_.dirty_, output);
      const bool repeated = std::find(taken.begin(), taken.end(), &output.impl()) != taken.end();
      // A tensor with a place on the tape already keeps it; what comes out is a view of its elements, without
      // a base: writing it in place under the tape is refused.
      if (repeated || (!dirty && (contains(inputs, output) || output.requires_grad())))
        output = make_view(output, output.impl().geometry, output.storage_offset());
      taken.push_back(&output.impl());
      if (!wanted_ || !is_floating(output.dtype()) || contains(context_.non_differentiable_, returned[i]))
        continue;
      if (dirty) rewrite_history(output, Ref<TapeNode>(this), false);
      if (!retained.empty() && retained.back().second == &output.impl()) retained.back().first = i;
      set_grad_fn(output, Ref<TapeNode>(this), i);
    }
    if (wanted_) save(returned, outputs);
    context_.to_save_ = context_.dirty_ = context_.non_differentiable_ = {};
    context_.node_ = this;
  }

  void backward(std::span<const Tensor> gradients, InputGradients inputs) override {
    std::vector<Tensor> given(gradients.begin(), gradients.end());
    if (context_.materialize_)
      for (size_t i = 0; i < given.size(); ++i)
        if (!given[i].defined())
          given[i] = zeros(outputs_[i].sizes, {.dtype = outputs_[i].dtype, .device = outputs_[i].device});
    const std::vector<Tensor> results = backward_(context_, given);
    ETCH_CHECK(results.size() == inputs_.size(), AutogradError, name_, ": expected ", inputs_.size(),
               " gradients from backward, one a tensor argument of forward, got ", results.size());
    for (size_t i = 0; i < results.size(); ++i) {
      const int slot = static_cast<int>(i);
      if (!results[i].defined() || !inputs.needs(slot)) continue;
      ETCH_CHECK(results[i].sizes() == inputs_[i].sizes, ShapeError, name_, ": expected a gradient of sizes ",
                 to_string(inputs_[i].sizes), " for tensor argument ", slot, ", got ",
                 to_string(results[i].sizes()));
      inputs.set(slot, results[i].to(inputs_[i].dtype));
    }
  }

  void release() override {
    saved_.clear();
    context_.data.reset();
    to_release_ = true;
  }

 private:
  struct Like {
    Dims sizes;
    DType dtype = DType::F32;
    Device device;
  };

  void check_dirty(const Tensor& dirty, const std::vector<Tensor>& inputs,
                   const std::vector<Tensor>& outputs) {
    ETCH_CHECK(contains(inputs, dirty) && contains(outputs, dirty), AutogradError, name_,
               ": expected an input that forward also returns in mark_dirty(), got another tensor");
    if (!wanted_) return;
    ETCH_CHECK(!dirty.impl().is_view, AutogradError, name_,
               ": expected an input that owns its elements in mark_dirty(), got a view; clone() it first");
    check_in_place(name_, dirty, true);
  }

  void save(const std::vector<Tensor>& returned, const std::vector<Tensor>& outputs) {
    for (const Tensor& tensor : context_.to_save_) {
      int output = -1;
      for (int i = 0; i < num_outputs; ++i)
        if (tensor.defined() && tensor.is_same(returned[i]) && outputs[i].is_same(tensor)) output = i;
      saved_.push_back(output >= 0 ? SavedTensor::output(outputs[output], name_)
                                   : SavedTensor(tensor, name_));
    }
  }

  std::string name_;
  detail::Backward backward_;
  FunctionContext context_;
  std::vector<Like> inputs_, outputs_;
  std::vector<SavedTensor> saved_;
  bool wanted_ = false;
  bool to_release_ = false;
};

void FunctionContext::save_for_backward(std::vector<Tensor> tensors) { to_save_ = std::move(tensors); }
void FunctionContext::mark_non_differentiable(std::vector<Tensor> outputs) {
  non_differentiable_ = std::move(outputs);
}
void FunctionContext::mark_dirty(std::vector<Tensor> inputs) { dirty_ = std::move(inputs); }

std::vector<Tensor> FunctionContext::saved_tensors() const {
  ETCH_CHECK(node_, AutogradError, "saved_tensors: expected a call from backward, got one from forward");
  return node_->unpack();
}

std::vector<Tensor> detail::apply_function(const std::type_info& type, std::vector<Tensor> inputs,
                                           const Forward& forward, Backward backward) {
  const Ref<FunctionNode> node(new FunctionNode(short_name(type), backward, inputs));
  std::vector<Tensor> outputs = no_grad([&] { return forward(node->context()); });
  node->finish(inputs, outputs);
  return outputs;
}

}  // namespace etch
