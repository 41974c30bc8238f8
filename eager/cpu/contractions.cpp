// Geometries of matrix products and convolutions, with copies where the library wants plain operands.
#include "eager/cpu/contractions.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "eager/cpu/loop.h"
#include "eager/cpu/onednn.h"
#include "eager/cpu/pointwise.h"
#include "runtime/allocator.h"
#include "tracer/attrs.h"

namespace etch::cpu {
namespace {

using onednn::Contraction;

constexpr size_t kAlignment = onednn::kScratchAlignment;
size_t aligned(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

/// Cuts a scratch block into pieces; without one it only counts.
class Carver {
 public:
  explicit Carver(void* scratch) : base_(static_cast<char*>(scratch)) {}
  char* take(size_t bytes) {
    char* piece = base_ ? base_ + used_ : nullptr;
    used_ += aligned(bytes);
    return piece;
  }
  size_t used() const { return used_; }

 private:
  char* base_;
  size_t used_ = 0;
};

void copy_window(const Operand& from, const Operand& to) {
  run_copy({Op::copy, {&from, 1}, {&to, 1}, Attrs{}});
}

void fill_zeros(const Operand& out) {
  Operand zero;
  zero.scalar = Scalar(0);
  copy_window(zero, out);
}

/// A contiguous stand-in for an operand that is not contiguous.
struct Plain {
  Operand operand;
  Geometry geometry;
  size_t bytes = 0;  // of the copy; 0: the operand itself is contiguous

  explicit Plain(const Operand& source) : operand(source) {
    if (!source.is_tensor() || is_contiguous(*source.geometry)) return;
    geometry = contiguous(source.geometry->sizes);
    bytes = static_cast<size_t>(geometry.numel()) * item_size(source.dtype);
  }
  void place(char* memory) {
    if (bytes == 0) return;
    operand.base = memory;
    operand.offset = 0;
    operand.geometry = &geometry;
  }
};

/// A product over batches: the two innermost batch dimensions are the library's, the rest is walked. Operands
/// may lack memory.
struct MatmulLoop {
  Loop batches;  // (c, a, b)
  onednn::MatmulGeometry geometry;
  bool is_empty;

  explicit MatmulLoop(const OpCall& call) : batches(Dims{}) {
    const Operand &a = call.inputs[0], &b = call.inputs[1], &c = call.outputs[0];
    Dims sizes = c.geometry->sizes;
    const int rank = sizes.size();
    geometry.m = sizes[rank - 2];
    geometry.n = sizes[rank - 1];
    geometry.k = a.geometry->sizes.back();
    geometry.a = a.dtype;
    geometry.b = b.dtype;
    geometry.c = c.dtype;
    is_empty = c.geometry->numel() == 0 || geometry.k == 0;
    const auto add = [&](const Operand& operand, int64_t* strides) {
      Geometry batch = *operand.geometry;
      strides[2] = batch.strides[batch.ndim() - 2];
      strides[3] = batch.strides[batch.ndim() - 1];
      batch.sizes.resize(batch.ndim() - 2);
      batch.strides.resize(batch.sizes.size());
      batches.add(operand.base ? operand.data() : nullptr, static_cast<int64_t>(item_size(operand.dtype)),
                  &batch);
    };
    sizes.resize(rank - 2);
    batches = Loop(sizes);
    int64_t* strides[3] = {geometry.c_strides, geometry.a_strides, geometry.b_strides};
    const Operand* operands[3] = {&c, &a, &b};
    for (int k = 0; k < 3; ++k) add(*operands[k], strides[k]);
    batches.arrange();
    for (int i = 1; i >= 0 && batches.ndim > 0; --i) {
      const int d = --batches.ndim;
      geometry.batch[i] = batches.size[d];
      for (int k = 0; k < 3; ++k) strides[k][i] = batches.stride[k][d] / batches.item[k];
      batches.count /= std::max<int64_t>(batches.size[d], 1);
    }
  }
};

struct Matmul : MatmulLoop {
  std::shared_ptr<const Contraction> product;

  explicit Matmul(const OpCall& call) : MatmulLoop(call) {
    if (!is_empty) product = onednn::prepare_matmul(geometry);
  }
};

void run_matmul(const OpCall& call, void* scratch) {
  const Matmul matmul(call);
  if (!matmul.product) return fill_zeros(call.outputs[0]);
  const ScratchBuffer own(Device::cpu(), scratch ? 0 : matmul.product->scratch_bytes());
  void* memory = scratch ? scratch : own.data();
  const Loop& batches = matmul.batches;
  walk(batches, 0, batches.count, [&](const int64_t* offset, int64_t n) {
    for (int64_t i = 0; i < n; ++i)
      matmul.product->run(batches.base[1] + offset[1] + i * batches.inner_stride(1),
                          batches.base[2] + offset[2] + i * batches.inner_stride(2), nullptr,
                          batches.base[0] + offset[0] + i * batches.inner_stride(0), memory);
  });
}

/// x, weights and y of a convolution, whichever of them are operands.
struct Convolution {
  const Operand *x, *w, *y, *bias = nullptr;
  Plain plain_w, plain_bias;
  std::shared_ptr<const Contraction> contraction;

  explicit Convolution(const OpCall& call)
      : x(call.op == Op::conv2d_input_grad ? &call.outputs[0]
                                           : &call.inputs[call.op == Op::conv2d_weight_grad ? 1 : 0]),
        w(call.op == Op::conv2d_weight_grad ? &call.outputs[0] : &call.inputs[1]),
        y(call.op == Op::conv2d ? &call.outputs[0] : &call.inputs[0]),
        plain_w(*w),
        plain_bias(call.op == Op::conv2d ? call.inputs[2] : Operand::absent()) {
    if (x->geometry->numel() == 0 || w->geometry->numel() == 0 || y->geometry->numel() == 0) return;
    const ConvAttrs attrs(call.attrs);
    const Dims &xs = x->geometry->sizes, &ws = w->geometry->sizes, &ys = y->geometry->sizes;
    onednn::ConvGeometry geometry;
    geometry.n = xs[0];
    geometry.c_in = xs[1];
    geometry.h = xs[2];
    geometry.w = xs[3];
    geometry.c_out = ws[0];
    geometry.kh = ws[2];
    geometry.kw = ws[3];
    geometry.h_out = ys[2];
    geometry.w_out = ys[3];
    geometry.groups = attrs.groups;
    for (int i = 0; i < 2; ++i) {
      geometry.stride[i] = attrs.stride[i];
      geometry.padding[i] = attrs.padding[i];
      geometry.dilation[i] = attrs.dilation[i];
    }
    for (int i = 0; i < 4; ++i) {
      geometry.x_strides[i] = x->geometry->strides[i];
      geometry.y_strides[i] = y->geometry->strides[i];
    }
    geometry.x = x->dtype;
    geometry.weight = w->dtype;
    geometry.y = y->dtype;
    geometry.bias = plain_bias.operand.present;
    contraction = call.op == Op::conv2d              ? onednn::prepare_conv_forward(geometry)
                  : call.op == Op::conv2d_input_grad ? onednn::prepare_conv_backward_data(geometry)
                                                     : onednn::prepare_conv_backward_weights(geometry);
  }

  size_t scratch_bytes() const {
    return contraction
               ? aligned(contraction->scratch_bytes()) + aligned(plain_w.bytes) + aligned(plain_bias.bytes)
               : 0;
  }
};

/// Without elements to add up the result is zero, or the bias.
void fill_without_products(const OpCall& call) {
  const Operand& out = call.outputs[0];
  if (call.op != Op::conv2d || !call.inputs[2].present) return fill_zeros(out);
  Operand bias = call.inputs[2];
  const Geometry geometry{{bias.geometry->sizes[0], 1, 1}, {bias.geometry->strides[0], 0, 0}};
  bias.geometry = &geometry;
  copy_window(bias, out);
}

void run_convolution(const OpCall& call, void* scratch) {
  Convolution conv(call);
  if (!conv.contraction) return fill_without_products(call);
  const ScratchBuffer own(Device::cpu(), scratch ? 0 : conv.scratch_bytes());
  Carver carver(scratch ? scratch : own.data());
  void* memory = carver.take(conv.contraction->scratch_bytes());
  conv.plain_w.place(carver.take(conv.plain_w.bytes));
  conv.plain_bias.place(carver.take(conv.plain_bias.bytes));
  const void* bias = nullptr;
  if (call.op == Op::conv2d && call.inputs[2].present) {
    if (conv.plain_bias.bytes) copy_window(call.inputs[2], conv.plain_bias.operand);
    bias = conv.plain_bias.operand.data();
  }
  char* w = conv.plain_w.operand.data();
  if (conv.plain_w.bytes && call.op != Op::conv2d_weight_grad) copy_window(*conv.w, conv.plain_w.operand);
  switch (call.op) {
    case Op::conv2d:
      return conv.contraction->run(conv.x->data(), w, bias, conv.y->data(), memory);
    case Op::conv2d_input_grad:
      return conv.contraction->run(conv.y->data(), w, nullptr, conv.x->data(), memory);
    default:
      conv.contraction->run(conv.x->data(), conv.y->data(), nullptr, w, memory);
      if (conv.plain_w.bytes) copy_window(conv.plain_w.operand, *conv.w);
  }
}

}  // namespace

size_t contraction_scratch_bytes(const OpCall& call) {
  if (call.op != Op::matmul) return Convolution(call).scratch_bytes();
  const Matmul matmul(call);
  return matmul.product ? matmul.product->scratch_bytes() : 0;
}

bool sums_in_order(const OpCall& matmul) {
  const MatmulLoop loop(matmul);
  return !loop.is_empty && onednn::sums_in_order(loop.geometry);
}

void run_contraction(const OpCall& call, void* scratch) {
  if (call.outputs[0].geometry->numel() == 0) return;
  if (call.op == Op::matmul)
    run_matmul(call, scratch);
  else
    run_convolution(call, scratch);
}

}  // namespace etch::cpu
