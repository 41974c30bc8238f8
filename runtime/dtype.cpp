// Names of dtypes, promotion, and the conversions of half and bfloat16.
#include "runtime/dtype.h"

#include <algorithm>
#include <bit>

#include "runtime/error.h"

namespace etch {
namespace {

constexpr std::string_view kNames[kNumDTypes] = {"bool", "u8", "i32", "i64", "f16", "bf16", "f32", "f64"};

}  // namespace

std::string_view name(DType dtype) { return kNames[static_cast<int>(dtype)]; }

DType parse_dtype(std::string_view text) {
  const auto* found = std::find(kNames, kNames + kNumDTypes, text);
  ETCH_CHECK(found != kNames + kNumDTypes, DTypeError,
             "parse_dtype: expected one of bool, u8, i32, i64, f16, bf16, f32, f64, got \"", text, "\"");
  return static_cast<DType>(found - kNames);
}

DType promote(DType a, DType b) {
  const DType low = std::min(a, b), high = std::max(a, b);
  return low == DType::F16 && high == DType::BF16 ? DType::F32 : high;
}

DType promote(DType dtype, Scalar::Kind kind) {
  if (kind == Scalar::Kind::Float && is_integral(dtype)) return DType::F32;
  if (kind == Scalar::Kind::Int && dtype == DType::Bool) return DType::I64;
  return dtype;
}

float to_float(BFloat16 value) { return std::bit_cast<float>(static_cast<uint32_t>(value.bits) << 16); }

float to_float(Half value) {
  const uint32_t sign = static_cast<uint32_t>(value.bits & 0x8000) << 16;
  const uint32_t exponent = (value.bits >> 10) & 0x1F;
  const uint32_t mantissa = value.bits & 0x3FF;
  if (exponent == 0) {  // zero or subnormal: mantissa * 2^-24, exact in f32
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
  }
  if (exponent == 0x1F) {  // NaNs come out quiet
    const uint32_t quiet = mantissa ? 0x400000 : 0;
    return std::bit_cast<float>(sign | 0x7F800000 | quiet | (mantissa << 13));
  }
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

BFloat16 to_bfloat16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7FFFFFFF) > 0x7F800000) return {static_cast<uint16_t>((bits >> 16) | 0x40)};
  const uint32_t nearest_even = 0x7FFF + ((bits >> 16) & 1);
  return {static_cast<uint16_t>((bits + nearest_even) >> 16)};
}

Half to_half(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000);
  const uint32_t magnitude = bits & 0x7FFFFFFF;
  const auto make = [sign](uint32_t rest) { return Half{static_cast<uint16_t>(sign | rest)}; };
  if (magnitude > 0x7F800000) return make(0x7E00 | ((magnitude >> 13) & 0x3FF));  // NaN, quiet
  if (magnitude >= 0x477FF000) return make(0x7C00);                               // 65520 and up round to inf
  if (magnitude < 0x38800000) {  // below 2^-14: round to a multiple of 2^-24
    if (magnitude < 0x33000000) return make(0);
    const uint32_t mantissa = (magnitude & 0x7FFFFF) | 0x800000;
    const uint32_t shift = 126 - (magnitude >> 23);
    const uint32_t half = 1u << (shift - 1);
    const uint32_t odd = (mantissa >> shift) & 1;
    return make((mantissa + half - 1 + odd) >> shift);
  }
  const uint32_t odd = (magnitude >> 13) & 1;
  return make((magnitude - (112u << 23) + 0xFFF + odd) >> 13);
}

}  // namespace etch
