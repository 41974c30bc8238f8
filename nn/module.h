// Module: a named tree of parameters and buffers with a forward function.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "eager/tensor.h"

namespace etch::nn {

/// Tensors by dotted path ("layer1.0.conv1.weight"), in the order of registration.
using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

/// What modules share when they are copied: names, tensors, children and the training flag. Users see Module.
class ModuleNode {
 public:
  struct Buffer {
    std::string name;
    Tensor tensor;
    bool persistent;
  };

  bool training = true;
  NamedTensors parameters;
  std::vector<Buffer> buffers;
  std::vector<std::pair<std::string, std::shared_ptr<ModuleNode>>> children;

  /// The node's own parameter or buffer of that name; undefined if there is none.
  Tensor find(std::string_view name) const;
  /// Calls f for every node, this one (path "") first.
  void visit(const std::function<void(const std::string& path, ModuleNode& node)>& f,
             const std::string& path = "");
};

/// Base of all layers and models. A module is a handle, as a Tensor is: copies share parameters, buffers and
/// the training flag. Members are plain values, registered by name in the constructor:
///
///   struct Net : nn::Module {
///     nn::Linear hidden{{.in = 784, .out = 128}}, output{{.in = 128, .out = 10}};
///     Net() {
///       register_module("hidden", hidden);
///       register_module("output", output);
///     }
///     Tensor forward(const Tensor& x) override { return output(hidden(x).relu()); }
///   };
///
/// A module assigned to after its registration is another one: register what the member holds in the end.
class Module {
 public:
  Module();
  virtual ~Module();
  Module(const Module&) = default;
  Module(Module&&) = default;
  Module& operator=(const Module&) = default;
  Module& operator=(Module&&) = default;

  virtual Tensor forward(const Tensor& x) = 0;
  Tensor operator()(const Tensor& x) { return forward(x); }

  /// Dropout and batch normalisation behave differently in training and evaluation. For this module and all
  /// below.
  void train(bool on = true);
  void eval() { train(false); }
  bool is_training() const { return node_->training; }

  /// Each tensor once, even if two paths lead to it.
  std::vector<Tensor> parameters() const;
  NamedTensors named_parameters() const;
  NamedTensors named_buffers() const;
  int64_t parameter_count() const;

  /// Makes all gradients undefined, which frees their memory.
  void zero_grad();
  /// Converts floating parameters, buffers and gradients. The Tensor handles stay the same ones, so an
  /// optimiser over them stays valid (its state keeps the old dtype: make it afterwards).
  void to(DType dtype);
  void to(Device device);

  /// Parameters and persistent buffers, detached, sharing memory with the module: clone() them for a
  /// snapshot. nn/safetensors.h writes them to a file and reads them back.
  NamedTensors state_dict() const;
  struct LoadOptions {
    bool strict = true;   ///< missing and unexpected names are errors
    bool assign = false;  ///< take over the given tensors' storage and dtype instead of copying values
  };
  /// Floating values are converted to the module's dtypes. Throws ValueError listing missing and unexpected
  /// names, ShapeError listing tensors of other sizes, DTypeError listing integers for floats and the
  /// reverse; then nothing has been changed.
  void load_state_dict(const NamedTensors& state) { load_state_dict(state, LoadOptions()); }
  void load_state_dict(const NamedTensors& state, LoadOptions options);

  /// Calls f for this module (path "") and all below, for example to initialise weights by name.
  void apply(const std::function<void(const std::string& path, ModuleNode& node)>& f) { node_->visit(f); }
  const std::shared_ptr<ModuleNode>& node() const { return node_; }

 protected:
  /// Returns `value` as a leaf that requires gradients, in memory category Parameter. Names must be new, not
  /// empty and without dots: ValueError.
  Tensor register_parameter(std::string name, Tensor value);
  /// State that is not trained. Only a persistent one is in state_dict().
  Tensor register_buffer(std::string name, Tensor value, bool persistent = true);
  void register_module(std::string name, const Module& child);

 private:
  void check_new_name(const std::string& name, std::string_view what) const;

  std::shared_ptr<ModuleNode> node_;
};

/// Two extents, height and width; one number stands for both.
struct Pair {
  int64_t height, width;
  constexpr Pair(int both) : height(both), width(both) {}
  constexpr Pair(int64_t both) : height(both), width(both) {}
  constexpr Pair(int64_t h, int64_t w) : height(h), width(w) {}
};

}  // namespace etch::nn
