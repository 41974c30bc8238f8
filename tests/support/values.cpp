// Tensors written out as numbers, and comparison of tensors with them.
#include "tests/support/values.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

namespace etch::testing {

Tensor Values::tensor(DType as) const {
  if (as == DType::I64 || as == DType::I32) {
    std::vector<int64_t> integers(values.begin(), values.end());
    return from_vector(integers, sizes, {.dtype = as});
  }
  return from_vector(values, sizes, {.dtype = as});
}

Values of(DType dtype, Dims sizes, std::vector<double> values) { return {dtype, sizes, std::move(values)}; }
Values of(DType dtype, std::vector<double> values) {
  const auto count = static_cast<int64_t>(values.size());
  return {dtype, {count}, std::move(values)};
}
Values f32(std::vector<double> values) { return of(DType::F32, std::move(values)); }
Values f32(Dims sizes, std::vector<double> values) { return of(DType::F32, sizes, std::move(values)); }
Values i64(std::vector<double> values) { return of(DType::I64, std::move(values)); }
Values i64(Dims sizes, std::vector<double> values) { return of(DType::I64, sizes, std::move(values)); }

std::vector<double> values_of(const Tensor& tensor) { return tensor.to_vector<double>(); }

::testing::AssertionResult same_bits(const Tensor& a, const Tensor& b) {
  if (!a.defined() || !b.defined()) return ::testing::AssertionFailure() << "an undefined tensor";
  if (a.dtype() != b.dtype())
    return ::testing::AssertionFailure() << "dtypes " << name(a.dtype()) << " and " << name(b.dtype());
  if (a.sizes() != b.sizes())
    return ::testing::AssertionFailure()
           << "sizes " << to_string(a.sizes()) << " and " << to_string(b.sizes());
  if (a.strides() != b.strides())
    return ::testing::AssertionFailure()
           << "strides " << to_string(a.strides()) << " and " << to_string(b.strides());
  if (is_integral(a.dtype()))
    return a.to_vector<int64_t>() == b.to_vector<int64_t>()
               ? ::testing::AssertionSuccess()
               : ::testing::AssertionFailure() << "integers differ";
  const std::vector<double> x = values_of(a), y = values_of(b);
  if (x.size() && std::memcmp(x.data(), y.data(), x.size() * sizeof(double)) != 0)
    for (size_t i = 0; i < x.size(); ++i)
      if (std::memcmp(&x[i], &y[i], sizeof(double)) != 0 && !(std::isnan(x[i]) && std::isnan(y[i])))
        return ::testing::AssertionFailure() << "element " << i << ": " << x[i] << " and " << y[i];
  return ::testing::AssertionSuccess();
}

::testing::AssertionResult close_to(const Tensor& actual, const Values& expected, double tolerance) {
  if (!actual.defined()) return ::testing::AssertionFailure() << "an undefined tensor";
  if (actual.dtype() != expected.dtype)
    return ::testing::AssertionFailure()
           << "dtype " << name(actual.dtype()) << ", expected " << name(expected.dtype);
  if (actual.sizes() != expected.sizes)
    return ::testing::AssertionFailure()
           << "sizes " << to_string(actual.sizes()) << ", expected " << to_string(expected.sizes);
  const std::vector<double> values = values_of(actual);
  if (values.size() != expected.values.size())
    return ::testing::AssertionFailure() << values.size() << " values, expected " << expected.values.size();
  for (size_t i = 0; i < values.size(); ++i) {
    const double got = values[i], want = expected.values[i];
    bool same;
    if (std::isnan(want)) {
      same = std::isnan(got);
    } else if (std::isinf(want) || tolerance == 0) {
      same = got == want && std::signbit(got) == std::signbit(want);
    } else {
      same = std::abs(got - want) <= tolerance * std::max(1.0, std::abs(want));
    }
    if (!same)
      return ::testing::AssertionFailure() << "element " << i << ": " << ::testing::PrintToString(got)
                                           << ", expected " << ::testing::PrintToString(want);
  }
  return ::testing::AssertionSuccess();
}

Values spread(const Dims& sizes, double low, double high, uint64_t seed, DType dtype) {
  const int64_t count = num_elements(sizes);
  std::vector<double> values(static_cast<size_t>(count));
  std::mt19937_64 engine(seed);
  for (int64_t i = 0; i < count; ++i)
    values[i] = low + (high - low) * (static_cast<double>(i) + 0.5) / static_cast<double>(count);
  for (int64_t i = count - 1; i > 0; --i)
    std::swap(values[i], values[engine() % static_cast<uint64_t>(i + 1)]);
  return {dtype, sizes, std::move(values)};
}

std::vector<float> random_values(int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> real(-1, 1);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = real(random);
  return values;
}

}  // namespace etch::testing
