// layer_norm and its gradient over contiguous rows, one pass over memory each.
#include <algorithm>

#include "eager/cpu/columns.h"
#include "eager/cpu/composites.h"
#include "eager/cpu/rows.h"
#include "runtime/allocator.h"

namespace etch::cpu {
namespace {

/// Parameters in the compute type.
template <class S>
std::vector<Compute<S>> widened(const Operand& operand, int64_t n) {
  std::vector<Compute<S>> result(static_cast<size_t>(n));
  const auto* from = reinterpret_cast<const S*>(operand.data());
  for (int64_t i = 0; i < n; ++i) result[i] = widen(from[i * operand.geometry->strides[0]]);
  return result;
}

template <class S>
void forward(const OpCall& call, int64_t rows, int64_t n) {
  using T = Compute<S>;
  const char* in = call.inputs[0].data();
  char* out = call.outputs[0].data();
  T* means = reinterpret_cast<T*>(call.outputs[1].data());
  T* inverses = reinterpret_cast<T*>(call.outputs[2].data());
  const std::vector<T> weights = widened<S>(call.inputs[1], n), biases = widened<S>(call.inputs[2], n);
  const T *w = weights.data(), *b = biases.data();
  const T eps = call.inputs[3].scalar.to<T>(), count = static_cast<T>(static_cast<double>(n));
  parallel_for(rows, row_grain(n), [&](int64_t begin, int64_t end) {
    RowBuffer<S> source(n), target(n);
    for (int64_t r = begin; r < end; ++r) {
      const int64_t at = r * n * static_cast<int64_t>(sizeof(S));
      const T* x = source.read(in + at, n);
      const T mean = sum_of_run(x, n) / count;
      const T variance = sum_of<T>(n,
                                   [=](int64_t i) ETCH_INLINE_LAMBDA {
                                     const T centred = x[i] - mean;
                                     return centred * centred;
                                   }) /
                         count;
      const T inverse = T(1) / scalar::sqrt(variance + eps);
      means[r] = mean;
      inverses[r] = inverse;
      T* y = target.begin(out + at);
      ETCH_INDEPENDENT_ITERATIONS
      for (int64_t i = 0; i < n; ++i) y[i] = (x[i] - mean) * inverse * w[i] + b[i];
      target.finish(out + at, n);
    }
  });
}

template <class S>
void backward(const OpCall& call, int64_t rows, int64_t n, void* scratch) {
  using T = Compute<S>;
  const char *gradient = call.inputs[0].data(), *input = call.inputs[1].data();
  const T* means = reinterpret_cast<const T*>(call.inputs[2].data());
  const T* inverses = reinterpret_cast<const T*>(call.inputs[3].data());
  const std::vector<T> weights = widened<S>(call.inputs[4], n);
  const T* w = weights.data();
  char* out = call.outputs[0].data();
  const T count = static_cast<T>(static_cast<double>(n));
  T* totals = static_cast<T*>(scratch);
  sum_columns<T>(rows, n, 2, totals + 2 * n, totals, [&](int64_t first, int64_t last, T* acc) {
    RowBuffer<S> g_row(n), x_row(n), dx_row(n);
    T* __restrict__ g_w = acc;
    T* __restrict__ g_b = acc + n;
    for (int64_t r = first; r < last; ++r) {
      const int64_t at = r * n * static_cast<int64_t>(sizeof(S));
      const T* g = g_row.read(gradient + at, n);
      const T* x = x_row.read(input + at, n);
      const T mean = means[r], inverse = inverses[r];
      const T mean_scaled = sum_of<T>(n, [=](int64_t i) ETCH_INLINE_LAMBDA { return g[i] * w[i]; }) / count;
      const T mean_product =
          sum_of<T>(n,
                    [=](int64_t i) ETCH_INLINE_LAMBDA { return (g[i] * w[i]) * ((x[i] - mean) * inverse); }) /
          count;
      T* dx = dx_row.begin(out + at);
      ETCH_INDEPENDENT_ITERATIONS
      for (int64_t i = 0; i < n; ++i) {
        const T normal = (x[i] - mean) * inverse;
        g_w[i] = g_w[i] + g[i] * normal;
        g_b[i] = g_b[i] + g[i];
        dx[i] = ((g[i] * w[i] - mean_scaled) - normal * mean_product) * inverse;
      }
      dx_row.finish(out + at, n);
    }
  });
  for (int k = 0; k < 2; ++k) {
    S* to = reinterpret_cast<S*>(call.outputs[k + 1].data());
    for (int64_t i = 0; i < n; ++i) to[i] = narrow<S>(totals[k * n + i]);
  }
}

bool all_contiguous(std::span<const Operand> operands) {
  return std::all_of(operands.begin(), operands.end(), [](const Operand& operand) {
    return operand.is_scalar() || is_contiguous(*operand.geometry);
  });
}

}  // namespace

bool run_layer_norm(const OpCall& call) {
  if (!all_contiguous(call.inputs) || !all_contiguous(call.outputs)) return false;
  const Geometry& x = *call.inputs[0].geometry;
  const int64_t n = x.sizes.back();
  return visit_floating(call.inputs[0].dtype, [&]<class S>() {
    forward<S>(call, x.numel() / n, n);
    return true;
  });
}

size_t layer_norm_grad_scratch_bytes(const OpCall& call) {
  const Geometry& x = *call.inputs[1].geometry;
  const int64_t n = x.sizes.back();
  return static_cast<size_t>(2 * n * (1 + chunks_of(x.numel() / n))) *
         item_size(compute_dtype(call.inputs[1].dtype));
}

bool run_layer_norm_grad(const OpCall& call, void* scratch) {
  const Geometry& x = *call.inputs[1].geometry;
  const int64_t n = x.sizes.back();
  // With one column the sums over rows have the order of a run.
  if (n == 1 || !all_contiguous(call.inputs) || !all_contiguous(call.outputs)) return false;
  const ScratchBuffer own(Device::cpu(), scratch ? 0 : layer_norm_grad_scratch_bytes(call));
  return visit_floating(call.inputs[1].dtype, [&]<class S>() {
    backward<S>(call, x.numel() / n, n, scratch ? scratch : own.data());
    return true;
  });
}

}  // namespace etch::cpu
