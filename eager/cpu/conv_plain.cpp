// Each task of the forward and data passes is one strip of an output row; of the weights pass, one filter
// plane.
#include "eager/cpu/conv_plain.h"

#include <algorithm>

#include "runtime/error.h"
#include "runtime/parallel.h"

namespace etch::onednn {
namespace {

constexpr int64_t kStrip = 64;

struct Range {
  int64_t begin, end;
};

int64_t floor_divide(int64_t a, int64_t b) { return a >= 0 ? a / b : -((-a + b - 1) / b); }

/// The outputs o in [low, high) whose input o * stride + offset lies in [0, size).
Range valid(int64_t low, int64_t high, int64_t stride, int64_t offset, int64_t size) {
  const int64_t begin = std::max(low, -floor_divide(offset, stride));
  const int64_t end = std::min(high, floor_divide(size - 1 - offset, stride) + 1);
  return {begin, std::max(begin, end)};
}

template <class T>
class ConvPlain final : public Contraction {
 public:
  ConvPlain(ConvOp op, const ConvGeometry& geometry) : op_(op), g_(geometry) { implementation_ = "plain"; }

  void run(const void* first, const void* second, const void* bias, void* out, void*) const override {
    auto *a = static_cast<const T*>(first), *b = static_cast<const T*>(second);
    auto* target = static_cast<T*>(out);
    if (op_ == ConvOp::Forward) return forward(a, b, g_.bias ? static_cast<const T*>(bias) : nullptr, target);
    if (op_ == ConvOp::BackwardData) return backward_data(a, b, target);
    backward_weights(a, b, target);
  }

 private:
  int64_t group_in() const { return g_.c_in / g_.groups; }
  int64_t group_out() const { return g_.c_out / g_.groups; }
  int64_t offset(int axis, int64_t tap) const { return tap * g_.dilation[axis] - g_.padding[axis]; }
  const T* filter(const T* weight, int64_t co, int64_t ci) const {
    return weight + (co * group_in() + ci) * g_.kh * g_.kw;
  }
  template <class F>
  void for_each(int64_t count, int64_t work, F f) const {
    parallel_for(count, std::max<int64_t>(1, 32768 / std::max<int64_t>(1, work)),
                 [&](int64_t begin, int64_t end) {
                   for (int64_t i = begin; i < end; ++i) f(i);
                 });
  }

  void forward(const T* x, const T* weight, const T* bias, T* y) const {
    const int64_t strips = (g_.w_out + kStrip - 1) / kStrip, taps = group_in() * g_.kh * g_.kw;
    for_each(g_.n * g_.c_out * g_.h_out * strips, taps * std::min(kStrip, g_.w_out), [&](int64_t task) {
      const int64_t low = task % strips * kStrip, high = std::min(low + kStrip, g_.w_out);
      const int64_t row = task / strips % g_.h_out, co = task / strips / g_.h_out % g_.c_out;
      const int64_t n = task / strips / g_.h_out / g_.c_out, first = co / group_out() * group_in();
      T sums[kStrip] = {};
      for (int64_t ci = 0; ci < group_in(); ++ci) {
        const T* plane = x + n * g_.x_strides[0] + (first + ci) * g_.x_strides[1];
        const T* taps_of = filter(weight, co, ci);
        for (int64_t kh = 0; kh < g_.kh; ++kh) {
          const int64_t h = row * g_.stride[0] + offset(0, kh);
          if (h < 0 || h >= g_.h) continue;
          for (int64_t kw = 0; kw < g_.kw; ++kw) {
            const Range range = valid(low, high, g_.stride[1], offset(1, kw), g_.w);
            const T factor = taps_of[kh * g_.kw + kw];
            for (int64_t w = range.begin; w < range.end; ++w)
              sums[w - low] +=
                  factor * plane[h * g_.x_strides[2] + (w * g_.stride[1] + offset(1, kw)) * g_.x_strides[3]];
          }
        }
      }
      T* target = y + n * g_.y_strides[0] + co * g_.y_strides[1] + row * g_.y_strides[2];
      for (int64_t w = low; w < high; ++w)
        target[w * g_.y_strides[3]] = bias ? static_cast<T>(sums[w - low] + bias[co]) : sums[w - low];
    });
  }

  void backward_data(const T* dy, const T* weight, T* dx) const {
    const int64_t strips = (g_.w + kStrip - 1) / kStrip, taps = group_out() * g_.kh * g_.kw;
    for_each(g_.n * g_.c_in * g_.h * strips, taps * std::min(kStrip, g_.w), [&](int64_t task) {
      const int64_t low = task % strips * kStrip, high = std::min(low + kStrip, g_.w);
      const int64_t row = task / strips % g_.h, ci = task / strips / g_.h % g_.c_in;
      const int64_t n = task / strips / g_.h / g_.c_in, group = ci / group_in();
      T sums[kStrip] = {};
      for (int64_t co = group * group_out(); co < (group + 1) * group_out(); ++co) {
        const T* taps_of = filter(weight, co, ci % group_in());
        const T* plane = dy + n * g_.y_strides[0] + co * g_.y_strides[1];
        for (int64_t kh = 0; kh < g_.kh; ++kh) {
          const int64_t reached = row - offset(0, kh), h = reached / g_.stride[0];
          if (reached < 0 || reached % g_.stride[0] != 0 || h >= g_.h_out) continue;
          for (int64_t kw = 0; kw < g_.kw; ++kw) {
            // Outputs whose tap falls into columns [low, high).
            const int64_t shift = offset(1, kw) - low;
            const Range range = valid(0, g_.w_out, g_.stride[1], shift, high - low);
            const T factor = taps_of[kh * g_.kw + kw];
            for (int64_t w = range.begin; w < range.end; ++w)
              sums[w * g_.stride[1] + shift] += factor * plane[h * g_.y_strides[2] + w * g_.y_strides[3]];
          }
        }
      }
      T* target = dx + n * g_.x_strides[0] + ci * g_.x_strides[1] + row * g_.x_strides[2];
      for (int64_t w = low; w < high; ++w) target[w * g_.x_strides[3]] = sums[w - low];
    });
  }

  void backward_weights(const T* x, const T* dy, T* dweight) const {
    const int64_t work = g_.kh * g_.kw * g_.n * g_.h_out * g_.w_out;
    for_each(g_.c_out * group_in(), work, [&](int64_t task) {
      const int64_t co = task / group_in(), ci = co / group_out() * group_in() + task % group_in();
      for (int64_t kh = 0; kh < g_.kh; ++kh)
        for (int64_t kw = 0; kw < g_.kw; ++kw) {
          const Range rows = valid(0, g_.h_out, g_.stride[0], offset(0, kh), g_.h);
          const Range columns = valid(0, g_.w_out, g_.stride[1], offset(1, kw), g_.w);
          T sum{};
          for (int64_t n = 0; n < g_.n; ++n)
            for (int64_t row = rows.begin; row < rows.end; ++row) {
              const T* source = x + n * g_.x_strides[0] + ci * g_.x_strides[1] +
                                (row * g_.stride[0] + offset(0, kh)) * g_.x_strides[2];
              const T* gradient = dy + n * g_.y_strides[0] + co * g_.y_strides[1] + row * g_.y_strides[2];
              for (int64_t w = columns.begin; w < columns.end; ++w)
                sum += source[(w * g_.stride[1] + offset(1, kw)) * g_.x_strides[3]] *
                       gradient[w * g_.y_strides[3]];
            }
          dweight[(task * g_.kh + kh) * g_.kw + kw] = sum;
        }
    });
  }

  ConvOp op_;
  ConvGeometry g_;
};

}  // namespace

std::shared_ptr<const Contraction> make_conv_plain(ConvOp op, const ConvGeometry& geometry) {
  switch (geometry.x) {
    case DType::F32:
      return std::make_shared<ConvPlain<float>>(op, geometry);
    case DType::F64:
      return std::make_shared<ConvPlain<double>>(op, geometry);
    case DType::I64:
      return std::make_shared<ConvPlain<int64_t>>(op, geometry);
    case DType::I32:
      return std::make_shared<ConvPlain<int32_t>>(op, geometry);
    default:
      break;
  }
  ETCH_INVARIANT(geometry.x == DType::U8);
  return std::make_shared<ConvPlain<uint8_t>>(op, geometry);
}

}  // namespace etch::onednn
