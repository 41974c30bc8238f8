// Pooling calls: other dtypes than f32 and f64 go through a wider copy.
#include <algorithm>
#include <optional>

#include "eager/cpu/contractions.h"
#include "eager/cpu/pointwise.h"
#include "eager/cpu/pooling.h"
#include "runtime/allocator.h"
#include "tracer/attrs.h"

namespace etch::cpu {
namespace {

/// An operand in the dtype that the kernels work in, converted in memory of its own where it has another.
class Wide {
 public:
  Wide(const Operand& operand, DType dtype) : original_(operand), wide_(operand) {
    if (operand.dtype == dtype) return;
    buffer_.emplace(Device::cpu(), static_cast<size_t>(extent(*operand.geometry)) * item_size(dtype));
    wide_.base = static_cast<char*>(buffer_->data());
    wide_.offset = 0;
    wide_.dtype = dtype;
  }
  void read() const {
    if (buffer_) run_copy({Op::copy, {&original_, 1}, {&wide_, 1}, Attrs{}});
  }
  void write() const {
    if (buffer_) run_copy({Op::copy, {&wide_, 1}, {&original_, 1}, Attrs{}});
  }
  template <class T>
  T* data() const {
    return reinterpret_cast<T*>(wide_.data());
  }

 private:
  const Operand& original_;
  Operand wide_;
  std::optional<ScratchBuffer> buffer_;
};

PoolGeometry geometry_of(const OpCall& call, const Operand& x, const Operand& y) {
  const PoolAttrs attrs(call.attrs);
  PoolGeometry geometry;
  const Dims &xs = x.geometry->sizes, &ys = y.geometry->sizes;
  geometry.n = xs[0];
  geometry.c = xs[1];
  geometry.h = xs[2];
  geometry.w = xs[3];
  geometry.h_out = ys[2];
  geometry.w_out = ys[3];
  for (int i = 0; i < 2; ++i) {
    geometry.kernel[i] = attrs.kernel[i];
    geometry.stride[i] = attrs.stride[i];
    geometry.padding[i] = attrs.padding[i];
  }
  for (int i = 0; i < 4; ++i) {
    geometry.x_strides[i] = x.geometry->strides[i];
    geometry.y_strides[i] = y.geometry->strides[i];
  }
  return geometry;
}

template <class T>
void run(const OpCall& call) {
  const bool forward = call.op == Op::max_pool2d || call.op == Op::avg_pool2d;
  const Operand& x = forward ? call.inputs[0] : call.outputs[0];
  const Operand& y = forward ? call.outputs[0] : call.inputs[0];
  PoolGeometry geometry = geometry_of(call, x, y);
  const Wide in(call.inputs[0], dtype_of<T>), out(call.outputs[0], dtype_of<T>);
  in.read();
  const auto positions_of = [&](const Operand& indices) {
    for (int i = 0; i < 4; ++i) geometry.index_strides[i] = indices.geometry->strides[i];
    return reinterpret_cast<int64_t*>(indices.data());
  };
  switch (call.op) {
    case Op::max_pool2d: {
      int64_t* positions = positions_of(call.outputs[1]);
      max_pool2d_forward<T>(geometry, in.data<T>(), out.data<T>(), positions);
      break;
    }
    case Op::max_pool2d_grad: {
      const int64_t* positions = positions_of(call.inputs[1]);
      max_pool2d_backward<T>(geometry, in.data<T>(), positions, out.data<T>());
      break;
    }
    case Op::avg_pool2d:
      avg_pool2d_forward<T>(geometry, in.data<T>(), out.data<T>());
      break;
    default:
      avg_pool2d_backward<T>(geometry, in.data<T>(), out.data<T>());
  }
  out.write();
}

}  // namespace

void run_window(const OpCall& call) {
  if (call.outputs[0].geometry->numel() == 0) return;
  const DType dtype = call.outputs[0].dtype;
  // f64 holds i32 exactly, and i64 up to 2^53.
  if (dtype == DType::F64 || is_integral(dtype))
    run<double>(call);
  else
    run<float>(call);
}

}  // namespace etch::cpu
