// The copy row: contiguous runs, transpositions in tiles, casts and fills.
#include <algorithm>
#include <cstring>
#include <utility>

#include "eager/cpu/pointwise.h"
#include "runtime/parallel.h"

namespace etch::cpu {
namespace {

/// One tile is a cache line of 4-byte elements square; a band of tiles is gone through in squares whose lines
/// stay in the first-level cache and whose pages in the address cache.
constexpr int64_t kTile = 16;
constexpr int64_t kBand = 64;

/// Sixteen 4-byte elements: a cache line.
using Line = uint32_t __attribute__((vector_size(64)));

template <int Width, int... K>
inline void exchange(Line& a, Line& b, std::integer_sequence<int, K...>) {
  const Line low = __builtin_shufflevector(a, b, (K & Width ? 16 + K - Width : K)...);
  b = __builtin_shufflevector(a, b, (K & Width ? 16 + K : K + Width)...);
  a = low;
}
/// Swaps the off-diagonal quarters of every square of 2 * Width lines and elements.
template <int Width>
inline void exchange_quarters(Line* lines) {
  for (int i = 0; i < 16; ++i)
    if (!(i & Width)) exchange<Width>(lines[i], lines[i + Width], std::make_integer_sequence<int, 16>());
}

/// A full tile of 4-byte elements, in registers.
inline void transpose_full(uint32_t* out, int64_t out_stride, const uint32_t* in, int64_t in_stride) {
  Line lines[kTile];
  for (int64_t i = 0; i < kTile; ++i) std::memcpy(&lines[i], in + i * in_stride, sizeof(Line));
  exchange_quarters<8>(lines);
  exchange_quarters<4>(lines);
  exchange_quarters<2>(lines);
  exchange_quarters<1>(lines);
  for (int64_t j = 0; j < kTile; ++j) std::memcpy(out + j * out_stride, &lines[j], sizeof(Line));
}

template <class T>
void transpose_full(T* out, int64_t out_stride, const T* in, int64_t in_stride) {
  T tile[kTile][kTile];
  for (int64_t i = 0; i < kTile; ++i) std::memcpy(tile[i], in + i * in_stride, sizeof tile[i]);
  for (int64_t j = 0; j < kTile; ++j) {
    T line[kTile];
    for (int64_t i = 0; i < kTile; ++i) line[i] = tile[i][j];
    std::memcpy(out + j * out_stride, line, sizeof line);
  }
}

/// out[j * out_stride + i] = in[i * in_stride + j] for a tile of up to 16 by 16, each cache line touched
/// once.
template <class T>
void transpose_tile(T* out, int64_t out_stride, const T* in, int64_t in_stride, int64_t ni, int64_t nj) {
  if (ni == kTile && nj == kTile) return transpose_full(out, out_stride, in, in_stride);
  T tile[kTile][kTile];
  for (int64_t i = 0; i < ni; ++i)
    for (int64_t j = 0; j < nj; ++j) tile[i][j] = in[i * in_stride + j];
  for (int64_t j = 0; j < nj; ++j)
    for (int64_t i = 0; i < ni; ++i) out[j * out_stride + i] = tile[i][j];
}

/// `loop` has the output contiguous along its last dimension and the input along `across`; the dimensions
/// left are walked.
template <class T>
void transpose(const Loop& loop, int across) {
  const int last = loop.ndim - 1;
  const int64_t width = loop.size[last], height = loop.size[across];
  const int64_t in_stride = loop.stride[1][last] / static_cast<int64_t>(sizeof(T));
  const int64_t out_stride = loop.stride[0][across] / static_cast<int64_t>(sizeof(T));
  const int64_t bands = (height + kBand - 1) / kBand;
  Loop outer = loop;
  for (int d : {last, across}) {
    outer.size[d] = 1;
    for (int k = 0; k < 2; ++k) outer.stride[k][d] = 0;
  }
  outer.merge();
  outer.count = loop.count / (width * height);
  const auto run_band = [&](T* out, const T* in, int64_t rows) {
    for (int64_t square = 0; square < width; square += kBand) {
      const int64_t end = std::min(width, square + kBand);
      for (int64_t j = 0; j < rows; j += kTile)
        for (int64_t i = square; i < end; i += kTile)
          transpose_tile(out + j * out_stride + i, out_stride, in + i * in_stride + j, in_stride,
                         std::min(kTile, end - i), std::min(kTile, rows - j));
    }
  };
  parallel_for(outer.count * bands, std::max<int64_t>(1, kGrain / (width * std::min(height, kBand))),
               [&](int64_t begin, int64_t end) {
                 for (int64_t unit = begin; unit < end; ++unit) {
                   const int64_t first = unit % bands * kBand;
                   walk(outer, unit / bands, unit / bands + 1, [&](const int64_t* offset, int64_t) {
                     run_band(reinterpret_cast<T*>(loop.base[0] + offset[0]) + first * out_stride,
                              reinterpret_cast<const T*>(loop.base[1] + offset[1]) + first,
                              std::min(kBand, height - first));
                   });
                 }
               });
}

/// The dimension to transpose with the last one, or -1 if the copy is no transposition.
int transposed_dimension(const Loop& loop) {
  const int last = loop.ndim - 1;
  if (loop.ndim < 2 || loop.stride[0][last] != loop.item[0] || loop.stride[1][last] <= loop.item[1])
    return -1;
  for (int d = 0; d < last; ++d)
    if (loop.stride[1][d] == loop.item[1] && loop.size[d] >= 4 && loop.size[last] >= 4) return d;
  return -1;
}

void copy_same(const Loop& loop) {
  const int64_t item = loop.item[0];
  if (const int across = transposed_dimension(loop); across >= 0) {
    if (item == 1) return transpose<uint8_t>(loop, across);
    if (item == 2) return transpose<uint16_t>(loop, across);
    if (item == 4) return transpose<uint32_t>(loop, across);
    return transpose<uint64_t>(loop, across);
  }
  run_loop(loop, [item](char* out, const char* const* in, unsigned scalars, int64_t n) {
    if (scalars)
      fill(out, in[0], n, item);
    else if (out != in[0])
      std::memcpy(out, in[0], static_cast<size_t>(n * item));
  });
}

}  // namespace

void run_copy(const OpCall& call) {
  const Operand& out = call.outputs[0];
  const Operand& in = call.inputs[0];
  Loop loop(out.geometry->sizes);
  if (loop.count == 0) return;
  const auto item = static_cast<int64_t>(item_size(out.dtype));
  loop.add(out.data(), item, out.geometry);
  uint64_t value;
  DType from = in.dtype;
  if (in.is_scalar()) {
    from = out.dtype;
    store_scalar(in.scalar, from, &value);
    loop.add(reinterpret_cast<char*>(&value), item, nullptr);
  } else {
    loop.add(in.data(), static_cast<int64_t>(item_size(from)), in.geometry);
  }
  loop.arrange();
  if (from == out.dtype) return copy_same(loop);
  const CastKernel cast = cast_kernel(from, out.dtype);
  run_loop(loop, [cast, item](char* to, const char* const* source, unsigned scalars, int64_t n) {
    cast(to, source[0], scalars ? 1 : n);
    if (scalars && n > 1) fill(to + item, to, n - 1, item);
  });
}

}  // namespace etch::cpu
