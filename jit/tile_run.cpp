// Running a tiled node: batches are divided among threads, each goes through its blocks of rows.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <limits>

#include "absl/container/inlined_vector.h"
#include "eager/cpu/tile_product.h"
#include "eager/cpu/tile_scan.h"
#include "jit/tile_plan.h"
#include "runtime/parallel.h"

namespace etch::jit {
namespace {

struct Range {
  int64_t first = 0, last = 0;  // the last excluded
  int64_t count() const { return last - first; }
  bool within(const Range& other) const { return first >= other.first && last <= other.last; }
};

void fill_zeros(float* line, const Range& range) {
  std::memset(line + range.first, 0, static_cast<size_t>(range.count()) * sizeof(float));
}

/// One thread's work.
class TileRun {
 public:
  TileRun(const TilePlan& plan, const TileArguments& arguments, float* scratch)
      : plan_(plan),
        arguments_(arguments),
        scratch_(scratch),
        first_(plan.windows.size()),
        magnitudes_(plan.windows.size()),
        support_(plan.locals.size()),
        seen_((plan.rows + kTileRows - 1) / kTileRows) {
    float* next = scratch + plan.magnitudes;
    for (size_t w = 0; w < plan.windows.size(); ++w) {
      magnitudes_[w] = next;
      next += plan.blocks(plan.windows[w]);
    }
  }

  void run(int64_t batch) {
    batch_ = batch;
    for (size_t w = 0; w < first_.size(); ++w) {
      first_[w] = reinterpret_cast<float*>(arguments_.windows[w]) + offset(plan_.windows[w].operand.geometry);
      std::fill_n(magnitudes_[w], plan_.blocks(plan_.windows[w]), -1.0f);
    }
    const float* packed = nullptr;
    for (const TilePlan::Stage& stage : plan_.stages) {
      const auto* product = std::get_if<TilePlan::Product>(&stage);
      if (!product) continue;
      if (product->packed >= 0 && scratch_ + product->packed != packed) {
        const TilePlan::Window& b = plan_.windows[product->b.window];
        cpu::transpose_tile(first_[product->b.window], b.stride, b.lines, b.length,
                            scratch_ + product->packed);
        packed = scratch_ + product->packed;
      }
      if (product->by_rows) continue;
      const TilePlan::Window& c = plan_.windows[product->c.window];
      for (int64_t i = 0; i < c.lines; ++i)
        fill_zeros(first_[product->c.window] + i * c.stride, {0, c.length});
    }
    for (row_ = 0; row_ < plan_.rows; row_ += kTileRows) {
      rows_ = std::min(kTileRows, plan_.rows - row_);
      run_block();
    }
  }

 private:
  /// Of the batch's matrix, in elements.
  int64_t offset(const Geometry& geometry) const {
    int64_t rest = batch_, result = 0;
    for (int d = plan_.batch.size() - 1; d >= 0; --d) {
      result += rest % plan_.batch[d] * geometry.strides[d];
      rest /= plan_.batch[d];
    }
    return result;
  }

  void run_block() {
    find_visible();
    size_t pointer = 0, scalar = 0;
    for (size_t l = 0; l < support_.size(); ++l) {
      support_[l] = {0, plan_.locals[l].columns};
      if (plan_.locals[l].given) find_support(static_cast<int>(l));
    }
    for (const TilePlan::Stage& stage : plan_.stages) {
      if (const auto* product = std::get_if<TilePlan::Product>(&stage)) {
        if (product->by_rows)
          run_by_rows(*product);
        else
          run_by_terms(*product);
      } else {
        const auto& kernel = std::get<TilePlan::Kernel>(stage);
        run_kernel(kernel, arguments_.pointers.data() + pointer, arguments_.scalars.data() + scalar);
        pointer += kernel.lowered.pointers.size();
        scalar += kernel.lowered.scalars.size();
      }
    }
  }

  /// The tile's first row of it.
  float* local(int l) const {
    const TilePlan::Local& local = plan_.locals[l];
    if (!local.memory) return scratch_ + local.place;
    return reinterpret_cast<float*>(arguments_.locals[l]) + (batch_ * plan_.rows + row_) * local.columns;
  }

  /// Whether the columns that the mask hides are zeros.
  void find_support(int l) {
    const int64_t width = plan_.locals[l].columns;
    if (visible_.last <= width && cpu::is_zero(local(l), rows_, visible_.first, width) &&
        cpu::is_zero(local(l) + visible_.last, rows_, width - visible_.last, width))
      support_[l] = visible_;
  }

  float magnitude(int window, int64_t block) {
    float& known = magnitudes_[window][block];
    if (known < 0) {
      const TilePlan::Window& w = plan_.windows[window];
      const int64_t from = block * kTileRows;
      known = cpu::largest_magnitude(first_[window] + from * w.stride, std::min(kTileRows, w.lines - from),
                                     w.length, w.stride);
    }
    return known;
  }

  /// The largest magnitude of lines outside `range`, whose ends are those of blocks.
  float magnitude_outside(int window, const Range& range) {
    float most = 0;
    const int64_t blocks = plan_.blocks(plan_.windows[window]);
    for (int64_t block = 0; block < blocks; ++block)
      if (block * kTileRows < range.first || block * kTileRows >= range.last) {
        const float next = magnitude(window, block);
        if (!(next <= most)) most = next;
        if (most != most) break;
      }
    return most;
  }

  static bool is_finite(float magnitude) { return magnitude <= std::numeric_limits<float>::max(); }

  /// The columns that some row of the tile may see, in whole blocks; at least one block.
  void find_visible() {
    if (!plan_.mask) return;
    const Geometry& g = plan_.mask->window.geometry;
    const int64_t columns = g.sizes.back(), stride = g.strides[g.ndim() - 2];
    const auto* first = reinterpret_cast<const uint8_t*>(arguments_.mask) + offset(g) + row_ * stride;
    Seen& seen = seen_[row_ / kTileRows];
    visible_ = seen.range;
    if (seen.mask == first) return;
    const int64_t rows = stride == 0 ? 1 : rows_;
    const auto is_hidden = [&](int64_t from) {
      return cpu::all_are(plan_.mask->hides_when, first + from, rows, std::min(columns - from, kTileRows),
                          stride);
    };
    visible_ = {0, columns};
    while (visible_.last > kTileRows) {
      const int64_t from = (visible_.last - 1) / kTileRows * kTileRows;
      if (!is_hidden(from)) break;
      visible_.last = from;
    }
    // The last block may be narrower than products can be.
    while (visible_.first + 2 * kTileRows <= visible_.last && is_hidden(visible_.first))
      visible_.first += kTileRows;
    seen = {first, visible_};
  }

  void run_by_rows(const TilePlan::Product& p) {
    const bool local_a = p.a.local >= 0, local_c = p.c.local >= 0;
    const TilePlan::Window& b = plan_.windows[p.b.window];
    const int64_t a_stride = local_a ? plan_.locals[p.a.local].columns : plan_.windows[p.a.window].stride;
    const int64_t c_stride = local_c ? p.columns : plan_.windows[p.c.window].stride;
    const int64_t b_stride = p.packed >= 0 ? p.columns : b.stride;
    const float* const a = local_a ? local(p.a.local) : first_[p.a.window] + row_ * a_stride;
    const float* const all_b = p.packed >= 0 ? scratch_ + p.packed : first_[p.b.window];
    float* const c = local_c ? local(p.c.local) : first_[p.c.window] + row_ * c_stride;

    Range columns{0, p.columns};
    if (p.hidden) {
      if (p.hidden->times_local < 0) {
        columns = visible_;
      } else if (support_[p.hidden->times_local].within(visible_) && visible_.count() < p.columns) {
        const double most = double{magnitude(p.a.window, row_ / kTileRows)} *
                            double{magnitude_outside(p.b.window, visible_)} * static_cast<double>(p.terms);
        if (most < 1e38) columns = visible_;
      }
    }
    Range terms{0, p.terms};
    if (local_a && support_[p.a.local].count() < p.terms &&
        is_finite(magnitude_outside(p.b.window, b.of_columns ? Range{} : support_[p.a.local])))
      terms = support_[p.a.local];
    const auto multiply = [&] {
      cpu::tile_product({rows_, columns.count(), terms.count(), a_stride, b_stride, c_stride},
                        a + terms.first, all_b + terms.first * b_stride + columns.first, c + columns.first);
    };
    multiply();
    // A sum that underflowed to -0 would have become 0 at the first term that is 0.
    if (terms.last < p.terms && cpu::has_negative_zero(c + columns.first, rows_, columns.count(), c_stride)) {
      terms = {0, p.terms};
      multiply();
    }
    if (p.hidden && p.hidden->times_local >= 0 && columns.count() < p.columns)
      for (int64_t i = 0; i < rows_; ++i) {
        fill_zeros(c + i * c_stride, {0, columns.first});
        fill_zeros(c + i * c_stride, {columns.last, p.columns});
      }
  }

  void run_by_terms(const TilePlan::Product& p) {
    const bool local_a = p.a.local >= 0;
    const TilePlan::Window &b = plan_.windows[p.b.window], &c = plan_.windows[p.c.window];
    const int64_t a_stride = local_a ? plan_.locals[p.a.local].columns : plan_.windows[p.a.window].stride;
    const float* const a = local_a ? local(p.a.local) : first_[p.a.window] + row_ * a_stride;
    const int64_t width = c.lines;
    Range rows = local_a ? support_[p.a.local] : Range{0, width};
    if (rows.count() < width) {
      const float* const all = first_[p.c.window];
      if (!is_finite(magnitude(p.b.window, row_ / kTileRows)) ||
          cpu::has_negative_zero(all, rows.first, c.length, c.stride) ||
          cpu::has_negative_zero(all + rows.last * c.stride, width - rows.last, c.length, c.stride))
        rows = {0, width};
    }
    cpu::tile_product({rows.count(), p.columns, rows_, a_stride, b.stride, c.stride, true, true},
                      a + rows.first, first_[p.b.window] + row_ * b.stride,
                      first_[p.c.window] + rows.first * c.stride);
  }

  void run_kernel(const TilePlan::Kernel& kernel, char* const* memory, const codegen::KernelScalar* scalars) {
    const codegen::LoweredKernel& lowered = kernel.lowered;
    const int64_t begin = batch_ * plan_.rows + row_;
    absl::InlinedVector<char*, 16> pointers(lowered.pointers.size() + 1);
    // The kernel counts rows from the first batch's.
    for (size_t i = 0; i < kernel.local.size(); ++i)
      pointers[i] =
          kernel.local[i] < 0
              ? memory[i]
              : reinterpret_cast<char*>(reinterpret_cast<uintptr_t>(local(kernel.local[i])) -
                                        begin * plan_.locals[kernel.local[i]].columns * sizeof(float));
    const bool trims = kernel.fill >= 0 && visible_.last < lowered.dims[lowered.run] &&
                       scalars[kernel.fill].f32 == -std::numeric_limits<float>::infinity();
    if (trims) {
      absl::InlinedVector<int64_t, 16> dims(lowered.dims.begin(), lowered.dims.end());
      dims[lowered.run] = visible_.last;
      kernel.loaded.phases[0](pointers.data(), dims.data(), scalars, begin, begin + rows_);
    } else {
      kernel.loaded.phases[0](pointers.data(), lowered.dims.data(), scalars, begin, begin + rows_);
    }
    for (size_t i = 0; i < kernel.local.size(); ++i) {
      const int l = kernel.local[i];
      if (l < 0 || !lowered.written[i]) continue;
      const int64_t width = plan_.locals[l].columns;
      // exp(-inf - most) is zero, unless the row's largest value makes all of it NaN.
      for (int64_t r = 0; trims && r < rows_; ++r) {
        float* const row = local(l) + r * width;
        if (row[0] == row[0])
          fill_zeros(row, {visible_.last, width});
        else
          std::fill(row + visible_.last, row + width, row[0]);
      }
      find_support(l);
    }
  }

  const TilePlan& plan_;
  const TileArguments& arguments_;
  float* const scratch_;
  std::vector<float*> first_;       ///< of the batch's matrix, by window
  std::vector<float*> magnitudes_;  ///< by window and block of its lines; negative: not known yet
  std::vector<Range> support_;      ///< by local: its other columns are zeros
  struct Seen {
    const uint8_t* mask = nullptr;
    Range range;
  };
  std::vector<Seen> seen_;  ///< by block of rows: what find_visible() found last
  Range visible_{0, std::numeric_limits<int64_t>::max()};  ///< columns that the tile's mask does not hide
  int64_t batch_ = 0, row_ = 0, rows_ = 0;
};

}  // namespace

void run_tile(const TilePlan& plan, const TileArguments& arguments, float* scratch) {
  std::atomic<int64_t> threads{0};
  parallel_for(plan.batches, 1, [&](int64_t begin, int64_t end) {
    TileRun run(plan, arguments, scratch + threads++ * plan.scratch_floats);
    for (int64_t batch = begin; batch < end; ++batch) run.run(batch);
  });
}

}  // namespace etch::jit
