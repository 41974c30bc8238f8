// Spreads reductions over threads without touching their order.
#include "eager/cpu/reduction.h"

#include <algorithm>
#include <cstring>

#include "eager/cpu/loop.h"
#include "runtime/allocator.h"
#include "runtime/parallel.h"
#include "tracer/attrs.h"
#include "tracer/reduction.h"

namespace etch::cpu {
namespace {

const ReductionKernels& kernels_of(Op op, DType dtype) {
  static constexpr const ReductionTable* kTables[kNumDTypes] = {
      &kReductionBool, &kReductionU8,   &kReductionI32, &kReductionI64,
      &kReductionF16,  &kReductionBF16, &kReductionF32, &kReductionF64};
  return (*kTables[static_cast<int>(dtype)])[static_cast<int>(op)];
}

/// Widest piece of columns accumulated at once; its accumulators stay in the first-level cache.
constexpr int64_t kColumnTile = 2048;
/// Runs shorter than this are not split over threads.
constexpr int64_t kLongRun = 1024;
constexpr int64_t kMaxAcc = 8;

/// How one reduction is laid out. Loops over kept dimensions have the operands (output, input); loops over
/// reduced ones (input, input). Strides are in bytes.
struct Plan {
  ReductionOrder::Kind kind;
  Loop kept, reduced;  // Rows: `reduced` are the dimensions outside the run
  Loop run;            // Rows: the run; Columns: the innermost kept dimensions (output, input)
  int64_t item = 0;
  int64_t outputs = 0;

  explicit Plan(const OpCall& call);
  int64_t blocks() const { return (run.count + kReductionBlock - 1) / kReductionBlock; }
  int64_t chunks() const {
    const int64_t rows = chunk_rows(reduced.count);
    return (reduced.count + rows - 1) / rows;
  }
  /// Whether partial results of blocks are kept so that one long run can use all threads.
  bool splits_runs() const {
    return kept.count < 16 && run.count >= kLongRun && kept.count * reduced.count * run.count > 2 * kGrain;
  }
  /// Rows: every output is one contiguous run.
  bool is_plain() const {
    return reduced.count == 1 && (run.ndim == 0 || (run.ndim == 1 && run.stride[1][0] == item));
  }
  /// Accumulators of partial results.
  int64_t partials() const {
    if (kind == ReductionOrder::Kind::Rows) return splits_runs() ? kept.count * reduced.count * blocks() : 0;
    return chunks() > 1 ? kept.count * chunks() * run.count : 0;
  }
};

Plan::Plan(const OpCall& call) : kept(Dims{}), reduced(Dims{}), run(Dims{}) {
  const Operand& in = call.inputs[0];
  const Operand& out = call.outputs[0];
  const ReductionAttrs attrs(call.attrs);
  const ReductionOrder order = reduction_order(*in.geometry, attrs.axes);
  kind = order.kind;
  item = static_cast<int64_t>(item_size(in.dtype));
  const auto out_item = static_cast<int64_t>(item_size(out.dtype));
  for (Loop* loop : {&kept, &reduced, &run}) {
    loop->operands = 2;
    loop->base[0] = out.data();
    loop->base[1] = in.data();
    loop->item[0] = out_item;
    loop->item[1] = item;
  }
  const auto push = [&](Loop& loop, int d, int64_t other) {
    loop.size[loop.ndim] = order.size[d];
    loop.stride[0][loop.ndim] = other;
    loop.stride[1][loop.ndim++] = order.stride[d] * item;
    loop.count *= order.size[d];
  };
  int inner = order.ndim;  // where the run or the columns begin
  while (inner > 0 && order.reduced[inner - 1] == (kind == ReductionOrder::Kind::Rows)) --inner;
  for (int d = 0; d < order.ndim; ++d) {
    if (order.reduced[d]) {
      push(d >= inner ? run : reduced, d, order.stride[d] * item);
      continue;
    }
    int axis = order.axis[d];
    if (!attrs.keepdim)
      for (int a = 0; a < order.axis[d]; ++a) axis -= attrs.axes >> a & 1;
    push(d >= inner ? run : kept, d, out.geometry->strides[axis] * out_item);
  }
  for (Loop* loop : {&kept, &reduced, &run}) loop->merge();
}

/// Contiguous elements [at, at + n) of a loop's input, gathered into `buffer` if they are not.
const char* contiguous_piece(const Loop& loop, const char* base, int64_t at, int64_t n, char* buffer) {
  const int64_t item = loop.item[1];
  if (loop.ndim == 0) return base;
  if (loop.ndim == 1 && loop.stride[1][0] == item) return base + at * item;
  char* to = buffer;
  walk(loop, at, at + n, [&](const int64_t* offset, int64_t count) {
    gather(to, base + offset[1], loop.inner_stride(1), count, item);
    to += count * item;
  });
  return buffer;
}

class Rows {
 public:
  Rows(const Plan& plan, const ReductionKernels& kernels) : plan_(plan), kernels_(kernels) {}

  void run(char* partials) const {
    if (plan_.partials() > 0) return run_split(partials);
    const int64_t each = std::max<int64_t>(plan_.reduced.count * plan_.run.count, 1);
    parallel_for(plan_.kept.count, std::max<int64_t>(1, kGrain / (each + 16)),
                 [&](int64_t begin, int64_t end) {
                   walk(plan_.kept, begin, end, [&](const int64_t* offset, int64_t n) {
                     if (plan_.is_plain()) return plain_rows(offset, n);
                     for (int64_t i = 0; i < n; ++i) output(offset, i);
                   });
                 });
  }

 private:
  using Cell = char[kMaxAcc];

  /// n outputs of one contiguous run each.
  void plain_rows(const int64_t* offset, int64_t n) const {
    constexpr int64_t kRows = 64;
    alignas(64) char results[kRows * kMaxAcc];
    const int64_t out_stride = plan_.kept.inner_stride(0), in_stride = plan_.kept.inner_stride(1);
    for (int64_t i = 0; i < n; i += kRows) {
      const int64_t rows = std::min(kRows, n - i);
      kernels_.rows(results, plan_.kept.base[1] + offset[1] + i * in_stride, in_stride, rows,
                    plan_.run.count);
      kernels_.store(plan_.kept.base[0] + offset[0] + i * out_stride, out_stride, results, rows);
    }
  }

  void output(const int64_t* offset, int64_t i) const {
    const char* in = plan_.kept.base[1] + offset[1] + i * plan_.kept.inner_stride(1);
    alignas(kMaxAcc) Cell total, one;
    alignas(64) char buffer[kReductionBlock * 8];
    if (plan_.reduced.count == 1) {
      reduce(total, in, buffer);
    } else {
      kernels_.start(total, 1);
      walk(plan_.reduced, 0, plan_.reduced.count, [&](const int64_t* at, int64_t n) {
        for (int64_t k = 0; k < n; ++k) {
          reduce(one, in + at[1] + k * plan_.reduced.inner_stride(1), buffer);
          kernels_.merge(total, one, 1);
        }
      });
    }
    kernels_.store(plan_.kept.base[0] + offset[0] + i * plan_.kept.inner_stride(0), 0, total, 1);
  }

  void reduce(char* result, const char* in, char* buffer) const {
    alignas(kMaxAcc) Cell one;
    kernels_.start(result, 1);
    for (int64_t b = 0; b < plan_.blocks(); ++b) {
      block(one, in, b, buffer);
      kernels_.merge(result, one, 1);
    }
  }

  void block(char* acc, const char* in, int64_t b, char* buffer) const {
    const int64_t at = b * kReductionBlock, n = std::min(kReductionBlock, plan_.run.count - at);
    kernels_.block(acc, contiguous_piece(plan_.run, in, at, n, buffer), n);
  }

  void run_split(char* partials) const {
    const int64_t blocks = plan_.blocks(), runs = plan_.reduced.count, size = kernels_.acc_size;
    parallel_for(plan_.kept.count * runs * blocks, kGrain / std::min(plan_.run.count, kReductionBlock),
                 [&](int64_t begin, int64_t end) {
                   alignas(64) char buffer[kReductionBlock * 8];
                   for (int64_t unit = begin; unit < end; ++unit) {
                     const char* in = plan_.kept.base[1];
                     in += offset_of(plan_.kept, unit / (blocks * runs));
                     in += offset_of(plan_.reduced, unit / blocks % runs);
                     block(partials + unit * size, in, unit % blocks, buffer);
                   }
                 });
    alignas(kMaxAcc) Cell total, one;
    const char* next = partials;
    walk(plan_.kept, 0, plan_.kept.count, [&](const int64_t* offset, int64_t n) {
      for (int64_t i = 0; i < n; ++i) {
        kernels_.start(total, 1);
        for (int64_t r = 0; r < runs; ++r) {
          kernels_.start(one, 1);
          for (int64_t b = 0; b < blocks; ++b, next += size) kernels_.merge(one, next, 1);
          kernels_.merge(total, one, 1);
        }
        kernels_.store(plan_.kept.base[0] + offset[0] + i * plan_.kept.inner_stride(0), 0, total, 1);
      }
    });
  }

  static int64_t offset_of(const Loop& loop, int64_t index) {
    int64_t result = 0;
    for (int d = loop.ndim - 1; d >= 0; --d) {
      result += index % loop.size[d] * loop.stride[1][d];
      index /= loop.size[d];
    }
    return result;
  }

  const Plan& plan_;
  const ReductionKernels& kernels_;
};

class Columns {
 public:
  Columns(const Plan& plan, const ReductionKernels& kernels)
      : plan_(plan), kernels_(kernels), tile_(std::min(plan.run.count, kColumnTile)) {}

  void run(char* partials) const {
    const int64_t chunks = plan_.chunks(), tiles = (plan_.run.count + tile_ - 1) / tile_;
    const int64_t each = chunk_rows(plan_.reduced.count) * tile_;
    const int64_t width = plan_.run.count, size = kernels_.acc_size;
    walk_units(plan_.kept.count * chunks * tiles, std::max<int64_t>(1, kGrain / each), [&](int64_t unit) {
      const int64_t tile = unit % tiles, chunk = unit / tiles % chunks, outer = unit / (tiles * chunks);
      alignas(64) char stack[kColumnTile * kMaxAcc];
      char* acc = chunks > 1 ? partials + ((outer * chunks + chunk) * width + tile * tile_) * size : stack;
      accumulate(acc, outer, chunk, tile);
      if (chunks == 1) store(acc, outer, tile);
    });
    if (chunks <= 1) return;
    walk_units(plan_.kept.count * tiles, std::max<int64_t>(1, kGrain / (chunks * tile_)), [&](int64_t unit) {
      const int64_t tile = unit % tiles, outer = unit / tiles, n = columns_of(tile);
      alignas(64) char total[kColumnTile * kMaxAcc];
      kernels_.start(total, n);
      for (int64_t chunk = 0; chunk < chunks; ++chunk)
        kernels_.merge(total, partials + ((outer * chunks + chunk) * width + tile * tile_) * size, n);
      store(total, outer, tile);
    });
  }

 private:
  template <class F>
  static void walk_units(int64_t units, int64_t grain, F&& f) {
    parallel_for(units, grain, [&](int64_t begin, int64_t end) {
      for (int64_t unit = begin; unit < end; ++unit) f(unit);
    });
  }

  int64_t columns_of(int64_t tile) const { return std::min(tile_, plan_.run.count - tile * tile_); }

  void accumulate(char* acc, int64_t outer, int64_t chunk, int64_t tile) const {
    const int64_t n = columns_of(tile), each = chunk_rows(plan_.reduced.count);
    const int64_t first = chunk * each, last = std::min(first + each, plan_.reduced.count);
    const char* in = plan_.kept.base[1];
    walk(plan_.kept, outer, outer + 1, [&](const int64_t* offset, int64_t) { in += offset[1]; });
    kernels_.start(acc, n);
    alignas(64) char buffer[kColumnTile * 8];
    const Loop& columns = plan_.run;
    const bool direct = columns.ndim == 0 || (columns.ndim == 1 && columns.stride[1][0] == columns.item[1]);
    const int64_t row_stride = plan_.reduced.inner_stride(1);
    walk(plan_.reduced, first, last, [&](const int64_t* offset, int64_t rows) {
      const char* from = in + offset[1];
      if (direct) return kernels_.columns(acc, from + tile * tile_ * plan_.item, row_stride, rows, n);
      for (int64_t r = 0; r < rows; ++r)
        kernels_.columns(acc, contiguous_piece(columns, from + r * row_stride, tile * tile_, n, buffer), 0, 1,
                         n);
    });
  }

  void store(const char* acc, int64_t outer, int64_t tile) const {
    char* out = plan_.kept.base[0];
    walk(plan_.kept, outer, outer + 1, [&](const int64_t* offset, int64_t) { out += offset[0]; });
    walk(plan_.run, tile * tile_, tile * tile_ + columns_of(tile), [&](const int64_t* offset, int64_t n) {
      kernels_.store(out + offset[0], plan_.run.inner_stride(0), acc, n);
      acc += n * kernels_.acc_size;
    });
  }

  const Plan& plan_;
  const ReductionKernels& kernels_;
  int64_t tile_;
};

/// The identity everywhere: nothing was reduced.
void fill_identity(const OpCall& call, const ReductionKernels& kernels) {
  const Operand& out = call.outputs[0];
  Loop loop(out.geometry->sizes);
  loop.add(out.data(), static_cast<int64_t>(item_size(out.dtype)), out.geometry);
  alignas(kMaxAcc) char acc[kMaxAcc];
  kernels.start(acc, 1);
  walk(loop, 0, loop.count, [&](const int64_t* offset, int64_t n) {
    for (int64_t i = 0; i < n; ++i)
      kernels.store(loop.base[0] + offset[0] + i * loop.inner_stride(0), 0, acc, 1);
  });
}

}  // namespace

size_t reduction_scratch_bytes(const OpCall& call) {
  if (call.inputs[0].geometry->numel() == 0) return 0;
  return static_cast<size_t>(Plan(call).partials() * kMaxAcc);
}

void run_reduction(const OpCall& call, void* scratch) {
  const Operand& in = call.inputs[0];
  const ReductionKernels& kernels = kernels_of(call.op, in.dtype);
  if (call.outputs[0].geometry->numel() == 0) return;
  if (in.geometry->numel() == 0) return fill_identity(call, kernels);
  const Plan plan(call);
  const int64_t bytes = plan.partials() * kMaxAcc;
  const ScratchBuffer own(Device::cpu(), bytes > 0 && !scratch ? static_cast<size_t>(bytes) : 0);
  char* partials = static_cast<char*>(scratch ? scratch : own.data());
  if (plan.kind == ReductionOrder::Kind::Rows)
    Rows(plan, kernels).run(partials);
  else
    Columns(plan, kernels).run(partials);
}

}  // namespace etch::cpu
