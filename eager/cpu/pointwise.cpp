// Feeds pointwise rows to their kernels; f16 and bf16 compute in f32 block by block.
#include "eager/cpu/pointwise.h"

#include <algorithm>

#include "eager/cpu/small_pointwise.h"
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

namespace {

/// What a call runs as.
struct Form {
  PointwiseKernel kernel;
  DType dtype, compute;
  int64_t count;
  bool flat;               // all elements side by side, in every operand
  unsigned scalars = 0;    // operands of a single element
  unsigned converted = 0;  // stored in another dtype than they are computed in
  DType dtypes[kMaxLoopOperands];
};

inline Form form_of(const OpCall& call) {
  const Geometry& geometry = *call.outputs[0].geometry;
  const DTypeRule rule = kRules[static_cast<int>(call.op)];
  Form form;
  form.dtype = element_dtype(call, rule);
  form.compute = compute_dtype(form.dtype);
  form.kernel = table_of(form.compute)[static_cast<int>(call.op)];
  ETCH_CHECK(form.kernel, DTypeError, name(call.op), ": expected a dtype that the op computes in, got ",
             name(form.dtype));
  form.count = geometry.numel();
  form.flat = is_contiguous(geometry);
  for (size_t k = 0; k < call.inputs.size(); ++k) {
    const Operand& input = call.inputs[k];
    const DType expected = k == 0 && rule == DTypeRule::Where ? DType::Bool : form.dtype;
    form.dtypes[k] = input.is_scalar() ? compute_dtype(expected) : expected;
    ETCH_CHECK(input.is_scalar() || input.dtype == expected, InternalError, name(call.op),
               ": expected operands of ", name(expected), ", got ", name(input.dtype));
    if (input.is_scalar() || input.geometry->numel() == 1)
      form.scalars |= 1u << k;
    else
      form.flat = form.flat && *input.geometry == geometry;
    if (form.dtypes[k] != compute_dtype(form.dtypes[k])) form.converted |= 1u << k;
  }
  return form;
}

}  // namespace

std::optional<SmallPointwise> SmallPointwise::of(const OpCall& call) {
  const Form form = form_of(call);
  if (!form.flat || form.count == 0 || form.count > kGrain || form.dtype != form.compute) return std::nullopt;
  SmallPointwise small{form.kernel, form.count, form.count == 1 ? 0 : form.scalars, {}};
  std::copy_n(form.dtypes, call.inputs.size(), small.numbers);
  return small;
}

void run_pointwise(const OpCall& call) {
  const Form form = form_of(call);
  if (form.count == 0) return;
  const Operand& out = call.outputs[0];
  const int inputs = static_cast<int>(call.inputs.size());
  const char* in[kMaxLoopOperands];
  uint64_t values[kMaxLoopOperands];
  for (int k = 0; k < inputs; ++k) {
    const Operand& input = call.inputs[k];
    if (input.is_scalar()) {
      store_scalar(input.scalar, form.dtypes[k], &values[k]);
      in[k] = reinterpret_cast<const char*>(&values[k]);
    } else {
      in[k] = input.data();
    }
  }

  const auto run = [&](PieceKernel piece) {
    if (form.flat && form.count <= kGrain)
      return piece(out.data(), in, form.count == 1 ? 0 : form.scalars, form.count);
    Loop loop(out.geometry->sizes);
    loop.add(out.data(), static_cast<int64_t>(item_size(out.dtype)), out.geometry);
    for (int k = 0; k < inputs; ++k) {
      const bool single = form.scalars >> k & 1;
      loop.add(const_cast<char*>(in[k]), static_cast<int64_t>(item_size(form.dtypes[k])),
               single ? nullptr : call.inputs[k].geometry);
    }
    loop.arrange();
    run_loop(loop, piece);
  };
  if (form.dtype == form.compute) {
    run([kernel = form.kernel](char* to, const char* const* from, unsigned mask, int64_t n) {
      kernel(to, from, mask, n);
    });
  } else {
    run(HalfKernel{form.kernel, cast_kernel(form.dtype, DType::F32),
                   out.dtype == DType::Bool ? nullptr : cast_kernel(DType::F32, form.dtype), inputs,
                   form.converted});
  }
}

}  // namespace etch::cpu
