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
  const PoolGeometry geometry = geometry_of(call, x, y);
  const Wide in(call.inputs[0], dtype_of<T>), out(call.outputs[0], dtype_of<T>);
  in.read();
  switch (call.op) {
    case Op::max_pool2d: {
      const Operand& indices = call.outputs[1];
      Operand like_y = indices;  // the kernel wants indices laid out as y is
      std::optional<ScratchBuffer> buffer;
      if (!(indices.geometry->strides == y.geometry->strides)) {
        buffer.emplace(Device::cpu(), static_cast<size_t>(extent(*y.geometry)) * sizeof(int64_t));
        like_y.base = static_cast<char*>(buffer->data());
        like_y.offset = 0;
        like_y.geometry = y.geometry;
      }
      max_pool2d_forward<T>(geometry, in.data<T>(), out.data<T>(), reinterpret_cast<int64_t*>(like_y.data()));
      if (buffer) run_copy({Op::copy, {&like_y, 1}, {&indices, 1}, Attrs{}});
      break;
    }
    case Op::max_pool2d_grad: {
      const Operand& indices = call.inputs[1];
      const auto* positions = reinterpret_cast<const int64_t*>(indices.data());
      if (indices.geometry->strides == y.geometry->strides) {
        max_pool2d_backward<T>(geometry, in.data<T>(), positions, out.data<T>());
        break;
      }
      // The gradient is laid out as the indices are, not they as it: it may be an expanded one.
      ScratchBuffer buffer(Device::cpu(), static_cast<size_t>(extent(*indices.geometry)) * sizeof(T));
      Operand like_indices = indices;
      like_indices.base = static_cast<char*>(buffer.data());
      like_indices.offset = 0;
      like_indices.dtype = dtype_of<T>;
      run_copy({Op::copy, {&call.inputs[0], 1}, {&like_indices, 1}, Attrs{}});
      const PoolGeometry dense = geometry_of(call, x, like_indices);
      max_pool2d_backward<T>(dense, reinterpret_cast<const T*>(like_indices.data()), positions,
                             out.data<T>());
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
