// Each task is one strip of a row of c, accumulated in registers.
#include "eager/cpu/matmul_plain.h"

#include <algorithm>

#include "runtime/error.h"
#include "runtime/parallel.h"

namespace etch::onednn {
namespace {

constexpr int64_t kStrip = 64;

template <class T>
class MatmulPlain final : public Contraction {
 public:
  explicit MatmulPlain(const MatmulGeometry& geometry) : geometry_(geometry) { implementation_ = "plain"; }
  void run(const void* a, const void* b, const void* bias, void* c, void*) const override {
    matmul_plain(geometry_, static_cast<const T*>(a), static_cast<const T*>(b), static_cast<const T*>(bias),
                 static_cast<T*>(c));
  }

 private:
  MatmulGeometry geometry_;
};

}  // namespace

template <class T>
void matmul_plain(const MatmulGeometry& g, const T* a, const T* b, const T* bias, T* c) {
  const int64_t strips = (g.n + kStrip - 1) / kStrip;
  const int64_t tasks = g.batch[0] * g.batch[1] * g.m * strips;
  const int64_t work = std::max<int64_t>(1, g.k * std::min(g.n, kStrip));
  parallel_for(tasks, std::max<int64_t>(1, 32768 / work), [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      const int64_t column = task % strips * kStrip, row = task / strips % g.m;
      const int64_t j = task / strips / g.m % g.batch[1], i = task / strips / g.m / g.batch[1];
      const int64_t width = std::min(kStrip, g.n - column);
      const T* left = a + i * g.a_strides[0] + j * g.a_strides[1] + row * g.a_strides[2];
      const T* right = b + i * g.b_strides[0] + j * g.b_strides[1] + column * g.b_strides[3];
      T* target =
          c + i * g.c_strides[0] + j * g.c_strides[1] + row * g.c_strides[2] + column * g.c_strides[3];
      T sums[kStrip] = {};
      for (int64_t p = 0; p < g.k; ++p, left += g.a_strides[3], right += g.b_strides[2]) {
        const T factor = *left;
        if (g.b_strides[3] == 1)
          for (int64_t x = 0; x < width; ++x) sums[x] += factor * right[x];
        else
          for (int64_t x = 0; x < width; ++x) sums[x] += factor * right[x * g.b_strides[3]];
      }
      for (int64_t x = 0; x < width; ++x)
        target[x * g.c_strides[3]] = g.bias ? static_cast<T>(sums[x] + bias[column + x]) : sums[x];
    }
  });
}

#define ETCH_INSTANTIATE(T) \
  template void matmul_plain<T>(const MatmulGeometry&, const T*, const T*, const T*, T*);
ETCH_INSTANTIATE(float)
ETCH_INSTANTIATE(double)
ETCH_INSTANTIATE(int64_t)
ETCH_INSTANTIATE(int32_t)
ETCH_INSTANTIATE(uint8_t)
#undef ETCH_INSTANTIATE

std::shared_ptr<const Contraction> make_matmul_plain(const MatmulGeometry& geometry) {
  switch (geometry.c) {
    case DType::F32:
      return std::make_shared<MatmulPlain<float>>(geometry);
    case DType::F64:
      return std::make_shared<MatmulPlain<double>>(geometry);
    case DType::I64:
      return std::make_shared<MatmulPlain<int64_t>>(geometry);
    case DType::I32:
      return std::make_shared<MatmulPlain<int32_t>>(geometry);
    default:
      break;
  }
  ETCH_INVARIANT(geometry.c == DType::U8);
  return std::make_shared<MatmulPlain<uint8_t>>(geometry);
}

}  // namespace etch::onednn
