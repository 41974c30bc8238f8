// Frozen calls: the path that a compiled function takes now, replayed without running its body.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "eager/tensor.h"
#include "runtime/source_location.h"

namespace etch {

class Site;

namespace detail {

class FrozenPlan;

/// The body with `inputs` in the places of its tensor arguments; gives its tensors in order.
using FrozenBody = std::function<std::vector<Tensor>(std::span<const Tensor> inputs)>;
/// Runs `body` on copies of the examples until it does the same twice. See Compiled::freeze() for what it
/// refuses.
std::shared_ptr<const FrozenPlan> freeze(std::shared_ptr<Site> site, std::span<const Tensor> examples,
                                         const FrozenBody& body);
size_t count_results(const FrozenPlan& plan);
/// One call. `results` has as many elements as the body gave tensors.
void run_frozen(const FrozenPlan& plan, std::span<const Tensor* const> inputs, std::span<Tensor> results,
                SourceLocation where);

/// The tensors in a result, in order, and the lengths of its vectors.
struct ResultParts {
  std::vector<Tensor> tensors;
  std::vector<size_t> lengths;
};
struct ResultReader {
  Tensor* tensor;
  const size_t* length;
};

template <class T>
struct ResultOf {
  static_assert(sizeof(T) == 0,
                "freeze: expected a function that returns nothing, tensors, or pairs, tuples, arrays or "
                "vectors of tensors");
};
template <>
struct ResultOf<Tensor> {
  static void take(const Tensor& value, ResultParts& to) { to.tensors.push_back(value); }
  static Tensor make(ResultReader& from) { return std::move(*from.tensor++); }
};
template <class... T>
struct ResultOf<std::tuple<T...>> {
  static void take(const std::tuple<T...>& value, ResultParts& to) {
    std::apply([&](const T&... part) { (ResultOf<T>::take(part, to), ...); }, value);
  }
  static std::tuple<T...> make(ResultReader& from) { return std::tuple<T...>{ResultOf<T>::make(from)...}; }
};
template <class A, class B>
struct ResultOf<std::pair<A, B>> {
  static void take(const std::pair<A, B>& value, ResultParts& to) {
    ResultOf<A>::take(value.first, to);
    ResultOf<B>::take(value.second, to);
  }
  static std::pair<A, B> make(ResultReader& from) {
    return std::pair<A, B>{ResultOf<A>::make(from), ResultOf<B>::make(from)};
  }
};
template <class T, size_t kCount>
struct ResultOf<std::array<T, kCount>> {
  static void take(const std::array<T, kCount>& value, ResultParts& to) {
    for (const T& part : value) ResultOf<T>::take(part, to);
  }
  static std::array<T, kCount> make(ResultReader& from) {
    std::array<T, kCount> value;
    for (T& part : value) part = ResultOf<T>::make(from);
    return value;
  }
};
template <class T>
struct ResultOf<std::vector<T>> {
  static void take(const std::vector<T>& value, ResultParts& to) {
    to.lengths.push_back(value.size());
    for (const T& part : value) ResultOf<T>::take(part, to);
  }
  static std::vector<T> make(ResultReader& from) {
    std::vector<T> value(*from.length++);
    for (T& part : value) part = ResultOf<T>::make(from);
    return value;
  }
};

/// The argument itself, or the next of `inputs` in the place of a tensor.
template <class T>
decltype(auto) bind_argument(T& argument, const Tensor*& inputs) {
  if constexpr (std::is_same_v<std::remove_const_t<T>, Tensor>)
    return *inputs++;
  else
    return (argument);
}

template <size_t>
using FrozenInput = const Tensor&;

/// Frozen's call, with as many parameters as there are inputs.
template <class Result, class Inputs>
class FrozenCall;

template <class Result, size_t... kInput>
class FrozenCall<Result, std::index_sequence<kInput...>> {
 public:
  FrozenCall(std::shared_ptr<const FrozenPlan> plan, std::vector<size_t> lengths)
      : plan_(std::move(plan)), count_(count_results(*plan_)), lengths_(std::move(lengths)) {}

  /// Takes the tensors among the arguments of freeze(), in order. Throws ShapeError, DTypeError, DeviceError
  /// or ValueError, naming the input, unless its sizes, strides, dtype, device and the bytes of its storage
  /// are the example's; errors that depend on data, and running out of memory, are those of a call.
  Result operator()(FrozenInput<kInput>... inputs, SourceLocation where = SourceLocation::current()) const {
    const std::array<const Tensor*, sizeof...(kInput)> all{&inputs...};
    std::array<Tensor, 4> few;
    std::vector<Tensor> many(count_ > few.size() ? count_ : 0);
    const std::span<Tensor> results(count_ > few.size() ? many.data() : few.data(), count_);
    run_frozen(*plan_, all, results, where);
    if constexpr (!std::is_void_v<Result>) {
      ResultReader reader{results.data(), lengths_.data()};
      return ResultOf<Result>::make(reader);
    }
  }

 private:
  std::shared_ptr<const FrozenPlan> plan_;
  size_t count_;
  std::vector<size_t> lengths_;
};

}  // namespace detail

/// What Compiled::freeze() gives: a callable. Copies share the plan. May be called from many threads at once.
template <class Result, size_t kInputs>
class Frozen : public detail::FrozenCall<Result, std::make_index_sequence<kInputs>> {
  using detail::FrozenCall<Result, std::make_index_sequence<kInputs>>::FrozenCall;
};

}  // namespace etch
