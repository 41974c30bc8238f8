// The generator behind random_program().
#include "tests/jit/random_program.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "tracer/attrs.h"

namespace etch::test {
namespace {

struct Tensor {
  int buffer;
  DType dtype;
  Geometry geometry;
  int64_t offset;
};

class Builder {
 public:
  Builder(uint64_t seed, const RandomOptions& options) : rng_(seed), options_(options) {}
  Program build();

 private:
  int pick(int count) { return static_cast<int>(rng_() % static_cast<uint64_t>(count)); }
  bool chance(int percent) { return pick(100) < percent; }
  template <class T, size_t N>
  T one_of(const T (&list)[N]) {
    return list[pick(N)];
  }

  GraphOperand window(const Tensor& tensor) {
    GraphOperand operand;
    operand.kind = GraphOperand::Kind::Tensor;
    operand.dtype = tensor.dtype;
    operand.buffer = tensor.buffer;
    operand.geometry = tensor.geometry;
    operand.slot = static_cast<int>(program_.values.size());
    program_.values.push_back({tensor.offset, {}});
    return operand;
  }
  GraphOperand scalar(Scalar value, DType dtype) {
    GraphOperand operand;
    operand.kind = GraphOperand::Kind::Scalar;
    operand.dtype = dtype;
    operand.scalar = value.kind() == Scalar::Kind::Int ? Scalar(int64_t{0}) : Scalar(0.0);
    operand.slot = static_cast<int>(program_.values.size());
    program_.values.push_back({0, value});
    return operand;
  }
  Scalar random_scalar() {
    if (chance(20)) return int64_t{pick(5) - 2};
    const double values[] = {0.5, -0.0, 1.25, -2.0, 3.0};
    return one_of(values);
  }

  Tensor fresh(DType dtype, const Dims& sizes, bool transposed = false) {
    Geometry geometry = contiguous(sizes);
    if (transposed && sizes.size() == 2) geometry.strides = {1, sizes[0]};
    const int64_t bytes = geometry.numel() * static_cast<int64_t>(item_size(dtype));
    return {program_.graph.add_buffer(GraphBuffer::Kind::Internal, bytes, next_number()), dtype, geometry, 0};
  }
  int next_number() const { return static_cast<int>(program_.graph.buffers.size()); }
  Tensor external(DType dtype, const Dims& sizes);
  void emit(Op op, std::vector<GraphOperand> inputs, const std::vector<Tensor>& outputs, Attrs attrs = {}) {
    Node node{op, attrs, std::move(inputs), {}, nullptr};
    for (const Tensor& output : outputs) node.outputs.push_back(window(output));
    program_.graph.nodes.push_back(std::move(node));
  }

  const Tensor& any(DType dtype);
  Tensor view_of(const Tensor& tensor);
  Tensor shaped(DType dtype, const Dims& sizes);
  void pointwise();
  void reduce();
  void product();
  void in_place();
  void concatenate();
  void generate();
  void softmax();

  std::mt19937_64 rng_;
  RandomOptions options_;
  Program program_;
  std::vector<Tensor> tensors_;
  int64_t rows_ = 1, columns_ = 1;
};

Tensor Builder::external(DType dtype, const Dims& sizes) {
  Tensor tensor{
      program_.graph.add_buffer(GraphBuffer::Kind::External,
                                num_elements(sizes) * static_cast<int64_t>(item_size(dtype)), next_number()),
      dtype, contiguous(sizes), 0};
  std::vector<char> bytes(static_cast<size_t>(program_.graph.buffers.back().bytes));
  visit_dtype(dtype, [&]<class T>() {
    for (int64_t i = 0; i < num_elements(sizes); ++i) {
      double value = std::uniform_real_distribution<double>(-3, 3)(rng_);
      if (is_floating(dtype) && chance(6)) {
        const double special[] = {std::nan(""), HUGE_VAL, -HUGE_VAL, -0.0, 0.0};
        value = one_of(special);
      }
      if constexpr (std::is_arithmetic_v<T>) {
        const T item = static_cast<T>(value);
        std::memcpy(bytes.data() + i * static_cast<int64_t>(sizeof(T)), &item, sizeof(T));
      }
    }
  });
  program_.contents.resize(program_.graph.buffers.size());
  program_.contents.back() = std::move(bytes);
  return tensor;
}

const Tensor& Builder::any(DType dtype) {
  // The latest ones are likelier.
  for (int tries = 0; tries < 40; ++tries) {
    const int count = static_cast<int>(tensors_.size());
    const int at = chance(60) ? count - 1 - pick(std::min(count, 6)) : pick(count);
    if (tensors_[at].dtype == dtype) return tensors_[at];
  }
  for (const Tensor& tensor : tensors_)
    if (tensor.dtype == dtype) return tensor;
  tensors_.push_back(fresh(dtype, {rows_, columns_}));
  emit(Op::copy, {scalar(1.5, dtype)}, {tensors_.back()}, pack_sizes({rows_, columns_}));
  return tensors_.back();
}

/// Slices, transposes and drops dimensions.
Tensor Builder::view_of(const Tensor& tensor) {
  Tensor view = tensor;
  if (view.geometry.ndim() == 0 || view.geometry.numel() == 0) return view;
  const int axis = pick(view.geometry.ndim());
  switch (pick(4)) {
    case 0:
      if (view.geometry.sizes[axis] > 1) {
        const int64_t start = pick(static_cast<int>(view.geometry.sizes[axis]));
        view.offset += start * view.geometry.strides[axis];
        view.geometry.sizes[axis] = 1 + pick(static_cast<int>(view.geometry.sizes[axis] - start));
      }
      break;
    case 1:
      if (view.geometry.ndim() == 2) {
        std::swap(view.geometry.sizes[0], view.geometry.sizes[1]);
        std::swap(view.geometry.strides[0], view.geometry.strides[1]);
      }
      break;
    case 2:
      view.offset += pick(static_cast<int>(view.geometry.sizes[axis])) * view.geometry.strides[axis];
      view.geometry.sizes.erase(axis);
      view.geometry.strides.erase(axis);
      break;
    default:
      break;
  }
  return view;
}

/// Some tensor, or view of one, that broadcasts to the sizes.
Tensor Builder::shaped(DType dtype, const Dims& sizes) {
  for (int tries = 0; tries < 20; ++tries) {
    Tensor tensor = any(dtype);
    if (chance(25)) tensor = view_of(tensor);
    if (can_broadcast_to(tensor.geometry.sizes, sizes)) {
      if (chance(30)) tensor.geometry = broadcast_to(tensor.geometry, sizes);
      return tensor;
    }
  }
  Tensor tensor = fresh(dtype, sizes);
  emit(Op::copy, {scalar(random_scalar(), compute_dtype(dtype))}, {tensor}, pack_sizes(sizes));
  tensors_.push_back(tensor);
  return tensor;
}

void Builder::pointwise() {
  const DType dtype = chance(80) ? DType::F32 : chance(50) ? DType::F64 : DType::I64;
  Tensor first = any(dtype);
  if (chance(30)) first = view_of(first);
  const Dims sizes = first.geometry.sizes;
  const bool transposed = chance(15);
  switch (pick(6)) {
    case 0: {
      const Op ops[] = {Op::neg, Op::abs, Op::relu, Op::square, Op::sign};
      const Op floats[] = {Op::exp, Op::tanh, Op::sigmoid, Op::gelu, Op::rsqrt};
      tensors_.push_back(fresh(dtype, sizes, transposed));
      emit(is_floating(dtype) && chance(60) ? one_of(floats) : one_of(ops), {window(first)},
           {tensors_.back()});
      return;
    }
    case 1: {
      const DType to = one_of({DType::F32, DType::F64, DType::F32, DType::I64, DType::BF16});
      // What a cast of NaN to an integer gives is not laid down.
      const DType target = is_floating(dtype) && !is_floating(to) ? DType::F32 : to;
      tensors_.push_back(fresh(target, sizes, transposed));
      emit(Op::copy, {window(first)}, {tensors_.back()});
      return;
    }
    case 2: {
      Tensor condition = fresh(DType::Bool, sizes);
      const Op ops[] = {Op::lt, Op::ge, Op::eq};
      emit(one_of(ops), {window(first), window(shaped(dtype, sizes))}, {condition});
      Tensor result = fresh(dtype, sizes);
      const Tensor other = shaped(dtype, sizes);
      emit(Op::where, {window(condition), window(first), window(other)}, {result});
      tensors_.push_back(condition);
      tensors_.push_back(result);
      return;
    }
    case 3: {
      tensors_.push_back(fresh(dtype, sizes, transposed));
      const Scalar value = is_floating(dtype) ? random_scalar() : Scalar(int64_t{pick(5) - 2});
      const Op ops[] = {Op::add, Op::mul, Op::sub};
      const Tensor output = tensors_.back();
      emit(one_of(ops), {window(first), scalar(value, dtype)}, {output});
      return;
    }
    default: {
      const Op ops[] = {Op::add, Op::mul, Op::sub, Op::maximum, Op::add};
      const Tensor second = shaped(dtype, sizes);
      const Tensor output = fresh(dtype, sizes, transposed);
      const Op op = one_of(ops);
      if (chance(50))
        emit(op, {window(first), window(second)}, {output});
      else
        emit(op, {window(second), window(first)}, {output});
      tensors_.push_back(output);
      return;
    }
  }
}

void Builder::reduce() {
  const Tensor operand = any(chance(85) ? DType::F32 : DType::I64);
  const int ndim = operand.geometry.ndim();
  if (ndim == 0 || operand.geometry.numel() == 0) return;
  const ReductionAttrs attrs(chance(30) ? (uint64_t{1} << ndim) - 1 : uint64_t{1} << pick(ndim), chance(60));
  Dims sizes;
  for (int i = 0; i < ndim; ++i) {
    const bool reduced = attrs.axes >> i & 1;
    if (!reduced || attrs.keepdim) sizes.push_back(reduced ? 1 : operand.geometry.sizes[i]);
  }
  const Op ops[] = {Op::sum, Op::amax, Op::sum, Op::amin};
  tensors_.push_back(fresh(operand.dtype, sizes));
  emit(one_of(ops), {window(operand)}, {tensors_.back()}, attrs.pack());
}

void Builder::product() {
  const Tensor a = any(DType::F32);
  Tensor b = any(DType::F32);
  if (options_.wide && chance(80)) b = a;
  if (a.geometry.ndim() != 2 || b.geometry.ndim() != 2) return;
  Tensor right = b;
  if (right.geometry.sizes[0] != a.geometry.sizes[1]) {
    std::swap(right.geometry.sizes[0], right.geometry.sizes[1]);
    std::swap(right.geometry.strides[0], right.geometry.strides[1]);
  }
  if (right.geometry.sizes[0] != a.geometry.sizes[1]) return;
  if (a.geometry.sizes[0] * right.geometry.sizes[1] > 20000) return;
  tensors_.push_back(fresh(DType::F32, {a.geometry.sizes[0], right.geometry.sizes[1]}));
  emit(Op::matmul, {window(a), window(right)}, {tensors_.back()});
}

/// Writes over a window of a tensor, often one that the op reads.
void Builder::in_place() {
  Tensor target = any(DType::F32);
  if (chance(40)) target = view_of(target);
  if (may_self_overlap(target.geometry)) return;
  const Dims& sizes = target.geometry.sizes;
  Tensor other = shaped(DType::F32, sizes);
  other.geometry = broadcast_to(other.geometry, sizes);
  const Op ops[] = {Op::add, Op::mul, Op::sub};
  if (chance(20))
    emit(Op::copy, {window(other)}, {target});
  else if (chance(20))
    emit(Op::copy, {scalar(random_scalar(), DType::F32)}, {target}, pack_sizes(sizes));
  else
    emit(one_of(ops), {window(target), window(other)}, {target});
}

/// Two tensors side by side in a new buffer, each written by its own node.
void Builder::concatenate() {
  const Tensor a = any(DType::F32), b = any(DType::F32);
  const int64_t n = a.geometry.numel(), m = b.geometry.numel();
  if (n == 0 || m == 0) return;
  const Tensor whole = fresh(DType::F32, {n + m});
  Tensor left = whole, right = whole;
  left.geometry = contiguous(a.geometry.sizes);
  right.geometry = contiguous(b.geometry.sizes);
  right.offset = n;
  emit(Op::copy, {window(a)}, {left});
  emit(Op::copy, {window(b)}, {right});
  tensors_.push_back(whole);
  tensors_.push_back(chance(50) ? left : right);
}

void Builder::generate() {
  const Dims sizes{rows_, columns_};
  tensors_.push_back(fresh(DType::F32, sizes));
  emit(chance(50) ? Op::uniform : Op::normal,
       {scalar(int64_t{pick(1000)}, DType::I64), scalar(int64_t{pick(1000)}, DType::I64)}, {tensors_.back()},
       pack_sizes(sizes));
}

void Builder::softmax() {
  const Tensor operand = any(DType::F32);
  if (operand.geometry.ndim() == 0 || operand.geometry.numel() == 0) return;
  tensors_.push_back(fresh(DType::F32, operand.geometry.sizes));
  emit(Op::softmax, {window(operand)}, {tensors_.back()}, AxisAttrs(pick(operand.geometry.ndim())).pack());
}

Program Builder::build() {
  rows_ = 1 + pick(9);
  columns_ = chance(15) ? 300 + pick(200) : 1 + pick(40);
  if (options_.wide) {
    rows_ = 2 + pick(3);
    columns_ = 1024 + pick(9);
  }
  tensors_.push_back(external(DType::F32, {rows_, columns_}));
  tensors_.push_back(external(DType::F32, {rows_, columns_}));
  tensors_.push_back(external(DType::F32, {columns_}));
  tensors_.push_back(external(DType::F32, {rows_, 1}));
  tensors_.push_back(external(DType::F32, {columns_, rows_}));
  tensors_.push_back(external(DType::F64, {rows_, columns_}));
  tensors_.push_back(external(DType::I64, {rows_, columns_}));
  tensors_.push_back(external(DType::F32, {}));
  while (static_cast<int>(program_.graph.nodes.size()) < options_.nodes) {
    const int kind = pick(options_.wide ? 120 : 100);
    if (kind < 55)
      pointwise();
    else if (kind < 68)
      reduce();
    else if (kind < 76)
      in_place();
    else if (kind < 82)
      concatenate();
    else if (kind < 86)
      generate();
    else if (kind < 90)
      softmax();
    else if (options_.heavy)
      product();
  }
  Graph& graph = program_.graph;
  std::vector<bool> written(graph.buffers.size(), false);
  for (const Node& node : graph.nodes)
    for (const GraphOperand& output : node.outputs) written[output.buffer] = true;
  for (size_t b = 0; b < graph.buffers.size(); ++b)
    if (graph.buffers[b].kind == GraphBuffer::Kind::Internal && written[b] && chance(20))
      graph.buffers[b].kind = GraphBuffer::Kind::Output;
  graph.num_slots = static_cast<int>(program_.values.size());
  program_.contents.resize(graph.buffers.size());
  return std::move(program_);
}

}  // namespace

Program random_program(uint64_t seed, const RandomOptions& options) { return Builder(seed, options).build(); }

}  // namespace etch::test
