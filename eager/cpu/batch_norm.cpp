// Batch norm and its gradient with channels innermost in memory: packed rows of channels.
#include <algorithm>
#include <vector>

#include "eager/cpu/columns.h"
#include "eager/cpu/composites.h"
#include "eager/cpu/rows.h"
#include "runtime/allocator.h"
#include "tracer/composites.h"

namespace etch::cpu {
namespace {

/// Whether the tensor is packed rows of channels, reduced in the order of columns, sample after sample.
bool has_channel_rows(const Geometry& geometry) {
  const int64_t channels = geometry.sizes[1];
  if (channels == 1 || geometry.strides[1] != 1) return false;
  const ReductionOrder order =
      reduction_order(geometry, ~uint64_t{2} & ((uint64_t{1} << geometry.ndim()) - 1));
  if (order.kind != ReductionOrder::Kind::Columns) return false;
  int64_t expected = channels;
  for (int d = order.ndim - 2; d >= 0; --d) {
    if (order.stride[d] != expected) return false;
    expected *= order.size[d];
  }
  return order.ndim > 0 && order.axis[order.ndim - 1] == 1 && (order.axis[0] == 0 || geometry.sizes[0] == 1);
}

bool same_layout(const Geometry& a, const Geometry& b) {
  for (int d = 0; d < a.ndim(); ++d)
    if (a.sizes[d] != 1 && a.strides[d] != b.strides[d]) return false;
  return true;
}

/// A parameter [C] in the compute type.
template <class S>
std::vector<Compute<S>> channels_of(const Operand& operand) {
  const int64_t n = operand.geometry->sizes[0];
  std::vector<Compute<S>> result(static_cast<size_t>(n));
  const auto* from = reinterpret_cast<const S*>(operand.data());
  for (int64_t c = 0; c < n; ++c) result[c] = widen(from[c * operand.geometry->strides[0]]);
  return result;
}

template <class S>
void store_channels(const Operand& operand, const Compute<S>* values) {
  auto* to = reinterpret_cast<S*>(operand.data());
  const int64_t n = operand.geometry->sizes[0];
  for (int64_t c = 0; c < n; ++c) to[c * operand.geometry->strides[0]] = narrow<S>(values[c]);
}

/// f(element, channel) for independent elements; four rows at a time, which share what is loaded for a
/// channel.
template <class F>
void for_elements(int64_t rows, int64_t channels, F f) {
  parallel_for(rows, std::max<int64_t>(1, kGrain / channels), [=](int64_t begin, int64_t end) {
    int64_t r = begin;
    for (; r + 4 <= end; r += 4) {
      ETCH_INDEPENDENT_ITERATIONS
      for (int64_t c = 0; c < channels; ++c) {
        const int64_t i = r * channels + c;
        f(i, c);
        f(i + channels, c);
        f(i + 2 * channels, c);
        f(i + 3 * channels, c);
      }
    }
    for (; r < end; ++r) {
      ETCH_INDEPENDENT_ITERATIONS
      for (int64_t c = 0; c < channels; ++c) f(r * channels + c, c);
    }
  });
}

/// f(begin, end) on a few rows at a time, so that a second sum finds them in the cache.
template <class F>
void by_few_rows(int64_t first, int64_t last, F f) {
  for (int64_t r = first; r < last; r += 16) f(r, std::min(last, r + 16));
}

/// y = (x - mean) * inverse * w + b.
template <class S>
void normalise(const Operand& in, const Operand& out, int64_t rows, int64_t channels, const Compute<S>* mean,
               const Compute<S>* inverse, const Compute<S>* w, const Compute<S>* b) {
  const S* x = reinterpret_cast<const S*>(in.data());
  S* y = reinterpret_cast<S*>(out.data());
  for_elements(rows, channels, [=](int64_t i, int64_t c) ETCH_INLINE_LAMBDA {
    y[i] = narrow<S>((widen(x[i]) - mean[c]) * inverse[c] * w[c] + b[c]);
  });
}

template <class S>
void forward(const OpCall& call, void* scratch) {
  using T = Compute<S>;
  const Operand& in = call.inputs[0];
  const int64_t channels = in.geometry->sizes[1], rows = in.geometry->numel() / channels;
  const S* x = reinterpret_cast<const S*>(in.data());
  const std::vector<T> w = channels_of<S>(call.inputs[1]), b = channels_of<S>(call.inputs[2]);
  std::vector<T> running_mean = channels_of<T>(call.inputs[3]),
                 running_variance = channels_of<T>(call.inputs[4]);
  const T momentum = call.inputs[5].scalar.to<T>(), eps = call.inputs[6].scalar.to<T>();
  const double count = static_cast<double>(rows);
  const T n = static_cast<T>(count), unbias = static_cast<T>(count / (count - 1));

  T* shift = static_cast<T*>(scratch);
  T* step = shift + channels;
  T* spread = step + channels;
  T* mean = spread + channels;
  T* inverse = mean + channels;
  T* partials = inverse + channels;
  const int64_t samples = in.geometry->sizes[0], few = rows / samples * shift_samples(samples);
  sum_columns<T>(few, channels, 1, partials, shift, [=](int64_t first, int64_t last, T* acc) {
    add_columns(acc, first, last, channels,
                [=](int64_t r, int64_t c) ETCH_INLINE_LAMBDA { return widen(x[r * channels + c]); });
  });
  for (int64_t c = 0; c < channels; ++c) {
    const T near = shift[c] / static_cast<T>(static_cast<double>(few));
    shift[c] = scalar::isfinite(near) ? near : T(0);
  }
  sum_columns<T>(rows, channels, 2, partials, step, [=](int64_t first, int64_t last, T* acc) {
    by_few_rows(first, last, [=](int64_t begin, int64_t end) {
      const auto moved = [=](int64_t r, int64_t c)
                             ETCH_INLINE_LAMBDA { return widen(x[r * channels + c]) - shift[c]; };
      add_columns(acc, begin, end, channels, moved);
      add_columns(acc + channels, begin, end, channels, [=](int64_t r, int64_t c) ETCH_INLINE_LAMBDA {
        const T value = moved(r, c);
        return value * value;
      });
    });
  });
  for (int64_t c = 0; c < channels; ++c) {
    step[c] = step[c] / n;
    mean[c] = shift[c] + step[c];
    const T variance = scalar::max(spread[c] / n - step[c] * step[c], T(0));
    inverse[c] = T(1) / scalar::sqrt(variance + eps);
    running_mean[c] = running_mean[c] + (mean[c] - running_mean[c]) * momentum;
    running_variance[c] = running_variance[c] + (variance * unbias - running_variance[c]) * momentum;
  }
  normalise<S>(in, call.outputs[0], rows, channels, mean, inverse, w.data(), b.data());
  store_channels<T>(call.outputs[1], mean);
  store_channels<T>(call.outputs[2], inverse);
  store_channels<T>(call.outputs[3], running_mean.data());
  store_channels<T>(call.outputs[4], running_variance.data());
}

template <class S>
void backward(const OpCall& call, void* scratch) {
  using T = Compute<S>;
  const Operand& in = call.inputs[1];
  const int64_t channels = in.geometry->sizes[1], rows = in.geometry->numel() / channels;
  const S* g = reinterpret_cast<const S*>(call.inputs[0].data());
  const S* x = reinterpret_cast<const S*>(in.data());
  S* dx = reinterpret_cast<S*>(call.outputs[0].data());
  const std::vector<T> means = channels_of<T>(call.inputs[2]), inverses = channels_of<T>(call.inputs[3]);
  const std::vector<T> w = channels_of<S>(call.inputs[4]);
  const T *mean = means.data(), *inverse = inverses.data();
  const T n = static_cast<T>(static_cast<double>(rows));

  T* g_b = static_cast<T*>(scratch);
  T* g_w = g_b + channels;
  T* partials = g_w + 3 * channels;
  sum_columns<T>(rows, channels, 2, partials, g_b, [=](int64_t first, int64_t last, T* acc) {
    by_few_rows(first, last, [=](int64_t begin, int64_t end) {
      add_columns(acc, begin, end, channels,
                  [=](int64_t row, int64_t c) ETCH_INLINE_LAMBDA { return widen(g[row * channels + c]); });
      add_columns(acc + channels, begin, end, channels, [=](int64_t row, int64_t c) ETCH_INLINE_LAMBDA {
        const int64_t i = row * channels + c;
        return widen(g[i]) * ((widen(x[i]) - mean[c]) * inverse[c]);
      });
    });
  });
  T* mean_g = g_w + channels;
  T* mean_product = mean_g + channels;
  std::vector<T> scale(static_cast<size_t>(channels));
  for (int64_t c = 0; c < channels; ++c) {
    mean_g[c] = g_b[c] / n;
    mean_product[c] = g_w[c] / n;
    scale[c] = w[c] * inverse[c];
  }
  const T* scales = scale.data();
  for_elements(rows, channels, [=](int64_t i, int64_t c) ETCH_INLINE_LAMBDA {
    const T normal = (widen(x[i]) - mean[c]) * inverse[c];
    dx[i] = narrow<S>(((widen(g[i]) - mean_g[c]) - normal * mean_product[c]) * scales[c]);
  });
  store_channels<S>(call.outputs[1], g_w);
  store_channels<S>(call.outputs[2], g_b);
}

template <class S>
void evaluate(const OpCall& call) {
  using T = Compute<S>;
  const Operand& in = call.inputs[0];
  const int64_t channels = in.geometry->sizes[1];
  const std::vector<T> w = channels_of<S>(call.inputs[1]), b = channels_of<S>(call.inputs[2]);
  const std::vector<T> mean = channels_of<T>(call.inputs[3]);
  std::vector<T> inverse = channels_of<T>(call.inputs[4]);
  const T eps = call.inputs[5].scalar.to<T>();
  for (T& value : inverse) value = T(1) / scalar::sqrt(value + eps);
  normalise<S>(in, call.outputs[0], in.geometry->numel() / channels, channels, mean.data(), inverse.data(),
               w.data(), b.data());
}

}  // namespace

size_t batch_norm_scratch_bytes(const OpCall& call) {
  if (call.op == Op::batch_norm_eval) return 0;
  const Operand& x = call.inputs[call.op == Op::batch_norm ? 0 : 1];
  const int64_t channels = x.geometry->sizes[1];
  if (channels == 0 || x.geometry->numel() == 0) return 0;
  const int64_t rows = x.geometry->numel() / channels;
  return static_cast<size_t>(channels * (5 + 2 * chunks_of(rows))) * item_size(compute_dtype(x.dtype));
}

bool run_batch_norm(const OpCall& call, void* scratch) {
  const bool gradient = call.op == Op::batch_norm_grad;
  const Operand& x = call.inputs[gradient ? 1 : 0];
  if (x.geometry->numel() == 0 || !has_channel_rows(*x.geometry)) return false;
  if (!same_layout(*x.geometry, *call.outputs[0].geometry)) return false;
  if (gradient && !same_layout(*x.geometry, *call.inputs[0].geometry)) return false;
  const ScratchBuffer own(Device::cpu(), scratch ? 0 : batch_norm_scratch_bytes(call));
  void* memory = scratch ? scratch : own.data();
  return visit_floating(x.dtype, [&]<class S>() {
    if (call.op == Op::batch_norm)
      forward<S>(call, memory);
    else if (gradient)
      backward<S>(call, memory);
    else
      evaluate<S>(call);
    return true;
  });
}

}  // namespace etch::cpu
