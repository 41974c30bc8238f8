// The pointwise rows of the op table compiled for one compute type. Included by one source file per type, so
// that each compiles quickly.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "eager/cpu/pointwise.h"
#include "tracer/scalar_math.h"

#if defined(__clang__)
#define ETCH_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define ETCH_INDEPENDENT _Pragma("GCC ivdep")
#pragma GCC diagnostic ignored "-Wbool-compare"
#pragma GCC diagnostic ignored "-Wint-in-bool-context"
#pragma GCC diagnostic ignored "-Wtype-limits"
#endif

// Inside the namespace of the scalar functions, so that the expressions find them before libm's.
namespace etch::scalar {

#define ETCH_POINTWISE(name, arity_, rule_, expression, ...)                                       \
  struct name##_row {                                                                              \
    static constexpr int arity = arity_;                                                           \
    static constexpr DTypeRule rule = DTypeRule::rule_;                                            \
    template <class T, class A>                                                                    \
    __attribute__((always_inline)) static auto element([[maybe_unused]] A a, [[maybe_unused]] T b, \
                                                       [[maybe_unused]] T c) {                     \
      return expression;                                                                           \
    }                                                                                              \
  };
#include "tracer/ops.def"

/// Whether a row computes in T. The casts of `copy` have kernels of their own.
template <class T>
constexpr bool computes_in(DTypeRule rule) {
  if (rule == DTypeRule::Cast) return false;
  if (rule == DTypeRule::Float) return kFloating<T>;
  if (rule == DTypeRule::Numeric) return !kSame<T, bool>;
  return true;
}

template <class Row, class T>
using Result = std::conditional_t<Row::rule == DTypeRule::Bool, bool, T>;
template <class Row, class T>
using First = std::conditional_t<Row::rule == DTypeRule::Where, bool, T>;

template <class Row, class T>
void run_piece(char* out, const char* const* in, int64_t n) {
  using A = First<Row, T>;
  const auto* a = reinterpret_cast<const A*>(in[0]);
  const auto* b = reinterpret_cast<const T*>(in[Row::arity > 1 ? 1 : 0]);
  const auto* c = reinterpret_cast<const T*>(in[Row::arity > 2 ? 2 : 0]);
  auto* to = reinterpret_cast<Result<Row, T>*>(out);
  ETCH_INDEPENDENT
  for (int64_t i = 0; i < n; ++i)
    to[i] = static_cast<Result<Row, T>>(
        Row::template element<T, A>(a[i], Row::arity > 1 ? b[i] : T{}, Row::arity > 2 ? c[i] : T{}));
}

/// Single elements are spread over a block in the first-level cache: one loop serves all kinds of operands,
/// and nothing loop-invariant keeps it from being vectorised.
template <class Row, class T>
void run_pieces(char* out, const char* const* in, unsigned scalars, int64_t n) {
  if (scalars == 0 || n == 1) return run_piece<Row, T>(out, in, n);
  if (scalars == (1u << Row::arity) - 1) {
    run_piece<Row, T>(out, in, 1);
    return cpu::fill(out + sizeof(Result<Row, T>), out, n - 1, sizeof(Result<Row, T>));
  }
  alignas(64) char spread[Row::arity][cpu::kBlock * sizeof(T)];
  const char* piece[Row::arity];
  int64_t step[Row::arity];
  for (int k = 0; k < Row::arity; ++k) {
    const int64_t item = k == 0 ? sizeof(First<Row, T>) : sizeof(T);
    step[k] = scalars >> k & 1 ? 0 : item;
    piece[k] = step[k] ? in[k] : spread[k];
    if (!step[k]) cpu::fill(spread[k], in[k], std::min(n, cpu::kBlock), item);
  }
  for (int64_t at = 0; at < n; at += cpu::kBlock) {
    run_piece<Row, T>(out + at * static_cast<int64_t>(sizeof(Result<Row, T>)), piece,
                      std::min(cpu::kBlock, n - at));
    for (int k = 0; k < Row::arity; ++k) piece[k] += step[k] * cpu::kBlock;
  }
}

template <class T>
constexpr cpu::PointwiseTable make_pointwise_table() {
  cpu::PointwiseTable table{};
#define ETCH_POINTWISE(name, ...)                 \
  if constexpr (computes_in<T>(name##_row::rule)) \
    table[static_cast<int>(Op::name)] = run_pieces<name##_row, T>;
#include "tracer/ops.def"
  return table;
}

}  // namespace etch::scalar
