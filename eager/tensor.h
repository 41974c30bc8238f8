// Tensor: a small value handle over a shared descriptor, with views, operators and the autograd tape.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "runtime/device.h"
#include "runtime/dtype.h"
#include "runtime/philox.h"
#include "runtime/ref.h"
#include "runtime/shape.h"
#include "runtime/source_location.h"
#include "runtime/storage.h"

namespace etch {

class Tensor;
class TapeNode;
struct AutogradMeta;

/// The descriptor behind a Tensor. For the layers that run ops; users see Tensor.
struct TensorImpl final : RefCounted {
  Ref<Storage> storage;
  Geometry geometry;
  int64_t offset = 0;  ///< elements
  DType dtype = DType::F32;
  bool requires_grad = false;  ///< set by the user on a leaf; non-leaves have a grad_fn instead
  bool is_view = false;
  uint32_t view_version = 0;  ///< of a view: the storage's version when its history was last looked up
  /// Of a view made while gradients were enabled: the tensor that owns the elements, never a view with a base
  /// itself. A write into either is part of the other's history.
  Ref<TensorImpl> base;
  std::unique_ptr<AutogradMeta> autograd;

  TensorImpl();
  ~TensorImpl();
  static void destroy(TensorImpl* impl);
  static void* operator new(size_t bytes);
  static void operator delete(void* data) noexcept;
};

/// Half-open range of an axis with a positive step; negative positions count from the end. Slice() is the
/// whole axis.
struct Slice {
  std::optional<int64_t> start, stop;
  int64_t step = 1;

  Slice() = default;
  Slice(std::optional<int64_t> from, std::optional<int64_t> to, int64_t by = 1)
      : start(from), stop(to), step(by) {}
};

/// One element of x[{...}]: a position (drops the axis), a Slice, or kNewAxis.
struct Index {
  enum class Kind : uint8_t { Position, Range, NewAxis } kind;
  int64_t position = 0;
  Slice range;

  Index(int at) : kind(Kind::Position), position(at) {}
  Index(int64_t at) : kind(Kind::Position), position(at) {}
  Index(Slice slice) : kind(Kind::Range), range(slice) {}
  explicit Index(Kind k) : kind(k) {}
};
inline const Index kNewAxis{Index::Kind::NewAxis};

/// Options of factories. f32 on the CPU, not requiring gradients, unless given.
struct TensorOptions {
  std::optional<DType> dtype = {};
  Device device = {};
  bool requires_grad = false;
};

/// Sizes written as plain numbers: zeros(2, 3), x.view(-1).
template <class T>
concept Extent = std::integral<T> && !std::same_as<T, bool>;

struct BackwardOptions {
  bool retain_graph = false;
  bool create_graph = false;  ///< implies retain_graph; zero_grad() when done: leaf and .grad keep each other
};

/// An n-dimensional array. Copies share the same descriptor; views share storage.
class Tensor {
 public:
  Tensor() = default;
  explicit Tensor(Ref<TensorImpl> impl) : impl_(std::move(impl)) {}
  Tensor(const Tensor&) = default;
  Tensor(Tensor&&) = default;
  ~Tensor() = default;
  /// A variable becomes a handle of the other tensor: y = x copies no elements.
  Tensor& operator=(const Tensor&) & = default;
  Tensor& operator=(Tensor&&) & = default;
  /// What an expression gives is written: x[0] = y is x[0].copy_(y), x.slice(0, 1, 3) = 0.5 fills.
  Tensor& operator=(const Tensor& source) && { return copy_(source); }
  Tensor& operator=(Scalar value) && { return fill_(value); }

  bool defined() const { return static_cast<bool>(impl_); }
  /// As all members but defined(), ref(), is_same() and to_string(): throws ValueError if undefined.
  TensorImpl& impl() const {
    if (!impl_) [[unlikely]]
      fail_undefined();
    return *impl_;
  }
  const Ref<TensorImpl>& ref() const { return impl_; }
  /// The same descriptor, not equal values.
  bool is_same(const Tensor& other) const { return impl_ == other.impl_; }

  const Dims& sizes() const { return impl().geometry.sizes; }
  const Dims& strides() const { return impl().geometry.strides; }
  int64_t size(int64_t axis) const;
  int ndim() const { return impl().geometry.ndim(); }
  int dim() const { return ndim(); }
  int64_t numel() const { return impl().geometry.numel(); }
  DType dtype() const { return impl().dtype; }
  Device device() const { return impl().storage->device(); }
  bool is_contiguous() const { return etch::is_contiguous(impl().geometry); }
  int64_t storage_offset() const { return impl().offset; }
  Storage& storage() const { return *impl().storage; }

  // Host access. Inside a traced function each of these flushes what is pending on the tensor.

  /// The single element; throws ShapeError unless numel() is 1.
  template <class T>
  T item(SourceLocation where = SourceLocation::current()) const;
  /// All elements in logical (row-major) order, converted to T.
  template <class T>
  std::vector<T> to_vector(SourceLocation where = SourceLocation::current()) const;
  /// The first element's address for reading; T must be the dtype's C++ type. Valid until the next op.
  template <class T>
  const T* data(SourceLocation where = SourceLocation::current()) const {
    return static_cast<const T*>(read_pointer(dtype_of<T>, where));
  }
  /// The same for writing: counts as an in-place write of the whole storage, so a backward that needs the old
  /// elements throws. The tape cannot see what is written: a result keeps its history, and gradients flow as
  /// if its op had made the new elements. AutogradError on a leaf that requires gradients.
  template <class T>
  T* mutable_data(SourceLocation where = SourceLocation::current()) {
    return static_cast<T*>(write_pointer(dtype_of<T>, where));
  }
  /// Writes one element from the host.
  void set(std::initializer_list<int64_t> index, Scalar value,
           SourceLocation where = SourceLocation::current());
  /// PyTorch's manner: nested brackets, four digits, large tensors summarised.
  std::string to_string() const;

  // Views: no copy, gradients flow back. Writing a view in place writes the tensor it looks at, and the tape
  // follows: both take the new history, whichever of them was written.

  /// The same elements in other sizes; one size may be -1. Throws ShapeError where strides do not allow it.
  Tensor view(const Dims& sizes) const;
  template <Extent... Sizes>
  requires(sizeof...(Sizes) > 0) Tensor view(Sizes... sizes)
  const { return view(Dims{static_cast<int64_t>(sizes)...}); }
  /// view() where possible, else of a contiguous copy.
  Tensor reshape(const Dims& sizes) const;
  template <Extent... Sizes>
  requires(sizeof...(Sizes) > 0) Tensor reshape(Sizes... sizes)
  const { return reshape(Dims{static_cast<int64_t>(sizes)...}); }
  Tensor flatten(int64_t from = 0, int64_t to = -1) const;
  Tensor permute(const Dims& axes) const;
  template <Extent... Axis>
  requires(sizeof...(Axis) > 0) Tensor permute(Axis... axes)
  const { return permute(Dims{static_cast<int64_t>(axes)...}); }
  Tensor transpose(int64_t axis_a, int64_t axis_b) const;
  /// The transpose of a matrix.
  Tensor t() const { return transpose(0, 1); }
  /// Without an axis of size 1; without an argument: without any.
  Tensor squeeze(int64_t axis) const;
  Tensor squeeze() const;
  Tensor unsqueeze(int64_t axis) const;
  /// Broadcast to `sizes` with stride 0.
  Tensor expand(const Dims& sizes) const;
  template <Extent... Sizes>
  requires(sizeof...(Sizes) > 0) Tensor expand(Sizes... sizes)
  const { return expand(Dims{static_cast<int64_t>(sizes)...}); }
  Tensor view_as(const Tensor& other) const { return view(other.sizes()); }
  Tensor expand_as(const Tensor& other) const { return expand(other.sizes()); }
  /// Positions [start, stop) by `step` of one axis; clipped like Python's slices.
  Tensor slice(int64_t axis, int64_t start, int64_t stop, int64_t step = 1) const;
  /// One position of an axis, which is dropped. Throws IndexError.
  Tensor select(int64_t axis, int64_t position) const;
  /// `length` positions of an axis from `start` on, below 0 from its end. Throws IndexError.
  Tensor narrow(int64_t axis, int64_t start, int64_t length) const;
  std::vector<Tensor> split(int64_t size, int64_t axis = 0) const;
  std::vector<Tensor> chunk(int64_t count, int64_t axis = 0) const;
  /// Each position of an axis, which is dropped.
  std::vector<Tensor> unbind(int64_t axis = 0) const;
  Tensor operator[](std::initializer_list<Index> indices) const;
  Tensor operator[](int64_t position) const { return select(0, position); }

  // Copies.

  Tensor contiguous() const;
  Tensor channels_last() const;
  Tensor clone() const;
  /// This dtype; the tensor itself if it has it already.
  Tensor to(DType dtype) const;
  Tensor to(Device device) const;
  /// Reversed along the axes.
  Tensor flip(const Axes& axes) const;

  // Reductions. No axes: over all. Negative axes count from the end.

  Tensor sum(const Axes& axes = {}, bool keepdim = false) const;
  Tensor prod(const Axes& axes = {}, bool keepdim = false) const;
  Tensor mean(const Axes& axes = {}, bool keepdim = false) const;
  /// Two-pass variance; correction 1 divides by n - 1.
  Tensor var(const Axes& axes = {}, int64_t correction = 1, bool keepdim = false) const;
  /// The square root of var().
  Tensor std(const Axes& axes = {}, int64_t correction = 1, bool keepdim = false) const {
    return var(axes, correction, keepdim).sqrt();
  }
  Tensor amax(const Axes& axes = {}, bool keepdim = false) const;
  Tensor amin(const Axes& axes = {}, bool keepdim = false) const;
  Tensor max() const { return amax(); }
  Tensor min() const { return amin(); }
  Tensor any(const Axes& axes = {}, bool keepdim = false) const;
  Tensor all(const Axes& axes = {}, bool keepdim = false) const;
  /// i64 index along `axis`; of the flattened tensor if none is given.
  Tensor argmax(std::optional<int64_t> axis = {}, bool keepdim = false) const;
  Tensor argmin(std::optional<int64_t> axis = {}, bool keepdim = false) const;

  // Others.

  /// Vectors, matrices and batches of matrices, as PyTorch's matmul.
  Tensor matmul(const Tensor& other) const;
  Tensor softmax(int64_t axis) const;
  Tensor log_softmax(int64_t axis) const;
  // By index. Indices are integers in [0, size(axis)): DTypeError for other dtypes, IndexError for positions
  // outside (inside a traced function: when it is flushed). Repeated indices add up in order. ShapeError for
  // sizes other than described.

  /// The slices at `index` [K] along an axis: the same sizes but K at `axis`.
  Tensor index_select(int64_t axis, const Tensor& index) const;
  /// result[.., i, ..] = this[.., index[.., i, ..], ..] along an axis. `index` has as many dimensions, and
  /// apart from `axis` at most the extents; the result has its sizes.
  Tensor gather(int64_t axis, const Tensor& index) const;
  /// A copy with source[.., i, ..] added at [.., index[.., i, ..], ..], for the extents of `index`: the
  /// reverse of gather. `source` has at least those extents and is converted to this dtype.
  Tensor scatter_add(int64_t axis, const Tensor& index, const Tensor& source) const;
  /// A copy with slice k of `source` added at index[k], for `index` [K]. `source` has these sizes but K at
  /// `axis` and is converted to this dtype.
  Tensor index_add(int64_t axis, const Tensor& index, const Tensor& source) const;
  /// `value` where the bool mask holds.
  Tensor masked_fill(const Tensor& mask, Scalar value) const;

  // The rows of tracer/ops.def with one operand or two: x.exp(), x.add(y), x.mul(2.0). As the functions
  // below.
#define ETCH_METHOD_1(name) Tensor name() const;
#define ETCH_METHOD_2(name) Tensor name(const class Arg& other) const;
#define ETCH_METHOD_3(name)
#define ETCH_METHOD_4(name)
#define ETCH_POINTWISE(name, arity, ...) ETCH_METHOD_##arity(name)
#include "tracer/ops.def"
  Tensor clamp(Scalar low, Scalar high) const;

  // In place: the result takes this tensor's dtype and sizes, and bumps the storage's version. AutogradError
  // on a leaf that requires gradients and on views of one; ShapeError on expanded tensors, whose elements
  // coincide.

  Tensor& add_(const class Arg& other);
  Tensor& sub_(const class Arg& other);
  Tensor& mul_(const class Arg& other);
  Tensor& div_(const class Arg& other);
  Tensor& copy_(const Tensor& source);
  Tensor& fill_(Scalar value);
  Tensor& zero_() { return fill_(0); }
  Tensor& clamp_(Scalar low, Scalar high);
  Tensor& relu_();
  Tensor& uniform_(double low = 0, double high = 1);
  Tensor& normal_(double mean = 0, double stddev = 1);

  // Autograd.

  /// A leaf that asks for gradients, or computed from one while gradients were enabled.
  bool requires_grad() const;
  Tensor& requires_grad_(bool requires_grad = true);
  bool is_leaf() const;
  /// Undefined until a backward pass reaches this leaf (or retain_grad() tensor).
  const Tensor& grad() const;
  void set_grad(Tensor grad);
  void zero_grad() { set_grad({}); }
  /// Name of the tape node that made this tensor, e.g. "MulBackward"; empty for leaves.
  std::string grad_fn() const;
  /// Keep .grad of this non-leaf as well.
  void retain_grad();
  /// The same values, cut off from the tape.
  Tensor detach() const;
  /// Runs the tape from here. `gradient` may be left out for one-element tensors. Gradients add up in .grad
  /// of leaves.
  void backward(const Tensor& gradient = {}, BackwardOptions options = {}) const;
  /// Calls `hook` with the gradient when it is computed; a defined result replaces it.
  void register_hook(std::function<Tensor(const Tensor&)> hook);

 private:
  const void* read_pointer(DType expected, SourceLocation where) const;
  void* write_pointer(DType expected, SourceLocation where);
  [[noreturn]] static void fail_undefined();

  Ref<TensorImpl> impl_;
};

std::ostream& operator<<(std::ostream& out, const Tensor& tensor);

/// An operand: a tensor or a C++ number. Refers to the tensor; lives only within a call.
class Arg {
 public:
  Arg(const Tensor& tensor) : tensor_(&tensor) {}
  Arg(Scalar scalar) : scalar_(scalar) {}
  template <class T>
  requires std::is_arithmetic_v<T> Arg(T value) : scalar_(value) {}

  bool is_tensor() const { return tensor_ != nullptr; }
  const Tensor& tensor() const { return *tensor_; }
  Scalar scalar() const { return scalar_; }

 private:
  const Tensor* tensor_ = nullptr;
  Scalar scalar_;
};

// --- Factories. Sizes in braces or, without options, as plain numbers: zeros({2, 3}), zeros(2, 3).

Tensor empty(const Dims& sizes, TensorOptions options = {});
Tensor zeros(const Dims& sizes, TensorOptions options = {});
Tensor ones(const Dims& sizes, TensorOptions options = {});
Tensor full(const Dims& sizes, Scalar value, TensorOptions options = {});
Tensor zeros_like(const Tensor& like);
Tensor ones_like(const Tensor& like);
Tensor full_like(const Tensor& like, Scalar value);
/// start, start + step, ... below stop. Integers give i64, floats f32.
Tensor arange(Scalar start, Scalar stop, Scalar step = 1, TensorOptions options = {});
inline Tensor arange(Scalar stop) { return arange(0, stop); }
#define ETCH_PLAIN_SIZES(function)                                 \
  template <Extent... Sizes>                                       \
  requires(sizeof...(Sizes) > 0) Tensor function(Sizes... sizes) { \
    return function(Dims{static_cast<int64_t>(sizes)...});         \
  }
ETCH_PLAIN_SIZES(empty)
ETCH_PLAIN_SIZES(zeros)
ETCH_PLAIN_SIZES(ones)
/// A 0-d tensor.
Tensor scalar_tensor(Scalar value, TensorOptions options = {});
/// Row-major values. Throws ShapeError when the count differs from the sizes' product.
template <class T>
Tensor from_vector(const std::vector<T>& values, const Dims& sizes, TensorOptions options = {});
template <class T>
Tensor from_vector(const std::vector<T>& values) {
  return from_vector(values, {static_cast<int64_t>(values.size())});
}
/// A 1-d or 2-d f32 tensor written out: tensor({1, 2, 3}), tensor({{1, 2}, {3, 4}}).
Tensor tensor(std::initializer_list<Scalar> values);
Tensor tensor(std::initializer_list<std::initializer_list<float>> rows);
/// Wraps `data` without a copy; `release` runs when the last tensor over it goes. Others may write it behind
/// Etch's back: traces take a snapshot at their first read, unless `stable` promises that nobody does.
struct BlobOptions {
  DType dtype = DType::F32;
  std::function<void()> release = {};
  bool stable = false;
};
Tensor from_blob(void* data, const Dims& sizes, BlobOptions options = {});

/// Uniform in [0, 1), standard normal, 1 with probability p. From `generator` (null: the default one).
Tensor rand(const Dims& sizes, TensorOptions options = {}, Generator* generator = nullptr);
Tensor randn(const Dims& sizes, TensorOptions options = {}, Generator* generator = nullptr);
ETCH_PLAIN_SIZES(rand)
ETCH_PLAIN_SIZES(randn)
#undef ETCH_PLAIN_SIZES
Tensor bernoulli(const Dims& sizes, double p, TensorOptions options = {}, Generator* generator = nullptr);
/// Integers in [low, high), i64.
Tensor randint(int64_t low, int64_t high, const Dims& sizes, Generator* generator = nullptr);

// --- Pointwise functions and operators: one function a row of tracer/ops.def, named like it

#define ETCH_ARGS_1 const Arg& a
#define ETCH_ARGS_2 const Arg &a, const Arg &b
#define ETCH_ARGS_3 const Arg &a, const Arg &b, const Arg &c
#define ETCH_ARGS_4 const Arg &a, const Arg &b, const Arg &c, const Arg &d
#define ETCH_POINTWISE(name, arity, ...) Tensor name(ETCH_ARGS_##arity);
#define ETCH_GENERATOR(...)
#define ETCH_REDUCTION(...)
#define ETCH_OP(...)
#define ETCH_COMPOSITE(...)
#include "tracer/ops.def"

#define ETCH_OPERATOR(symbol, function)                                                      \
  inline Tensor operator symbol(const Tensor& a, const Tensor& b) { return function(a, b); } \
  inline Tensor operator symbol(const Tensor& a, Scalar b) { return function(a, b); }        \
  inline Tensor operator symbol(Scalar a, const Tensor& b) { return function(a, b); }
ETCH_OPERATOR(+, add)
ETCH_OPERATOR(-, sub)
ETCH_OPERATOR(*, mul)
ETCH_OPERATOR(/, div)
ETCH_OPERATOR(==, eq)
ETCH_OPERATOR(!=, ne)
ETCH_OPERATOR(<, lt)
ETCH_OPERATOR(<=, le)
ETCH_OPERATOR(>, gt)
ETCH_OPERATOR(>=, ge)
#undef ETCH_OPERATOR
inline Tensor operator-(const Tensor& a) { return neg(a); }
inline Tensor& operator+=(Tensor& a, const Arg& b) { return a.add_(b); }
inline Tensor& operator-=(Tensor& a, const Arg& b) { return a.sub_(b); }
inline Tensor& operator*=(Tensor& a, const Arg& b) { return a.mul_(b); }
inline Tensor& operator/=(Tensor& a, const Arg& b) { return a.div_(b); }
// Through a view: x[0] += y.
inline Tensor operator+=(Tensor&& a, const Arg& b) { return a.add_(b); }
inline Tensor operator-=(Tensor&& a, const Arg& b) { return a.sub_(b); }
inline Tensor operator*=(Tensor&& a, const Arg& b) { return a.mul_(b); }
inline Tensor operator/=(Tensor&& a, const Arg& b) { return a.div_(b); }

// The methods of these names.
inline Tensor matmul(const Tensor& a, const Tensor& b) { return a.matmul(b); }
inline Tensor sum(const Tensor& x, const Axes& axes = {}, bool keepdim = false) {
  return x.sum(axes, keepdim);
}
inline Tensor mean(const Tensor& x, const Axes& axes = {}, bool keepdim = false) {
  return x.mean(axes, keepdim);
}
inline Tensor softmax(const Tensor& x, int64_t axis) { return x.softmax(axis); }
inline Tensor log_softmax(const Tensor& x, int64_t axis) { return x.log_softmax(axis); }
inline Tensor flatten(const Tensor& x, int64_t from = 0, int64_t to = -1) { return x.flatten(from, to); }

// --- Joining

/// Joins along an existing axis. Dtypes promote; sizes agree apart from `axis` (ShapeError). ValueError for
/// no tensors.
Tensor concat(const std::vector<Tensor>& tensors, int64_t axis = 0);
inline Tensor cat(const std::vector<Tensor>& tensors, int64_t axis = 0) { return concat(tensors, axis); }
/// Along a new axis.
Tensor stack(const std::vector<Tensor>& tensors, int64_t axis = 0);
/// `before` and `after` elements of `value` around each of the last axes: pairs from the last axis backwards.
Tensor pad(const Tensor& x, const std::vector<std::pair<int64_t, int64_t>>& amounts, Scalar value = 0);

// --- Gradient mode

bool grad_enabled();
/// While alive, ops on this thread are not recorded on the tape.
class NoGrad {
 public:
  NoGrad();
  ~NoGrad();
  NoGrad(const NoGrad&) = delete;
  NoGrad& operator=(const NoGrad&) = delete;

 private:
  bool previous_;
};
/// Runs f without the tape.
template <class F>
decltype(auto) no_grad(F&& f) {
  NoGrad guard;
  return std::forward<F>(f)();
}

}  // namespace etch
