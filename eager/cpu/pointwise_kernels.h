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

template <class Row, class T, unsigned Scalars>
void run_piece(char* out, const char* const* in, int64_t n) {
  using A = std::conditional_t<Row::rule == DTypeRule::Where, bool, T>;
  using Out = std::conditional_t<Row::rule == DTypeRule::Bool, bool, T>;
  constexpr int kA = 0, kB = Row::arity > 1 ? 1 : 0, kC = Row::arity > 2 ? 2 : 0;
  const auto* pa = reinterpret_cast<const A*>(in[kA]);
  const auto* pb = reinterpret_cast<const T*>(in[kB]);
  const auto* pc = reinterpret_cast<const T*>(in[kC]);
  auto* po = reinterpret_cast<Out*>(out);
  const A a = Scalars & 1 ? *pa : A{};
  const T b = Scalars & 2 ? *pb : T{};
  const T c = Scalars & 4 ? *pc : T{};
  ETCH_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) {
    po[i] = static_cast<Out>(Row::template element<T, A>(Scalars & 1 ? a : pa[i],
                                                         Row::arity < 2 ? T{} : (Scalars & 2 ? b : pb[i]),
                                                         Row::arity < 3 ? T{} : (Scalars & 4 ? c : pc[i])));
  }
}

template <class Row, class T>
void run_pieces(char* out, const char* const* in, unsigned scalars, int64_t n) {
  constexpr unsigned kAll = (1u << Row::arity) - 1;
  if constexpr (Row::arity > 1) {
    if (scalars == 1) return run_piece<Row, T, 1>(out, in, n);
    if (scalars == 2) return run_piece<Row, T, 2>(out, in, n);
  }
  if constexpr (Row::arity > 2) {
    if (scalars == 3) return run_piece<Row, T, 3>(out, in, n);
    if (scalars == 4) return run_piece<Row, T, 4>(out, in, n);
    if (scalars == 5) return run_piece<Row, T, 5>(out, in, n);
    if (scalars == 6) return run_piece<Row, T, 6>(out, in, n);
  }
  if (scalars != kAll || n == 1) return run_piece<Row, T, 0>(out, in, n);
  run_piece<Row, T, 0>(out, in, 1);
  cpu::fill(out + (Row::rule == DTypeRule::Bool ? 1 : sizeof(T)), out, n - 1,
            Row::rule == DTypeRule::Bool ? 1 : sizeof(T));
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
