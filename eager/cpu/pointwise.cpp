// Feeds pointwise rows to their kernels; f16 and bf16 compute in f32 block by block.
#include "eager/cpu/pointwise.h"

#include <algorithm>

#include "runtime/parallel.h"

namespace etch::cpu {
namespace {

constexpr DTypeRule kRules[kNumOps] = {
#define ETCH_POINTWISE(name, arity, rule, ...) DTypeRule::rule,
#define ETCH_GENERATOR(name, ...) DTypeRule::Rule,
#define ETCH_REDUCTION(name, ...) DTypeRule::Rule,
#define ETCH_OP(name, ...) DTypeRule::Rule,
#define ETCH_COMPOSITE(name, ...) DTypeRule::Rule,
#include "tracer/ops.def"
};

const PointwiseTable& table_of(DType compute) {
  switch (compute) {
    case DType::Bool:
      return kPointwiseBool;
    case DType::U8:
      return kPointwiseU8;
    case DType::I32:
      return kPointwiseI32;
    case DType::I64:
      return kPointwiseI64;
    case DType::F64:
      return kPointwiseF64;
    default:
      return kPointwiseF32;
  }
}

/// The dtype of the operands after the first, which the first shares unless the rule is Where.
DType element_dtype(const OpCall& call, DTypeRule rule) {
  if (rule != DTypeRule::Bool) return call.outputs[0].dtype;
  for (const Operand& input : call.inputs)
    if (input.is_tensor()) return input.dtype;
  return operand_dtype(call.op, call.inputs);
}

/// A kernel in f32 over operands stored in 16 bits.
struct HalfKernel {
  PointwiseKernel kernel;
  CastKernel load, store;  // null: the output is Bool
  int inputs;
  unsigned converted;  // inputs stored in 16 bits; the others are Bool, or scalars in f32

  void operator()(char* out, const char* const* in, unsigned scalars, int64_t n) const {
    alignas(64) char buffers[kMaxLoopOperands][kBlock * sizeof(float)];
    for (int64_t at = 0; at < n; at += kBlock) {
      const int64_t count = std::min(kBlock, n - at);
      const char* piece[kMaxLoopOperands];
      for (int k = 0; k < inputs; ++k) {
        const bool scalar = scalars >> k & 1, half = converted >> k & 1;
        piece[k] = in[k] + (scalar ? 0 : at * (half ? 2 : 1));
        if (!half) continue;
        load(buffers[k + 1], piece[k], scalar ? 1 : count);
        piece[k] = buffers[k + 1];
      }
      kernel(store ? buffers[0] : out + at, piece, scalars, count);
      if (store) store(out + at * 2, buffers[0], count);
    }
  }
};

}  // namespace

void run_pointwise(const OpCall& call) {
  const Operand& out = call.outputs[0];
  const DTypeRule rule = kRules[static_cast<int>(call.op)];
  const DType dtype = element_dtype(call, rule);
  const DType compute = compute_dtype(dtype);
  const PointwiseKernel kernel = table_of(compute)[static_cast<int>(call.op)];
  ETCH_CHECK(kernel, DTypeError, name(call.op), ": expected a dtype that the op computes in, got ",
             name(dtype));

  const int inputs = static_cast<int>(call.inputs.size());
  const Geometry& geometry = *out.geometry;
  const int64_t count = geometry.numel();
  if (count == 0) return;
  const char* in[kMaxLoopOperands];
  DType dtypes[kMaxLoopOperands];
  uint64_t values[kMaxLoopOperands];
  unsigned scalars = 0, converted = 0;
  bool flat = is_contiguous(geometry);
  for (int k = 0; k < inputs; ++k) {
    const Operand& input = call.inputs[k];
    const DType expected = k == 0 && rule == DTypeRule::Where ? DType::Bool : dtype;
    dtypes[k] = expected;
    if (input.is_scalar()) {
      dtypes[k] = compute_dtype(expected);
      store_scalar(input.scalar, dtypes[k], &values[k]);
      in[k] = reinterpret_cast<const char*>(&values[k]);
      scalars |= 1u << k;
    } else {
      ETCH_CHECK(input.dtype == expected, InternalError, name(call.op), ": expected operands of ",
                 name(expected), ", got ", name(input.dtype));
      in[k] = input.data();
      if (input.geometry->numel() == 1)
        scalars |= 1u << k;
      else
        flat = flat && *input.geometry == geometry;
    }
    if (dtypes[k] != compute_dtype(dtypes[k])) converted |= 1u << k;
  }

  const auto run = [&](PieceKernel piece) {
    if (flat && count <= kGrain) return piece(out.data(), in, count == 1 ? 0 : scalars, count);
    Loop loop(geometry.sizes);
    loop.add(out.data(), static_cast<int64_t>(item_size(out.dtype)), &geometry);
    for (int k = 0; k < inputs; ++k) {
      const bool single = scalars >> k & 1;
      loop.add(const_cast<char*>(in[k]), static_cast<int64_t>(item_size(dtypes[k])),
               single ? nullptr : call.inputs[k].geometry);
    }
    loop.arrange();
    run_loop(loop, piece);
  };
  if (dtype == compute) {
    run([kernel](char* to, const char* const* from, unsigned mask, int64_t n) { kernel(to, from, mask, n); });
  } else {
    run(HalfKernel{kernel, cast_kernel(dtype, DType::F32),
                   out.dtype == DType::Bool ? nullptr : cast_kernel(DType::F32, dtype), inputs, converted});
  }
}

}  // namespace etch::cpu
