// The tree of modules: names, conversion, and state dictionaries.
#include "nn/module.h"

#include <algorithm>
#include <set>
#include <unordered_map>
#include <unordered_set>

namespace etch::nn {

namespace {

std::string join_path(const std::string& path, const std::string& name) {
  return path.empty() ? name : path + "." + name;
}

/// Puts another tensor behind the same handle. Graphs of before keep what they saved.
void replace_contents(const Tensor& target, const Tensor& source) {
  TensorImpl& to = target.impl();
  const TensorImpl& from = source.impl();
  if (&to == &from) return;
  const MemoryCategory category = to.storage->category();
  to.storage = from.storage;
  to.geometry = from.geometry;
  to.offset = from.offset;
  to.dtype = from.dtype;
  to.is_view = false;
  to.base = {};
  to.storage->set_category(category);
}

template <class Convert>
void convert_all(ModuleNode& root, Convert convert) {
  NoGrad guard;
  root.visit([&](const std::string&, ModuleNode& node) {
    auto replace = [&](const Tensor& tensor) {
      const Tensor gradient = tensor.grad();
      replace_contents(tensor, convert(tensor.detach()));
      if (gradient.defined()) Tensor(tensor).set_grad(convert(gradient));
    };
    for (auto& [name, parameter] : node.parameters) replace(parameter);
    for (auto& buffer : node.buffers) replace(buffer.tensor);
  });
}

/// "a, b, c and 4 more"
std::string list_names(const std::vector<std::string>& names) {
  constexpr size_t kShown = 12;
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kShown); ++i) text += (i ? ", " : "") + names[i];
  if (names.size() > kShown) text += " and " + std::to_string(names.size() - kShown) + " more";
  return text;
}

}  // namespace

Tensor ModuleNode::find(std::string_view name) const {
  for (const auto& [own, tensor] : parameters)
    if (own == name) return tensor;
  for (const auto& buffer : buffers)
    if (buffer.name == name) return buffer.tensor;
  return {};
}

void ModuleNode::visit(const std::function<void(const std::string& path, ModuleNode& node)>& f,
                       const std::string& path) {
  f(path, *this);
  for (const auto& [name, child] : children) child->visit(f, join_path(path, name));
}

Module::Module() : node_(std::make_shared<ModuleNode>()) {}
Module::~Module() = default;

void Module::train(bool on) {
  node_->visit([on](const std::string&, ModuleNode& node) { node.training = on; });
}

NamedTensors Module::named_parameters() const {
  NamedTensors result;
  std::unordered_set<const TensorImpl*> seen;
  node_->visit([&](const std::string& path, ModuleNode& node) {
    for (const auto& [name, tensor] : node.parameters)
      if (seen.insert(&tensor.impl()).second) result.emplace_back(join_path(path, name), tensor);
  });
  return result;
}

std::vector<Tensor> Module::parameters() const {
  std::vector<Tensor> result;
  for (auto& [name, tensor] : named_parameters()) result.push_back(tensor);
  return result;
}

NamedTensors Module::named_buffers() const {
  NamedTensors result;
  std::unordered_set<const TensorImpl*> seen;
  node_->visit([&](const std::string& path, ModuleNode& node) {
    for (const auto& buffer : node.buffers)
      if (seen.insert(&buffer.tensor.impl()).second)
        result.emplace_back(join_path(path, buffer.name), buffer.tensor);
  });
  return result;
}

int64_t Module::parameter_count() const {
  int64_t count = 0;
  for (const Tensor& tensor : parameters()) count += tensor.numel();
  return count;
}

void Module::zero_grad() {
  for (Tensor& tensor : parameters()) tensor.zero_grad();
}

void Module::to(DType dtype) {
  ETCH_CHECK(is_floating(dtype), DTypeError, "Module::to: expected a floating dtype, got ", name(dtype));
  convert_all(*node_, [dtype](const Tensor& x) { return is_floating(x.dtype()) ? x.to(dtype) : x; });
}

void Module::to(Device device) {
  convert_all(*node_, [device](const Tensor& x) { return x.to(device); });
}

NamedTensors Module::state_dict() const {
  NamedTensors result;
  node_->visit([&](const std::string& path, ModuleNode& node) {
    for (const auto& [name, tensor] : node.parameters)
      result.emplace_back(join_path(path, name), tensor.detach());
    for (const auto& buffer : node.buffers)
      if (buffer.persistent) result.emplace_back(join_path(path, buffer.name), buffer.tensor.detach());
  });
  return result;
}

void Module::load_state_dict(const NamedTensors& state, LoadOptions options) {
  std::unordered_map<std::string, const Tensor*> given;
  for (const auto& [name, tensor] : state)
    ETCH_CHECK(given.emplace(name, &tensor).second, ValueError,
               "load_state_dict: expected distinct names, got \"", name, "\" twice");

  std::vector<std::pair<Tensor, const Tensor*>> matches;
  std::vector<std::string> missing, unexpected, misfits, other_kinds;
  auto match = [&](const std::string& name, const Tensor& own) {
    const auto found = given.find(name);
    if (found == given.end()) {
      missing.push_back(name);
      return;
    }
    const Tensor& tensor = *found->second;
    given.erase(found);
    if (!tensor.defined() || tensor.sizes() != own.sizes())
      misfits.push_back(join_text({name, " (expected ", to_string(own.sizes()), ", got ",
                                   tensor.defined() ? to_string(tensor.sizes()) : "nothing", ")"}));
    else if (is_floating(tensor.dtype()) != is_floating(own.dtype()))
      other_kinds.push_back(join_text(
          {name, " (expected ", etch::name(own.dtype()), ", got ", etch::name(tensor.dtype()), ")"}));
    else
      matches.emplace_back(own, &tensor);
  };
  node_->visit([&](const std::string& path, ModuleNode& node) {
    for (const auto& [name, tensor] : node.parameters) match(join_path(path, name), tensor);
    for (const auto& buffer : node.buffers)
      if (buffer.persistent) match(join_path(path, buffer.name), buffer.tensor);
  });
  for (const auto& [name, tensor] : state)
    if (given.count(name)) unexpected.push_back(name);

  if (options.strict && (!missing.empty() || !unexpected.empty())) {
    std::string text = "load_state_dict: expected the module's own names";
    if (!missing.empty()) text += "; missing: " + list_names(missing);
    if (!unexpected.empty()) text += "; unexpected: " + list_names(unexpected);
    fail<ValueError>(text, "; load with strict = false to take what fits");
  }
  ETCH_CHECK(misfits.empty(), ShapeError, "load_state_dict: expected equal sizes, got others for ",
             list_names(misfits));
  ETCH_CHECK(other_kinds.empty(), DTypeError,
             "load_state_dict: expected floating or integer dtypes as the module's, got others for ",
             list_names(other_kinds));

  NoGrad guard;
  for (auto& [own, tensor] : matches) {
    if (options.assign)
      replace_contents(own, tensor->detach());
    else
      own.copy_(*tensor);
  }
}

void Module::check_new_name(const std::string& name, std::string_view what) const {
  ETCH_CHECK(!name.empty() && name.find('.') == std::string::npos, ValueError, what,
             ": expected a name without dots, got \"", name, "\"");
  bool taken = node_->find(name).defined();
  for (const auto& [own, child] : node_->children) taken |= own == name;
  ETCH_CHECK(!taken, ValueError, what, ": expected a new name, got \"", name, "\", which is registered");
}

Tensor Module::register_parameter(std::string name, Tensor value) {
  check_new_name(name, "register_parameter");
  ETCH_CHECK(value.defined(), ValueError, "register_parameter: expected a tensor for \"", name,
             "\", got an undefined one");
  ETCH_CHECK(value.is_leaf(), AutogradError, "register_parameter: expected a leaf for \"", name,
             "\", got a result of ", value.grad_fn(), "; detach() it");
  value.requires_grad_();
  value.storage().set_category(MemoryCategory::Parameter);
  node_->parameters.emplace_back(std::move(name), value);
  return value;
}

Tensor Module::register_buffer(std::string name, Tensor value, bool persistent) {
  check_new_name(name, "register_buffer");
  ETCH_CHECK(value.defined(), ValueError, "register_buffer: expected a tensor for \"", name,
             "\", got an undefined one");
  value.storage().set_category(MemoryCategory::Parameter);
  node_->buffers.push_back({std::move(name), value, persistent});
  return value;
}

void Module::register_module(std::string name, const Module& child) {
  check_new_name(name, "register_module");
  ETCH_CHECK(child.node_ != node_, ValueError, "register_module: expected another module for \"", name,
             "\", got the module itself");
  node_->children.emplace_back(std::move(name), child.node_);
}

}  // namespace etch::nn
