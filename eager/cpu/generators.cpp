// Generator rows: elements from their row-major index, in any layout.
#include <algorithm>
#include <cstring>

#include "eager/cpu/lanes.h"
#include "eager/cpu/pointwise.h"
#include "runtime/parallel.h"
#include "tracer/scalar_math.h"

namespace etch::scalar {

// `random_u32` is a parameter: it reads words that were drawn for a whole block of elements at once.
#define ETCH_GENERATOR(name, arity_, rule_, expression, gradients, flags_, ...)                    \
  struct name##_generator {                                                                        \
    static constexpr bool random = ((flags_)&kRandom) != 0;                                        \
    static constexpr DTypeRule rule = DTypeRule::rule_;                                            \
    template <class T, class Random, class A, class B, class C, class D>                           \
    ETCH_INLINE static T element([[maybe_unused]] Random random_u32, [[maybe_unused]] A a,         \
                                 [[maybe_unused]] B b, [[maybe_unused]] C c, [[maybe_unused]] D d, \
                                 [[maybe_unused]] long long i) {                                   \
      return static_cast<T>(expression);                                                           \
    }                                                                                              \
  };
#include "tracer/ops.def"

}  // namespace etch::scalar

namespace etch::cpu {
namespace {

/// Operands as numbers of both kinds; the kernel picks.
struct Numbers {
  long long whole[4] = {};
  double real[4] = {};
};

/// Bit k of Whole: operand k is a long long, else a T.
template <class Row, class T, unsigned Whole>
struct Piece {
  template <int K>
  using Number = std::conditional_t<(Whole >> K & 1) != 0, long long, T>;
  template <int K>
  static Number<K> number(const Numbers& numbers) {
    if constexpr (Whole >> K & 1)
      return numbers.whole[K];
    else
      return static_cast<T>(numbers.real[K]);
  }

  /// n <= kBlock elements whose indices are first, first + step, ..; `x` replaces operand 0 if not null.
  static void run(T* out, const T* x, const Numbers& numbers, long long first, long long step, int64_t n) {
    const auto a = number<0>(numbers);
    const auto b = number<1>(numbers);
    const auto c = number<2>(numbers);
    const auto d = number<3>(numbers);
    alignas(64) uint32_t words[kBlock];
    if constexpr (Row::random) {
      const long long seed = Row::rule == DTypeRule::Given ? numbers.whole[0] : numbers.whole[1];
      const long long offset = Row::rule == DTypeRule::Given ? numbers.whole[1] : numbers.whole[2];
      draw(words, seed, offset, first, step, n);
    }
    for (int64_t k = 0; k < n; ++k) {
      const auto drawn = [&](auto, auto, auto) ETCH_INLINE_LAMBDA { return words[k]; };
      const long long i = first + k * step;
      if constexpr (Whole & 1)
        out[k] = Row::template element<T>(drawn, a, b, c, d, i);
      else
        out[k] = Row::template element<T>(drawn, x ? x[k] : a, b, c, d, i);
    }
  }

  static void draw(uint32_t* words, uint64_t seed, uint64_t offset, uint64_t first, uint64_t step,
                   int64_t n) {
    if (step != 1) {
      for (int64_t k = 0; k < n; ++k) words[k] = scalar::random_u32(seed, offset, first + k * step);
      return;
    }
    int64_t head = std::min<int64_t>(n, (4 - first % 4) % 4);
    scalar::random_fill(seed, offset, first, words, head);
    const int64_t whole = (n - head) & ~int64_t{3};
    scalar::random_fill(seed, offset, first + head, words + head, whole);
    head += whole;
    scalar::random_fill(seed, offset, first + head, words + head, n - head);
  }
};

template <class T>
using PieceFunction = void (*)(T*, const T*, const Numbers&, long long, long long, int64_t);

template <class T>
PieceFunction<T> piece_of(Op op, unsigned whole) {
  switch (op) {
#define ETCH_GENERATOR(name, ...)                                             \
  case Op::name: {                                                            \
    using Row = scalar::name##_generator;                                     \
    if constexpr (Row::random) {                                              \
      if constexpr (std::is_floating_point_v<T>)                              \
        return Piece < Row, T, Row::rule == DTypeRule::Given ? 3 : 6 > ::run; \
    } else {                                                                  \
      if (whole == 3) return Piece<Row, T, 3>::run;                           \
      if (whole == 2) return Piece<Row, T, 2>::run;                           \
      if (whole == 1) return Piece<Row, T, 1>::run;                           \
      return Piece<Row, T, 0>::run;                                           \
    }                                                                         \
    break;                                                                    \
  }
#include "tracer/ops.def"
    default:
      break;
  }
  return nullptr;
}

template <class S>
void load(Compute<S>* to, const char* from, int64_t stride, int64_t n) {
  if (stride == sizeof(S)) {
    const auto* in = reinterpret_cast<const S*>(from);
    for (int64_t k = 0; k < n; ++k) to[k] = widen(in[k]);
    return;
  }
  for (int64_t k = 0; k < n; ++k) {
    S element;
    std::memcpy(&element, from + k * stride, sizeof element);
    to[k] = widen(element);
  }
}

template <class S>
void store(char* to, int64_t stride, const Compute<S>* from, int64_t n) {
  if (stride == sizeof(S)) {
    auto* out = reinterpret_cast<S*>(to);
    for (int64_t k = 0; k < n; ++k) out[k] = narrow<S>(from[k]);
    return;
  }
  for (int64_t k = 0; k < n; ++k) {
    const S element = narrow<S>(from[k]);
    std::memcpy(to + k * stride, &element, sizeof element);
  }
}

/// `loop` has the operands output, index (in elements, no base) and perhaps a tensor.
template <class S>
void run(Op op, const Loop& loop, const Numbers& numbers, unsigned whole) {
  using T = Compute<S>;
  const PieceFunction<T> piece = piece_of<T>(op, whole);
  ETCH_CHECK(piece, DTypeError, name(op), ": expected a floating dtype, got ", name(dtype_of<S>));
  const auto range = [&](int64_t begin, int64_t end) {
    walk(loop, begin, end, [&](const int64_t* offset, int64_t n) {
      for (int64_t at = 0; at < n;) {
        const int64_t step = loop.inner_stride(1), first = offset[1] + at * step;
        // Blocks end on a multiple of four indices, where a counter of the random stream ends.
        const int64_t count = std::min(n - at, step == 1 ? kBlock - first % 4 : kBlock);
        alignas(64) T out[kBlock], x[kBlock];
        if (loop.operands > 2)
          load<S>(x, loop.base[2] + offset[2] + at * loop.inner_stride(2), loop.inner_stride(2), count);
        piece(out, loop.operands > 2 ? x : nullptr, numbers, first, step, count);
        store<S>(loop.base[0] + offset[0] + at * loop.inner_stride(0), loop.inner_stride(0), out, count);
        at += count;
      }
    });
  };
  if (loop.count <= kGrain / 4) return range(0, loop.count);
  const int64_t units = (loop.count + kBlock - 1) / kBlock;
  parallel_for(units, kGrain / 4 / kBlock, [&](int64_t begin, int64_t end) {
    range(begin * kBlock, std::min(end * kBlock, loop.count));
  });
}

}  // namespace

void run_generator(const OpCall& call) {
  const Operand& out = call.outputs[0];
  Loop loop(out.geometry->sizes);
  if (loop.count == 0) return;
  const auto item = static_cast<int64_t>(item_size(out.dtype));
  loop.add(out.data(), item, out.geometry);
  loop.add_strides(nullptr, 1, contiguous_strides(out.geometry->sizes).data());
  Numbers numbers;
  unsigned whole = 0;
  for (size_t k = 0; k < call.inputs.size(); ++k) {
    const Operand& input = call.inputs[k];
    if (input.is_scalar()) {
      numbers.whole[k] = input.scalar.to_int();
      numbers.real[k] = input.scalar.to_double();
      if (input.scalar.kind() != Scalar::Kind::Float) whole |= 1u << k;
    } else {
      loop.add(input.data(), item, input.geometry);
    }
  }
  loop.arrange();
  visit_dtype(out.dtype, [&]<class S>() { run<S>(call.op, loop, numbers, whole); });
}

}  // namespace etch::cpu
