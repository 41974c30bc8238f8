// Optimiser updates over parameters, gradients and state in one layout.
#include "eager/cpu/composites.h"
#include "eager/cpu/rows.h"

namespace etch::cpu {
namespace {

/// Scalar operand i in the compute type.
template <class T>
T number(const OpCall& call, int i) {
  return call.inputs[i].scalar.to<T>();
}

template <class S>
S* elements(const Operand& operand) {
  return reinterpret_cast<S*>(operand.data());
}

template <class S, bool Nesterov>
void sgd(const OpCall& call, int64_t begin, int64_t end) {
  using T = Compute<S>;
  S* p = elements<S>(call.inputs[0]);
  const S* g = elements<S>(call.inputs[1]);
  S* buffer = elements<S>(call.inputs[2]);
  const T lr = number<T>(call, 3), momentum = number<T>(call, 4), undamped = number<T>(call, 5),
          weight_decay = number<T>(call, 6);
  ETCH_INDEPENDENT_ITERATIONS
  for (int64_t i = begin; i < end; ++i) {
    const T decayed = widen(g[i]) + widen(p[i]) * weight_decay;
    const T moved = widen(buffer[i]) * momentum + decayed * undamped;
    const T step = Nesterov ? decayed + moved * momentum : moved;
    buffer[i] = narrow<S>(moved);
    p[i] = narrow<S>(widen(p[i]) - step * lr);
  }
}

template <class S>
void sgd_plain(const OpCall& call, int64_t begin, int64_t end) {
  using T = Compute<S>;
  S* p = elements<S>(call.inputs[0]);
  const S* g = elements<S>(call.inputs[1]);
  const T lr = number<T>(call, 2), weight_decay = number<T>(call, 3);
  ETCH_INDEPENDENT_ITERATIONS
  for (int64_t i = begin; i < end; ++i)
    p[i] = narrow<S>(widen(p[i]) - (widen(g[i]) + widen(p[i]) * weight_decay) * lr);
}

template <class S, bool Decoupled>
void adam(const OpCall& call, int64_t begin, int64_t end) {
  using T = Compute<S>;
  S* p = elements<S>(call.inputs[0]);
  const S* g = elements<S>(call.inputs[1]);
  S* m = elements<S>(call.inputs[2]);
  S* v = elements<S>(call.inputs[3]);
  const T lr = number<T>(call, 4), rate1 = number<T>(call, 5), rate2 = number<T>(call, 6),
          eps = number<T>(call, 7), weight_decay = number<T>(call, 8), correction1 = number<T>(call, 9),
          correction2 = number<T>(call, 10);
  ETCH_INDEPENDENT_ITERATIONS
  for (int64_t i = begin; i < end; ++i) {
    const T parameter = widen(p[i]), decay = parameter * weight_decay;
    const T decayed = Decoupled ? parameter - decay * lr : parameter;
    const T gradient = Decoupled ? widen(g[i]) : widen(g[i]) + decay;
    const T first = widen(m[i]) + (gradient - widen(m[i])) * rate1;
    const T second = widen(v[i]) + (gradient * gradient - widen(v[i])) * rate2;
    const T denominator = scalar::sqrt(second / correction2) + eps;
    m[i] = narrow<S>(first);
    v[i] = narrow<S>(second);
    p[i] = narrow<S>(decayed - first / correction1 / denominator * lr);
  }
}

}  // namespace

bool run_optimizer_step(const OpCall& call) {
  const Geometry& geometry = *call.inputs[0].geometry;
  if (!is_contiguous(geometry) && !is_dense(geometry)) return false;
  for (const Operand& input : call.inputs)
    if (input.is_tensor() && !(*input.geometry == geometry)) return false;
  return visit_floating(call.inputs[0].dtype, [&]<class S>() {
    parallel_for(geometry.numel(), kGrain, [&](int64_t begin, int64_t end) {
      switch (call.op) {
        case Op::sgd_step:
          return call.attrs[0] ? sgd<S, true>(call, begin, end) : sgd<S, false>(call, begin, end);
        case Op::sgd_plain_step:
          return sgd_plain<S>(call, begin, end);
        default:
          return call.attrs[0] ? adam<S, true>(call, begin, end) : adam<S, false>(call, begin, end);
      }
    });
    return true;
  });
}

}  // namespace etch::cpu
