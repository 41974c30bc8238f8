// Merging, cutting and running elementwise loops.
#include "eager/cpu/loop.h"

#include <algorithm>
#include <cstring>

#include "runtime/parallel.h"

namespace etch::cpu {
namespace {

/// Calls f with a value of an unsigned type of `item` bytes.
template <class F>
void with_item(int64_t item, F&& f) {
  switch (item) {
    case 1:
      return f(uint8_t{});
    case 2:
      return f(uint16_t{});
    case 4:
      return f(uint32_t{});
    default:
      return f(uint64_t{});
  }
}

/// Rows shorter than this are not run one by one: blocks of whole rows are gathered.
constexpr int64_t kShortRow = 32;
/// Up to this length rows are joined into blocks where that takes no gathering but of repeated rows.
constexpr int64_t kJoinedRow = 256;
constexpr int64_t kUnit = 1024;

struct Buffers {
  alignas(64) char bytes[kMaxLoopOperands][kBlock * 8];
};

/// How a loop's operands are fed to a kernel: row by row, or in blocks of whole rows.
class Runner {
 public:
  Runner(const Loop& loop, PieceKernel kernel) : loop_(loop), kernel_(kernel) {
    bool repeats = false, joins = true;
    for (int k = 0; k < loop.operands; ++k) {
      const bool repeated = is_repeated(k);
      if (repeated) repeated_ |= 1u << k;
      repeats |= repeated;
      joins &= repeated || is_flat(k) || is_scalar(k);
    }
    const int64_t inner = loop.inner();
    by_row_ = loop.ndim <= 1 || !(inner < kShortRow || (inner <= kJoinedRow && joins && repeats));
    unit_ = by_row_ ? kUnit : kBlock / inner * inner;
    for (int k = 0; k < loop.operands; ++k) {
      const bool scalar = by_row_ ? loop.inner_stride(k) == 0 : is_scalar(k);
      const bool direct = by_row_ ? loop.inner_stride(k) == loop.item[k] : is_flat(k);
      if (scalar && k > 0)
        scalars_ |= 1u << (k - 1);
      else if (!direct && loop.ndim > 0)
        gathered_ |= 1u << k;
    }
  }

  /// run() takes ranges that begin at a multiple of this.
  int64_t unit() const { return unit_; }

  void run(int64_t begin, int64_t end) const {
    if (by_row_) return walk(loop_, begin, end, [&](const int64_t* offset, int64_t n) { row(offset, n); });
    Buffers buffers;
    for (int k = 1; k < loop_.operands; ++k)
      if ((gathered_ & repeated_) >> k & 1) gather_rows(k, 0, std::min(unit_, loop_.count), buffers.bytes[k]);
    for (int64_t at = begin; at < end; at += unit_) block(at, std::min(unit_, end - at), buffers);
  }

 private:
  bool is_scalar(int k) const {
    for (int d = 0; d < loop_.ndim; ++d)
      if (loop_.stride[k][d] != 0) return false;
    return true;
  }
  bool is_flat(int k) const {
    int64_t expected = loop_.item[k];
    for (int d = loop_.ndim - 1; d >= 0; --d) {
      if (loop_.stride[k][d] != expected) return false;
      expected *= loop_.size[d];
    }
    return true;
  }
  /// All rows are the same one.
  bool is_repeated(int k) const {
    for (int d = 0; d < loop_.ndim - 1; ++d)
      if (loop_.stride[k][d] != 0) return false;
    return k > 0 && loop_.ndim > 1 && loop_.inner_stride(k) != 0;
  }

  void row(const int64_t* offset, int64_t n) const {
    const int inputs = loop_.operands - 1;
    char* out = loop_.base[0] + offset[0];
    const char* in[kMaxLoopOperands];
    for (int k = 0; k < inputs; ++k) in[k] = loop_.base[k + 1] + offset[k + 1];
    if (!gathered_) return kernel_(out, in, scalars_, n);
    Buffers buffers;
    for (int64_t at = 0; at < n; at += kBlock) {
      const int64_t count = std::min(kBlock, n - at);
      const char* piece[kMaxLoopOperands];
      for (int k = 1; k <= inputs; ++k) {
        const int64_t stride = loop_.inner_stride(k);
        piece[k - 1] = in[k - 1] + at * stride;
        if (!(gathered_ >> k & 1)) continue;
        gather(buffers.bytes[k], piece[k - 1], stride, count, loop_.item[k]);
        piece[k - 1] = buffers.bytes[k];
      }
      char* to = out + at * loop_.inner_stride(0);
      kernel_(gathered_ & 1 ? buffers.bytes[0] : to, piece, scalars_, count);
      if (gathered_ & 1) scatter(to, loop_.inner_stride(0), buffers.bytes[0], count, loop_.item[0]);
    }
  }

  void block(int64_t at, int64_t n, Buffers& buffers) const {
    const char* in[kMaxLoopOperands];
    for (int k = 1; k < loop_.operands; ++k) {
      if (gathered_ >> k & 1) {
        if (!(repeated_ >> k & 1)) gather_rows(k, at, n, buffers.bytes[k]);
        in[k - 1] = buffers.bytes[k];
      } else {
        in[k - 1] = loop_.base[k] + (scalars_ >> (k - 1) & 1 ? 0 : at * loop_.item[k]);
      }
    }
    if (!(gathered_ & 1)) return kernel_(loop_.base[0] + at * loop_.item[0], in, scalars_, n);
    kernel_(buffers.bytes[0], in, scalars_, n);
    const int64_t inner = loop_.inner(), stride = loop_.inner_stride(0);
    with_item(loop_.item[0], [&](auto zero) {
      const char* from = buffers.bytes[0];
      for_rows(0, at, n, [&](char* to) {
        for (int64_t i = 0; i < inner; ++i, from += sizeof zero)
          std::memcpy(to + i * stride, from, sizeof zero);
      });
    });
  }

  void gather_rows(int k, int64_t at, int64_t n, char* to) const {
    const int64_t inner = loop_.inner(), stride = loop_.inner_stride(k);
    with_item(loop_.item[k], [&](auto zero) {
      for_rows(k, at, n, [&](const char* from) {
        for (int64_t i = 0; i < inner; ++i, to += sizeof zero)
          std::memcpy(to, from + i * stride, sizeof zero);
      });
    });
  }

  /// f(first element) for each whole row of operand k within n elements from `at`.
  template <class F>
  void for_rows(int k, int64_t at, int64_t n, F&& f) const {
    const int last = loop_.ndim - 1;
    int64_t index[kMaxDims], rest = at / loop_.size[last];
    char* from = loop_.base[k];
    for (int d = last - 1; d >= 0; --d) {
      index[d] = rest % loop_.size[d];
      rest /= loop_.size[d];
      from += index[d] * loop_.stride[k][d];
    }
    for (int64_t rows = n / loop_.size[last]; rows > 0; --rows) {
      f(from);
      for (int d = last - 1; d >= 0; --d) {
        from += loop_.stride[k][d];
        if (++index[d] < loop_.size[d]) break;
        from -= index[d] * loop_.stride[k][d];
        index[d] = 0;
      }
    }
  }

  const Loop& loop_;
  PieceKernel kernel_;
  bool by_row_;
  int64_t unit_;
  unsigned scalars_ = 0;   // bit k: input k is one element in a piece
  unsigned gathered_ = 0;  // bit k: operand k goes through a buffer
  unsigned repeated_ = 0;  // bit k: operand k repeats one row
};

}  // namespace

Loop::Loop(const Dims& sizes) : ndim(sizes.size()), count(num_elements(sizes)) {
  for (int d = 0; d < ndim; ++d) size[d] = sizes[d];
}

void Loop::add(char* data, int64_t item_size, const Geometry* geometry) {
  const int k = operands++;
  base[k] = data;
  item[k] = item_size;
  const int missing = ndim - (geometry ? geometry->ndim() : 0);
  for (int d = 0; d < ndim; ++d) {
    const int own = d - missing;
    stride[k][d] = own < 0 || geometry->sizes[own] == 1 ? 0 : geometry->strides[own] * item_size;
  }
}

void Loop::add_strides(char* data, int64_t item_size, const int64_t* strides) {
  const int k = operands++;
  base[k] = data;
  item[k] = item_size;
  std::copy_n(strides, ndim, stride[k]);
}

void Loop::arrange(int by) {
  for (int d = 1; d < ndim; ++d) {  // stable insertion
    for (int e = d; e > 0; --e) {
      if (size[e] != 1 && size[e - 1] != 1 && stride[by][e - 1] >= stride[by][e]) break;
      if (size[e] == 1) break;
      std::swap(size[e], size[e - 1]);
      for (int k = 0; k < operands; ++k) std::swap(stride[k][e], stride[k][e - 1]);
    }
  }
  merge();
}

void Loop::merge() {
  int kept = 0;
  for (int d = 0; d < ndim; ++d) {
    if (size[d] == 1) continue;
    bool join = kept > 0;
    for (int k = 0; join && k < operands; ++k) join = stride[k][kept - 1] == stride[k][d] * size[d];
    if (join) {
      size[kept - 1] *= size[d];
    } else {
      size[kept++] = size[d];
    }
    for (int k = 0; k < operands; ++k) stride[k][kept - 1] = stride[k][d];
  }
  ndim = kept;
}

void run_loop(const Loop& loop, PieceKernel kernel, int64_t grain) {
  if (loop.count == 0) return;
  const Runner runner(loop, kernel);
  if (loop.count <= grain) return runner.run(0, loop.count);
  const int64_t unit = runner.unit();
  parallel_for(
      (loop.count + unit - 1) / unit, std::max<int64_t>(grain / unit, 1),
      [&](int64_t begin, int64_t end) { runner.run(begin * unit, std::min(end * unit, loop.count)); });
}

void gather(char* to, const char* from, int64_t stride, int64_t n, int64_t item) {
  with_item(item, [&](auto zero) {
    auto* out = reinterpret_cast<decltype(zero)*>(to);
    for (int64_t i = 0; i < n; ++i) std::memcpy(out + i, from + i * stride, sizeof zero);
  });
}

void scatter(char* to, int64_t stride, const char* from, int64_t n, int64_t item) {
  with_item(item, [&](auto zero) {
    const auto* in = reinterpret_cast<const decltype(zero)*>(from);
    for (int64_t i = 0; i < n; ++i) std::memcpy(to + i * stride, in + i, sizeof zero);
  });
}

void fill(char* to, const char* element, int64_t n, int64_t item) {
  with_item(item, [&](auto zero) {
    auto value = zero;
    std::memcpy(&value, element, sizeof value);
    std::fill_n(reinterpret_cast<decltype(zero)*>(to), n, value);
  });
}

}  // namespace etch::cpu
