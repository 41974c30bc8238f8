// Reading and writing tensors from the host. Pending work on them is done first.
#include <cstring>

#include "eager/apply.h"
#include "eager/tape.h"
#include "tracer/recorder.h"

namespace etch {

namespace {

template <class From>
auto widen(From value) {
  if constexpr (std::is_same_v<From, Half> || std::is_same_v<From, BFloat16>) {
    return to_float(value);
  } else {
    return value;
  }
}

// Calls f(element offset) in row-major order.
template <class F>
void for_each_element(const Geometry& geometry, int64_t offset, F&& f) {
  if (geometry.numel() == 0) return;
  const int ndim = geometry.ndim();
  Dims index = Dims::filled(ndim, 0);
  int64_t at = offset;
  while (true) {
    f(at);
    int axis = ndim - 1;
    for (; axis >= 0; --axis) {
      at += geometry.strides[axis];
      if (++index[axis] < geometry.sizes[axis]) break;
      at -= geometry.strides[axis] * geometry.sizes[axis];
      index[axis] = 0;
    }
    if (axis < 0) return;
  }
}

}  // namespace

const void* Tensor::read_pointer(DType expected, SourceLocation where) const {
  ETCH_CHECK(expected == dtype(), DTypeError, "data: expected ", name(dtype()), ", got ", name(expected),
             "; convert with to(dtype)");
  Recorder::note_host_access(where);
  return static_cast<const char*>(storage().data_for_read()) +
         impl().offset * static_cast<int64_t>(item_size(expected));
}

void* Tensor::write_pointer(DType expected, SourceLocation where) {
  ETCH_CHECK(expected == dtype(), DTypeError, "mutable_data: expected ", name(dtype()), ", got ",
             name(expected), "; convert with to(dtype)");
  check_in_place("mutable_data", *this, false);
  Recorder::note_host_access(where);
  storage().last_writer = Storage::kNoWriter;
  return static_cast<char*>(storage().data_for_write()) +
         impl().offset * static_cast<int64_t>(item_size(expected));
}

template <class T>
std::vector<T> Tensor::to_vector(SourceLocation where) const {
  Recorder::note_host_access(where);
  const void* data = storage().data_for_read();
  std::vector<T> values;
  values.reserve(static_cast<size_t>(numel()));
  visit_dtype(dtype(), [&]<class From>() {
    const From* from = static_cast<const From*>(data);
    for_each_element(impl().geometry, impl().offset,
                     [&](int64_t at) { values.push_back(static_cast<T>(widen(from[at]))); });
  });
  return values;
}

template <class T>
T Tensor::item(SourceLocation where) const {
  ETCH_CHECK(numel() == 1, ShapeError, "item: expected one element, got ", etch::to_string(sizes()));
  return to_vector<T>(where)[0];
}

#define ETCH_INSTANTIATE(T)                                           \
  template std::vector<T> Tensor::to_vector<T>(SourceLocation) const; \
  template T Tensor::item<T>(SourceLocation) const;
ETCH_INSTANTIATE(float)
ETCH_INSTANTIATE(double)
ETCH_INSTANTIATE(int32_t)
ETCH_INSTANTIATE(int64_t)
ETCH_INSTANTIATE(uint8_t)
ETCH_INSTANTIATE(bool)
#undef ETCH_INSTANTIATE

void Tensor::set(std::initializer_list<int64_t> index, Scalar value, SourceLocation where) {
  ETCH_CHECK(static_cast<int>(index.size()) == ndim(), IndexError, "set: expected ", ndim(),
             " positions, got ", static_cast<int64_t>(index.size()));
  check_in_place("set", *this, false);
  int64_t at = impl().offset;
  int axis = 0;
  for (int64_t position : index) {
    const int64_t count = sizes()[axis];
    ETCH_CHECK(position >= -count && position < count, IndexError, "set: expected a position in [", -count,
               ", ", count, ") of axis ", axis, ", got ", position);
    at += (position < 0 ? position + count : position) * strides()[axis];
    ++axis;
  }
  Recorder::note_host_access(where);
  storage().last_writer = Storage::kNoWriter;
  void* data = storage().data_for_write();
  visit_dtype(dtype(), [&]<class To>() {
    To* to = static_cast<To*>(data) + at;
    if constexpr (std::is_same_v<To, Half>) {
      *to = to_half(static_cast<float>(value.to_double()));
    } else if constexpr (std::is_same_v<To, BFloat16>) {
      *to = to_bfloat16(static_cast<float>(value.to_double()));
    } else {
      *to = value.to<To>();
    }
  });
  if (grad_enabled() && !is_leaf()) {
    const Tensor element = no_grad([&] { return make_view(*this, {}, at); });
    element.impl().base = impl().base ? impl().base : impl_;
    rewrite_history(element, {}, false);  // the old value no longer matters
  }
}

}  // namespace etch
