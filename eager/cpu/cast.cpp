// Conversions between element types.
#include <array>
#include <cstring>

#include "eager/cpu/pointwise.h"
#include "tracer/scalar_math.h"

namespace etch::cpu {
namespace {

/// The value that arithmetic sees.
template <class T>
inline T load(T value) {
  return value;
}
inline float load(Half value) { return scalar::half_to_float(value.bits); }
inline float load(BFloat16 value) { return scalar::bfloat16_to_float(value.bits); }

/// Halves are rounded from f32, whatever the source.
template <class To, class From>
inline To convert(From value) {
  if constexpr (std::is_same_v<To, Half>) {
    return {scalar::float_to_half(scalar::cast<float>(load(value)))};
  } else if constexpr (std::is_same_v<To, BFloat16>) {
    return {scalar::float_to_bfloat16(scalar::cast<float>(load(value)))};
  } else {
    return scalar::cast<To>(load(value));
  }
}

template <class From, class To>
void cast_piece(char* to, const char* from, int64_t n) {
  if constexpr (std::is_same_v<From, To>) {
    std::memmove(to, from, static_cast<size_t>(n) * sizeof(To));
  } else {
    const auto* in = reinterpret_cast<const From*>(from);
    auto* out = reinterpret_cast<To*>(to);
    for (int64_t i = 0; i < n; ++i) out[i] = convert<To>(in[i]);
  }
}

using Row = std::array<CastKernel, kNumDTypes>;

template <class From>
constexpr Row kRow = {cast_piece<From, bool>,    cast_piece<From, uint8_t>, cast_piece<From, int32_t>,
                      cast_piece<From, int64_t>, cast_piece<From, Half>,    cast_piece<From, BFloat16>,
                      cast_piece<From, float>,   cast_piece<From, double>};

constexpr std::array<Row, kNumDTypes> kCasts = {kRow<bool>, kRow<uint8_t>,  kRow<int32_t>, kRow<int64_t>,
                                                kRow<Half>, kRow<BFloat16>, kRow<float>,   kRow<double>};

}  // namespace

CastKernel cast_kernel(DType from, DType to) { return kCasts[static_cast<int>(from)][static_cast<int>(to)]; }

void store_scalar(const Scalar& value, DType dtype, void* to) {
  const auto put = [&](auto element) { std::memcpy(to, &element, sizeof element); };
  switch (dtype) {
    case DType::F16:
      return put(to_half(value.to<float>()));
    case DType::BF16:
      return put(to_bfloat16(value.to<float>()));
    case DType::Bool:
      return put(value.to<bool>());
    case DType::U8:
      return put(value.to<uint8_t>());
    case DType::I32:
      return put(value.to<int32_t>());
    case DType::I64:
      return put(value.to<int64_t>());
    case DType::F32:
      return put(value.to<float>());
    case DType::F64:
      return put(value.to<double>());
  }
}

}  // namespace etch::cpu
