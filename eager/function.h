// Function: an op of your own on the tape, with a forward and a backward that you write.
#pragma once

#include <any>
#include <functional>
#include <string>
#include <tuple>
#include <typeinfo>
#include <utility>
#include <vector>

#include "eager/tensor.h"

namespace etch {

class FunctionNode;

/// What a forward leaves for its backward. One a call.
class FunctionContext {
 public:
  /// Inputs, outputs or other tensors that backward needs; call it once. Writing one of them in place before
  /// backward is an error there.
  void save_for_backward(std::vector<Tensor> tensors);
  /// In backward: what was saved, in that order. Throws AutogradError naming the function if one was
  /// overwritten.
  std::vector<Tensor> saved_tensors() const;
  /// Whatever else backward needs: context.data = 2.0; std::any_cast<double>(context.data).
  std::any data;

  /// Outputs (of this forward) that no gradient flows through. Those with integer dtypes are so anyway.
  void mark_non_differentiable(std::vector<Tensor> outputs);
  /// Inputs that forward wrote in place. It must return each of them.
  void mark_dirty(std::vector<Tensor> inputs);
  /// Whether backward gets zeros for outputs that no gradient arrived at (true unless set), or undefined
  /// tensors.
  void set_materialize_grads(bool materialize) { materialize_ = materialize; }
  /// Whether the gradient of tensor argument i will be used; backward may return an undefined tensor
  /// otherwise.
  bool needs_input_grad(int i) const { return needs_.at(static_cast<size_t>(i)); }

 private:
  friend class FunctionNode;
  std::vector<Tensor> to_save_, non_differentiable_, dirty_;
  std::vector<bool> needs_;
  bool materialize_ = true;
  const FunctionNode* node_ = nullptr;
};

namespace detail {

using Forward = std::function<std::vector<Tensor>(FunctionContext&)>;
using Backward = std::vector<Tensor> (*)(FunctionContext&, const std::vector<Tensor>&);
/// Runs `forward` without the tape, and puts its outputs on it.
std::vector<Tensor> apply_function(const std::type_info& type, std::vector<Tensor> inputs,
                                   const Forward& forward, Backward backward);

inline void append_tensors(std::vector<Tensor>& list, const Tensor& tensor) { list.push_back(tensor); }
inline void append_tensors(std::vector<Tensor>& list, const std::vector<Tensor>& tensors) {
  list.insert(list.end(), tensors.begin(), tensors.end());
}
template <class... T>
void append_tensors(std::vector<Tensor>& list, const std::tuple<T...>& tensors) {
  std::apply([&](const auto&... each) { (append_tensors(list, each), ...); }, tensors);
}
template <class A, class B>
void append_tensors(std::vector<Tensor>& list, const std::pair<A, B>& tensors) {
  append_tensors(list, tensors.first);
  append_tensors(list, tensors.second);
}

}  // namespace detail

/// Base of such an op. `forward` takes the context and any arguments; those of type Tensor or
/// std::vector<Tensor> are its tensor arguments. It runs without the tape and returns a Tensor, a
/// std::vector<Tensor>, or a pair or tuple of Tensors. `backward` gets one gradient an output and returns one
/// a tensor argument, in order; an undefined one stands for none. Written in ops that have gradients it can
/// be differentiated again (create_graph). Both are ordinary code in traced functions too.
///
///   struct ScaledCube : etch::Function<ScaledCube> {
///     static Tensor forward(FunctionContext& context, const Tensor& x, double scale) {
///       context.save_for_backward({x});
///       context.data = scale;
///       return x * x * x * scale;
///     }
///     static std::vector<Tensor> backward(FunctionContext& context, const std::vector<Tensor>& gradients) {
///       const Tensor x = context.saved_tensors()[0];
///       return {gradients[0] * (x * x) * (3 * std::any_cast<double>(context.data))};
///     }
///   };
///   Tensor y = ScaledCube::apply(x, 0.5);
///
/// Backward throws AutogradError for another number of gradients and ShapeError for a gradient that has not
/// the sizes of its argument; gradients of other dtypes are converted.
template <class Derived>
class Function {
 public:
  template <class... Args>
  static auto apply(Args&&... args) {
    using Result = decltype(Derived::forward(std::declval<FunctionContext&>(), args...));
    std::vector<Tensor> inputs;
    const auto collect = [&](const auto& argument) {
      using Argument = std::remove_cvref_t<decltype(argument)>;
      if constexpr (std::is_same_v<Argument, Tensor> || std::is_same_v<Argument, std::vector<Tensor>>)
        detail::append_tensors(inputs, argument);
    };
    (collect(args), ...);
    std::vector<Tensor> outputs = detail::apply_function(
        typeid(Derived), std::move(inputs),
        [&](FunctionContext& context) {
          std::vector<Tensor> list;
          detail::append_tensors(list, Derived::forward(context, args...));
          return list;
        },
        [](FunctionContext& context, const std::vector<Tensor>& gradients) {
          return std::vector<Tensor>(Derived::backward(context, gradients));
        });
    return unpack<Result>(outputs);
  }

 private:
  template <class Result>
  static Result unpack(std::vector<Tensor>& outputs) {
    if constexpr (std::is_same_v<Result, Tensor>) {
      return std::move(outputs[0]);
    } else if constexpr (std::is_same_v<Result, std::vector<Tensor>>) {
      return std::move(outputs);
    } else {
      return [&]<size_t... I>(std::index_sequence<I...>) { return Result(std::move(outputs[I])...); }
      (std::make_index_sequence<std::tuple_size_v<Result>>());
    }
  }
};

}  // namespace etch
