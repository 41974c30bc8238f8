// Making tensors: constants, ranges, host data, random numbers.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "eager/apply.h"

namespace etch {

namespace {

Tensor finish(Tensor tensor, const TensorOptions& options) {
  if (options.requires_grad) tensor.requires_grad_();
  return tensor;
}

Tensor generate(Op op, std::initializer_list<Arg> operands, const Dims& sizes, const TensorOptions& options,
                DType fallback) {
  check_sizes(name(op), sizes);
  return finish(apply(op, operands, pack_sizes(sizes), options.dtype.value_or(fallback)), options);
}

PhiloxState draw(Generator* generator, const Dims& sizes) {
  check_sizes("random", sizes);
  return (generator ? *generator : default_generator()).reserve(num_elements(sizes));
}

Arg seed_of(PhiloxState state) { return Scalar(static_cast<int64_t>(state.seed)); }
Arg offset_of(PhiloxState state) { return Scalar(static_cast<int64_t>(state.offset)); }

}  // namespace

Tensor empty(const Dims& sizes, TensorOptions options) {
  check_sizes("empty", sizes);
  // Not deferred, so that uninitialised bytes exist even if no op ever writes them.
  const DType dtype = options.dtype.value_or(DType::F32);
  const Geometry geometry = contiguous(sizes);
  return finish(
      make_tensor(Storage::allocate(options.device, static_cast<size_t>(geometry.numel()) * item_size(dtype)),
                  geometry, 0, dtype),
      options);
}

Tensor full(const Dims& sizes, Scalar value, TensorOptions options) {
  check_sizes("full", sizes);
  Tensor result =
      make_empty(contiguous(sizes), options.dtype.value_or(value.default_dtype()), options.device);
  result.fill_(value);
  result.storage().last_writer = Storage::kNoWriter;
  return finish(result, options);
}
Tensor zeros(const Dims& sizes, TensorOptions options) { return full(sizes, 0.0, options); }
Tensor ones(const Dims& sizes, TensorOptions options) { return full(sizes, 1.0, options); }
Tensor full_like(const Tensor& like, Scalar value) {
  Tensor result = make_empty({like.sizes(), packed_strides_like(like.sizes(), like.strides())}, like.dtype(),
                             like.device());
  result.fill_(value);
  return result;
}
Tensor zeros_like(const Tensor& like) { return full_like(like, 0.0); }
Tensor ones_like(const Tensor& like) { return full_like(like, 1.0); }
Tensor scalar_tensor(Scalar value, TensorOptions options) { return full({}, value, options); }

Tensor arange(Scalar start, Scalar stop, Scalar step, TensorOptions options) {
  ETCH_CHECK(step.to_double() != 0, ValueError, "arange: expected a step other than 0, got 0");
  const bool integers = start.kind() != Scalar::Kind::Float && stop.kind() != Scalar::Kind::Float &&
                        step.kind() != Scalar::Kind::Float;
  double length;
  if (integers) {  // the span of two 64-bit integers has 65 bits
    const __int128 span = static_cast<__int128>(stop.to_int()) - start.to_int(), by = step.to_int();
    length = static_cast<double>(by > 0 ? (span + by - 1) / by : (span + by + 1) / by);
  } else {
    length = std::ceil((stop.to_double() - start.to_double()) / step.to_double());
  }
  ETCH_CHECK(length < 0x1p53, ValueError, "arange: expected a range of fewer than 2^53 elements, got ",
             start.to_double(), " to ", stop.to_double(), " by ", step.to_double());
  const auto count = static_cast<int64_t>(std::max(length, 0.0));
  return generate(Op::arange, {start, step}, {count}, options, integers ? DType::I64 : DType::F32);
}

template <class T>
Tensor from_vector(const std::vector<T>& values, const Dims& sizes, TensorOptions options) {
  check_sizes("from_vector", sizes);
  ETCH_CHECK(static_cast<int64_t>(values.size()) == num_elements(sizes), ShapeError, "from_vector: expected ",
             num_elements(sizes), " values for ", to_string(sizes), ", got ",
             static_cast<int64_t>(values.size()));
  Tensor result = empty(sizes, {.dtype = dtype_of<T>, .device = options.device});
  if constexpr (std::is_same_v<T, bool>) {
    bool* to = static_cast<bool*>(result.storage().raw_data());
    for (size_t i = 0; i < values.size(); ++i) to[i] = values[i];
  } else if (!values.empty()) {
    std::memcpy(result.storage().raw_data(), values.data(), values.size() * sizeof(T));
  }
  if (options.dtype) result = result.to(*options.dtype);
  return finish(result, options);
}
#define ETCH_INSTANTIATE(T) \
  template Tensor from_vector(const std::vector<T>& values, const Dims& sizes, TensorOptions options);
ETCH_INSTANTIATE(float)
ETCH_INSTANTIATE(double)
ETCH_INSTANTIATE(int32_t)
ETCH_INSTANTIATE(int64_t)
ETCH_INSTANTIATE(uint8_t)
ETCH_INSTANTIATE(bool)
ETCH_INSTANTIATE(Half)
ETCH_INSTANTIATE(BFloat16)
#undef ETCH_INSTANTIATE

Tensor tensor(std::initializer_list<Scalar> values) {
  std::vector<float> floats;
  for (Scalar value : values) floats.push_back(value.to<float>());
  return from_vector(floats);
}

Tensor tensor(std::initializer_list<std::initializer_list<float>> rows) {
  std::vector<float> values;
  const size_t columns = rows.size() ? rows.begin()->size() : 0;
  for (const auto& row : rows) {
    ETCH_CHECK(row.size() == columns, ShapeError, "tensor: expected rows of ", static_cast<int64_t>(columns),
               " values, got one of ", static_cast<int64_t>(row.size()));
    values.insert(values.end(), row.begin(), row.end());
  }
  return from_vector(values, {static_cast<int64_t>(rows.size()), static_cast<int64_t>(columns)});
}

Tensor from_blob(void* data, const Dims& sizes, BlobOptions options) {
  check_sizes("from_blob", sizes);
  const Geometry geometry = contiguous(sizes);
  ETCH_CHECK(data || geometry.numel() == 0, ValueError, "from_blob: expected memory for sizes ",
             to_string(sizes), ", got a null pointer");
  size_t offset = 0;
  Ref<Storage> storage =
      Storage::foreign(Device::cpu(), data, static_cast<size_t>(geometry.numel()) * item_size(options.dtype),
                       std::move(options.release), options.stable, &offset);
  ETCH_CHECK(offset % item_size(options.dtype) == 0, ValueError, "from_blob: expected memory aligned to ",
             name(options.dtype), " within the wrapped memory it overlaps");
  return make_tensor(std::move(storage), geometry, static_cast<int64_t>(offset / item_size(options.dtype)),
                     options.dtype);
}

Tensor rand(const Dims& sizes, TensorOptions options, Generator* generator) {
  const PhiloxState state = draw(generator, sizes);
  return generate(Op::uniform, {seed_of(state), offset_of(state)}, sizes, options, DType::F32);
}
Tensor randn(const Dims& sizes, TensorOptions options, Generator* generator) {
  const PhiloxState state = draw(generator, sizes);
  return generate(Op::normal, {seed_of(state), offset_of(state)}, sizes, options, DType::F32);
}
Tensor bernoulli(const Dims& sizes, double p, TensorOptions options, Generator* generator) {
  ETCH_CHECK(p >= 0 && p <= 1, ValueError, "bernoulli: expected a probability in [0, 1], got ", p);
  const PhiloxState state = draw(generator, sizes);
  return generate(Op::bernoulli, {seed_of(state), offset_of(state), p}, sizes, options, DType::F32);
}
Tensor randint(int64_t low, int64_t high, const Dims& sizes, Generator* generator) {
  ETCH_CHECK(low < high, ValueError, "randint: expected low < high, got ", low, " and ", high);
  const uint64_t range = static_cast<uint64_t>(high) - static_cast<uint64_t>(low);
  ETCH_CHECK(range <= uint64_t{1} << 24, ValueError, "randint: expected a range of at most 2^24, got ",
             range);
  return (rand(sizes, {.dtype = DType::F64}, generator) * static_cast<double>(high - low))
             .floor()
             .to(DType::I64) +
         low;
}

Tensor& Tensor::uniform_(double low, double high) {
  const Tensor values = rand(sizes(), {.dtype = dtype(), .device = device()});
  return copy_(low == 0 && high == 1 ? values : values * (high - low) + low);
}
Tensor& Tensor::normal_(double mean, double stddev) {
  return copy_(randn(sizes(), {.dtype = dtype(), .device = device()}) * stddev + mean);
}

}  // namespace etch
