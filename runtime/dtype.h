// Element types, their promotion, and the host scalar.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

namespace etch {

/// In order of promotion within a kind. F16 and BF16 are storage types: arithmetic runs in F32 and rounds at
/// every op.
enum class DType : uint8_t { Bool, U8, I32, I64, F16, BF16, F32, F64 };
inline constexpr int kNumDTypes = 8;

constexpr size_t item_size(DType dtype) {
  constexpr size_t kSizes[kNumDTypes] = {1, 1, 4, 8, 2, 2, 4, 8};
  return kSizes[static_cast<int>(dtype)];
}
/// "f32", "bool", ...
std::string_view name(DType dtype);
/// The inverse of name(); throws DTypeError.
DType parse_dtype(std::string_view text);

constexpr bool is_floating(DType dtype) { return dtype >= DType::F16; }
constexpr bool is_integral(DType dtype) { return dtype < DType::F16; }  // bool included

/// The type arithmetic runs in: F32 for F16 and BF16, otherwise the dtype itself.
constexpr DType compute_dtype(DType dtype) {
  return dtype == DType::F16 || dtype == DType::BF16 ? DType::F32 : dtype;
}

/// PyTorch's promotion of two tensor dtypes (F16 with BF16 gives F32).
DType promote(DType a, DType b);

/// Storage of a half or bfloat16 element: bits only.
struct Half {
  uint16_t bits;
};
struct BFloat16 {
  uint16_t bits;
};
float to_float(Half value);
float to_float(BFloat16 value);
Half to_half(float value);
BFloat16 to_bfloat16(float value);

template <class T>
struct DTypeOf;
#define ETCH_DTYPE_OF(T, D)                  \
  template <>                                \
  struct DTypeOf<T> {                        \
    static constexpr DType value = DType::D; \
  };
ETCH_DTYPE_OF(bool, Bool)
ETCH_DTYPE_OF(uint8_t, U8)
ETCH_DTYPE_OF(int32_t, I32)
ETCH_DTYPE_OF(int64_t, I64)
ETCH_DTYPE_OF(Half, F16)
ETCH_DTYPE_OF(BFloat16, BF16)
ETCH_DTYPE_OF(float, F32)
ETCH_DTYPE_OF(double, F64)
#undef ETCH_DTYPE_OF
template <class T>
inline constexpr DType dtype_of = DTypeOf<T>::value;

/// Calls `f.template operator()<T>()` with the C++ type of `dtype` (Half and BFloat16 for the storage types).
template <class F>
decltype(auto) visit_dtype(DType dtype, F&& f) {
  switch (dtype) {
    case DType::Bool:
      return f.template operator()<bool>();
    case DType::U8:
      return f.template operator()<uint8_t>();
    case DType::I32:
      return f.template operator()<int32_t>();
    case DType::I64:
      return f.template operator()<int64_t>();
    case DType::F16:
      return f.template operator()<Half>();
    case DType::BF16:
      return f.template operator()<BFloat16>();
    case DType::F32:
      return f.template operator()<float>();
    case DType::F64:
      break;
  }
  return f.template operator()<double>();
}

/// A C++ number used as an operand. Weakly typed: it takes the tensor's dtype unless its kind is higher
/// (bool < integer < floating).
class Scalar {
 public:
  enum class Kind : uint8_t { Bool, Int, Float };

  constexpr Scalar() : Scalar(0.0) {}
  template <class T>
  requires std::is_arithmetic_v<T>
  constexpr Scalar(T value) {
    if constexpr (std::is_same_v<T, bool>) {
      kind_ = Kind::Bool;
      int_ = value;
    } else if constexpr (std::is_integral_v<T>) {
      kind_ = Kind::Int;
      int_ = static_cast<int64_t>(value);
    } else {
      kind_ = Kind::Float;
      float_ = value;
    }
  }

  constexpr Kind kind() const { return kind_; }
  constexpr double to_double() const { return kind_ == Kind::Float ? float_ : static_cast<double>(int_); }
  /// Truncates a floating value.
  constexpr int64_t to_int() const { return kind_ == Kind::Float ? static_cast<int64_t>(float_) : int_; }
  constexpr bool to_bool() const { return kind_ == Kind::Float ? float_ != 0 : int_ != 0; }
  template <class T>
  constexpr T to() const {
    if constexpr (std::is_same_v<T, bool>) return to_bool();
    if constexpr (std::is_floating_point_v<T>) return static_cast<T>(to_double());
    return static_cast<T>(to_int());
  }
  /// The dtype of a tensor made of this scalar alone: Bool, I64 or F32.
  constexpr DType default_dtype() const {
    return kind_ == Kind::Bool ? DType::Bool : kind_ == Kind::Int ? DType::I64 : DType::F32;
  }

 private:
  Kind kind_;
  union {
    int64_t int_;
    double float_;
  };
};

/// `dtype` promoted with a weak scalar of `kind`.
DType promote(DType dtype, Scalar::Kind kind);

}  // namespace etch
