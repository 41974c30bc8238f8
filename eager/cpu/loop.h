// Elementwise loops over strided windows: dimensions merged in the output's memory order, cut into pieces
// that kernels for contiguous elements can run, and spread over threads.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <type_traits>

#include "tracer/op.h"

namespace etch::cpu {

inline constexpr int kMaxLoopOperands = 5;
/// Elements worth a thread when each costs about a nanosecond.
inline constexpr int64_t kGrain = 16384;
/// Operands that are not contiguous are gathered into blocks of this many elements.
inline constexpr int64_t kBlock = 512;

/// Nested loops, outermost first. Operand 0 is the output. Strides are in bytes.
struct Loop {
  int ndim = 0;
  int operands = 0;
  int64_t count = 0;
  int64_t size[kMaxDims];
  int64_t stride[kMaxLoopOperands][kMaxDims];
  int64_t item[kMaxLoopOperands];
  char* base[kMaxLoopOperands];

  /// The output's sizes in row-major order; operands are added by add().
  explicit Loop(const Dims& sizes);
  /// `geometry` (broadcast to the loop's sizes) at `data`; a null geometry is a single element for all.
  void add(char* data, int64_t item_size, const Geometry* geometry);
  /// Any operand by its strides along the loop's dimensions.
  void add_strides(char* data, int64_t item_size, const int64_t* strides);
  /// Sorts the dimensions by the strides of operand `by`, largest outside, and merges what can be merged.
  void arrange(int by = 0);
  /// Merges neighbours without reordering.
  void merge();

  int64_t inner() const { return ndim ? size[ndim - 1] : 1; }
  int64_t inner_stride(int operand) const { return ndim ? stride[operand][ndim - 1] : 0; }
};

/// Calls f(offsets, n) for each run of the innermost dimension within elements [begin, end) of the loop;
/// `offsets` holds each operand's distance from its base.
template <class F>
void walk(const Loop& loop, int64_t begin, int64_t end, F&& f) {
  int64_t index[kMaxDims], offset[kMaxLoopOperands] = {};
  int64_t rest = begin;
  for (int d = loop.ndim - 1; d >= 0; --d) {
    index[d] = rest % loop.size[d];
    rest /= loop.size[d];
    for (int k = 0; k < loop.operands; ++k) offset[k] += index[d] * loop.stride[k][d];
  }
  const int last = loop.ndim - 1;
  for (int64_t at = begin; at < end;) {
    const int64_t n = last < 0 ? 1 : std::min(end - at, loop.size[last] - index[last]);
    f(static_cast<const int64_t*>(offset), n);
    at += n;
    if (last < 0) return;
    for (int k = 0; k < loop.operands; ++k) offset[k] -= index[last] * loop.stride[k][last];
    index[last] = 0;
    for (int d = last - 1; d >= 0; --d) {
      for (int k = 0; k < loop.operands; ++k) offset[k] += loop.stride[k][d];
      if (++index[d] < loop.size[d]) break;
      for (int k = 0; k < loop.operands; ++k) offset[k] -= index[d] * loop.stride[k][d];
      index[d] = 0;
    }
  }
}

/// A non-owning reference to a kernel over n contiguous elements. Input i is one element for all when bit i
/// of `scalars` is set.
class PieceKernel {
 public:
  template <class F>
  requires(!std::is_same_v<std::remove_cvref_t<F>, PieceKernel>) PieceKernel(const F& f)
      : object_(std::addressof(f)),
        call_([](const void* object, char* out, const char* const* in, unsigned scalars, int64_t n) {
          (*static_cast<const F*>(object))(out, in, scalars, n);
        }) {}
  void operator()(char* out, const char* const* in, unsigned scalars, int64_t n) const {
    call_(object_, out, in, scalars, n);
  }

 private:
  const void* object_;
  void (*call_)(const void*, char*, const char* const*, unsigned, int64_t);
};

/// Runs an arranged loop in parallel. The output's elements must be distinct; it may be one of the inputs.
void run_loop(const Loop& loop, PieceKernel kernel, int64_t grain = kGrain);

/// n elements of `item` bytes from a stride in bytes to contiguous ones, and back.
void gather(char* to, const char* from, int64_t stride, int64_t n, int64_t item);
void scatter(char* to, int64_t stride, const char* from, int64_t n, int64_t item);
/// n copies of one element.
void fill(char* to, const char* element, int64_t n, int64_t item);

}  // namespace etch::cpu
