// softmax, log_softmax, cross_entropy and their gradients along contiguous rows.
#include <algorithm>

#include "eager/cpu/composites.h"
#include "eager/cpu/rows.h"
#include "tracer/attrs.h"

namespace etch::cpu {
namespace {

/// Runs f<S>(row kernel's operands) over all rows of n elements; false when the layout has no such rows.
template <class RowKernel>
bool over_rows(const OpCall& call, RowKernel kernel) {
  const Operand& out = call.outputs[0];
  const int axis = AxisAttrs(call.attrs).axis;
  const auto rows = call.inputs.size() == 1 ? rows_along(axis, {&out, &call.inputs[0]})
                                            : rows_along(axis, {&out, &call.inputs[0], &call.inputs[1]});
  if (!rows) return false;
  const int64_t n = out.geometry->sizes[axis];
  return visit_floating(out.dtype, [&]<class S>() {
    parallel_for(rows->count, row_grain(n), [&](int64_t begin, int64_t end) {
      RowBuffer<S> y(n), first(n), second(n);
      for_rows(*rows, begin, end, [&](int64_t, char* const* at) {
        kernel(y.begin(at[0]), first.read(at[1], n), rows->operands > 2 ? second.read(at[2], n) : nullptr, n);
        y.finish(at[0], n);
      });
    });
    return true;
  });
}

/// y = exp(x - shift); returns the sum of y.
template <class T>
T exp_and_sum(T* y, const T* x, T shift, int64_t n) {
  T total = 0;
  for (int64_t at = 0; at < n; at += kReductionBlock) {
    const int64_t end = std::min(n, at + kReductionBlock);
    ETCH_INDEPENDENT_ITERATIONS
    for (int64_t i = at; i < end; ++i) y[i] = scalar::exp(x[i] - shift);
    total = total + sum_of_run(y + at, end - at);
  }
  return total;
}

struct Softmax {
  template <class T>
  void operator()(T* y, const T* x, const T*, int64_t n) const {
    const T total = exp_and_sum(y, x, max_of_run(x, n), n);
    for (int64_t i = 0; i < n; ++i) y[i] = y[i] / total;
  }
};

struct SoftmaxGrad {
  template <class T>
  void operator()(T* dx, const T* g, const T* y, int64_t n) const {
    const T total = sum_of<T>(n, [=](int64_t i) ETCH_INLINE_LAMBDA { return g[i] * y[i]; });
    ETCH_INDEPENDENT_ITERATIONS
    for (int64_t i = 0; i < n; ++i) dx[i] = y[i] * (g[i] - total);
  }
};

struct LogSoftmax {
  template <class T>
  void operator()(T* y, const T* x, const T*, int64_t n) const {
    const T highest = max_of_run(x, n);
    const T total = scalar::log(exp_and_sum(y, x, highest, n));
    ETCH_INDEPENDENT_ITERATIONS
    for (int64_t i = 0; i < n; ++i) y[i] = (x[i] - highest) - total;
  }
};

struct LogSoftmaxGrad {
  template <class T>
  void operator()(T* dx, const T* g, const T* y, int64_t n) const {
    const T total = sum_of_run(g, n);
    ETCH_INDEPENDENT_ITERATIONS
    for (int64_t i = 0; i < n; ++i) dx[i] = g[i] - scalar::exp(y[i]) * total;
  }
};

/// Logits [N, C] with contiguous rows, and what goes with each row.
struct LabelledRows {
  const Operand &logits, &target;
  int64_t rows, classes, row_bytes;
  int64_t ignored;

  LabelledRows(const OpCall& call, const Operand& x, const Operand& labels)
      : logits(x),
        target(labels),
        rows(x.geometry->sizes[0]),
        classes(x.geometry->sizes[1]),
        row_bytes(x.geometry->strides[0] * static_cast<int64_t>(item_size(x.dtype))),
        ignored(CrossEntropyAttrs(call.attrs).ignore_index) {}

  bool has_rows() const { return rows_of(*logits.geometry); }
  static bool rows_of(const Geometry& geometry) {
    const Dims &sizes = geometry.sizes, &strides = geometry.strides;
    return (sizes[1] == 1 || strides[1] == 1) && (sizes[0] == 1 || strides[0] >= sizes[1]);
  }
  int64_t label(int64_t r) const {
    return reinterpret_cast<const int64_t*>(target.data())[r * target.geometry->strides[0]];
  }
  bool is_class(int64_t label) const { return static_cast<uint64_t>(label) < static_cast<uint64_t>(classes); }
};

template <class T>
T* row_element(const Operand& operand, int64_t r) {
  return reinterpret_cast<T*>(operand.data()) + r * operand.geometry->strides[0];
}

template <class S>
void cross_entropy(const OpCall& call, const LabelledRows& labelled) {
  using T = Compute<S>;
  const int64_t n = labelled.classes;
  parallel_for(labelled.rows, row_grain(n), [&](int64_t begin, int64_t end) {
    RowBuffer<S> buffer(n);
    alignas(64) T exponentials[kReductionBlock];
    for (int64_t r = begin; r < end; ++r) {
      const T* x = buffer.read(labelled.logits.data() + r * labelled.row_bytes, n);
      const T highest = max_of_run(x, n);
      T total = 0;
      for (int64_t at = 0; at < n; at += kReductionBlock) {
        const int64_t count = std::min(kReductionBlock, n - at);
        total = total + exp_and_sum(exponentials, x + at, highest, count);
      }
      const T log_sum_exp = scalar::log(total) + highest;
      *row_element<T>(call.outputs[1], r) = log_sum_exp;
      const int64_t label = labelled.label(r);
      // A sum of zeros and the logit: -0 becomes 0.
      const T picked = labelled.is_class(label) ? x[label] + T(0) : T(0);
      const T loss = label == labelled.ignored ? T(0) : log_sum_exp - picked;
      *row_element<S>(call.outputs[0], r) = narrow<S>(loss);
    }
  });
}

template <class S>
void cross_entropy_grad(const OpCall& call, const LabelledRows& labelled) {
  using T = Compute<S>;
  const int64_t n = labelled.classes;
  const Operand& out = call.outputs[0];
  parallel_for(labelled.rows, row_grain(n), [&](int64_t begin, int64_t end) {
    RowBuffer<S> logits(n), gradient(n);
    for (int64_t r = begin; r < end; ++r) {
      const T* x = logits.read(labelled.logits.data() + r * labelled.row_bytes, n);
      const T g = widen(*row_element<S>(call.inputs[0], r));
      const T log_sum_exp = *row_element<T>(call.inputs[3], r);
      const int64_t label = labelled.label(r);
      char* to = reinterpret_cast<char*>(row_element<S>(out, r));
      T* dx = gradient.begin(to);
      if (label == labelled.ignored) {
        std::fill_n(dx, n, T(0));
      } else {
        ETCH_INDEPENDENT_ITERATIONS
        for (int64_t i = 0; i < n; ++i) dx[i] = scalar::exp(x[i] - log_sum_exp) * g;
        if (labelled.is_class(label)) dx[label] = (scalar::exp(x[label] - log_sum_exp) - T(1)) * g;
      }
      gradient.finish(to, n);
    }
  });
}

}  // namespace

bool run_along_axis(const OpCall& call) {
  switch (call.op) {
    case Op::softmax:
      return over_rows(call, Softmax{});
    case Op::softmax_grad:
      return over_rows(call, SoftmaxGrad{});
    case Op::log_softmax:
      return over_rows(call, LogSoftmax{});
    default:
      return over_rows(call, LogSoftmaxGrad{});
  }
}

bool run_cross_entropy(const OpCall& call) {
  const bool forward = call.op == Op::cross_entropy;
  const LabelledRows labelled(call, call.inputs[forward ? 0 : 1], call.inputs[forward ? 1 : 2]);
  if (!labelled.has_rows() || (!forward && !LabelledRows::rows_of(*call.outputs[0].geometry))) return false;
  return visit_floating(labelled.logits.dtype, [&]<class S>() {
    if (forward)
      cross_entropy<S>(call, labelled);
    else
      cross_entropy_grad<S>(call, labelled);
    return true;
  });
}

}  // namespace etch::cpu
