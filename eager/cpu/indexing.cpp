// Slices and elements picked or added by index.
#include "eager/cpu/indexing.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "eager/cpu/lanes.h"
#include "eager/cpu/loop.h"
#include "eager/cpu/pointwise.h"
#include "runtime/allocator.h"
#include "runtime/parallel.h"
#include "tracer/attrs.h"

namespace etch::cpu {
namespace {

template <class T>
T load(const char* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

void copy_strided(char* to, int64_t to_stride, const char* from, int64_t from_stride, int64_t n,
                  int64_t item) {
  if (to_stride == item && from_stride == item)
    std::memcpy(to, from, static_cast<size_t>(n * item));
  else if (to_stride == item)
    gather(to, from, from_stride, n, item);
  else
    for (int64_t i = 0; i < n; ++i)
      std::memcpy(to + i * to_stride, from + i * from_stride, static_cast<size_t>(item));
}

/// to += from, element by element.
template <class T>
void add_strided(char* to, int64_t to_stride, const char* from, int64_t from_stride, int64_t n) {
  const auto add = [](T a, T b)
                       ETCH_INLINE_LAMBDA { return narrow<T>(static_cast<Compute<T>>(widen(a) + widen(b))); };
  if (to_stride == sizeof(T) && from_stride == sizeof(T)) {
    auto* out = reinterpret_cast<T*>(to);
    const auto* in = reinterpret_cast<const T*>(from);
    for (int64_t i = 0; i < n; ++i) out[i] = add(out[i], in[i]);
    return;
  }
  for (int64_t i = 0; i < n; ++i) {
    const T sum = add(load<T>(to + i * to_stride), load<T>(from + i * from_stride));
    std::memcpy(to + i * to_stride, &sum, sizeof sum);
  }
}

/// An index call along one axis. `rest` loops over the other dimensions of its small side (the index, or the
/// slices): operand 0 is the output, 1 the other tensor, 2 the index where it has those dimensions.
struct Indexed {
  Loop rest;
  int64_t item, count;  // count: length of the index along the axis
  int64_t out_step, in_step, index_step;
  const char* index;

  int64_t at(int64_t k, const int64_t* offset = nullptr) const {
    return load<int64_t>(index + k * index_step + (offset ? offset[2] : 0));
  }
};

Indexed arrange(const Operand& out, const Operand& in, const Operand& index, int axis, bool elementwise) {
  Dims sizes = elementwise ? index.geometry->sizes : in.geometry->sizes;
  const int64_t count = index.geometry->sizes[elementwise ? axis : 0];
  sizes.erase(axis);
  const auto item = static_cast<int64_t>(item_size(out.dtype));
  constexpr int64_t kIndex = sizeof(int64_t);
  const auto strides = [&](const Operand& operand, int64_t each) {
    Dims result = operand.geometry->strides;
    result.erase(axis);
    for (int64_t& stride : result) stride *= each;
    return result;
  };
  Indexed call{Loop(sizes),
               item,
               count,
               out.geometry->strides[axis] * item,
               in.geometry->strides[axis] * item,
               index.geometry->strides[elementwise ? axis : 0] * kIndex,
               index.data()};
  call.rest.add_strides(out.data(), item, strides(out, item).data());
  call.rest.add_strides(in.data(), item, strides(in, item).data());
  if (elementwise) call.rest.add_strides(index.data(), kIndex, strides(index, kIndex).data());
  call.rest.arrange();
  return call;
}

/// Splits the index when slices are many, else the slices.
void index_select(const Indexed& call) {
  const Loop& rest = call.rest;
  const auto slices = [&](int64_t first, int64_t last, int64_t begin, int64_t end) {
    for (int64_t k = first; k < last; ++k) {
      const int64_t out = k * call.out_step, in = call.at(k) * call.in_step;
      walk(rest, begin, end, [&](const int64_t* offset, int64_t n) {
        copy_strided(rest.base[0] + out + offset[0], rest.inner_stride(0), rest.base[1] + in + offset[1],
                     rest.inner_stride(1), n, call.item);
      });
    }
  };
  if (call.count >= 16)
    parallel_for(call.count, std::max<int64_t>(1, kGrain / rest.count),
                 [&](int64_t begin, int64_t end) { slices(begin, end, 0, rest.count); });
  else
    parallel_for(rest.count, std::max<int64_t>(64, kGrain / call.count),
                 [&](int64_t begin, int64_t end) { slices(0, call.count, begin, end); });
}

/// Every element of a slice takes its addends in order on one thread.
template <class T>
void index_add(const Indexed& call) {
  const Loop& rest = call.rest;
  parallel_for(rest.count, std::max<int64_t>(16, kGrain / call.count), [&](int64_t begin, int64_t end) {
    for (int64_t k = 0; k < call.count; ++k) {
      const int64_t out = call.at(k) * call.out_step, in = k * call.in_step;
      walk(rest, begin, end, [&](const int64_t* offset, int64_t n) {
        add_strided<T>(rest.base[0] + out + offset[0], rest.inner_stride(0), rest.base[1] + in + offset[1],
                       rest.inner_stride(1), n);
      });
    }
  });
}

/// f(element's offsets, position along the axis) for all elements of the index; those that differ only in the
/// position come in order on one thread.
template <class F>
void for_each_index(const Indexed& call, F&& f) {
  const Loop& rest = call.rest;
  parallel_for(rest.count, std::max<int64_t>(1, kGrain / 2 / call.count), [&](int64_t begin, int64_t end) {
    walk(rest, begin, end, [&](const int64_t* offset, int64_t n) {
      for (int64_t i = 0; i < n; ++i) {
        const int64_t at[3] = {offset[0] + i * rest.inner_stride(0), offset[1] + i * rest.inner_stride(1),
                               offset[2] + i * rest.inner_stride(2)};
        for (int64_t k = 0; k < call.count; ++k) f(at, k);
      }
    });
  });
}

void gather_elements(const Indexed& call) {
  for_each_index(call, [&](const int64_t* at, int64_t k) {
    std::memcpy(call.rest.base[0] + at[0] + k * call.out_step,
                call.rest.base[1] + at[1] + call.at(k, at) * call.in_step, static_cast<size_t>(call.item));
  });
}

template <class T>
void scatter_add(const Indexed& call) {
  for_each_index(call, [&](const int64_t* at, int64_t k) {
    add_strided<T>(call.rest.base[0] + at[0] + call.at(k, at) * call.out_step, 0,
                   call.rest.base[1] + at[1] + k * call.in_step, 0, 1);
  });
}

/// A copy of an operand that the output would overwrite while it is still needed.
struct Private {
  std::optional<ScratchBuffer> buffer;
  Geometry geometry;
  Operand operand;

  Private(const Operand& source, const Operand& out) : operand(source) {
    if (source.data() != out.data()) return;
    geometry = contiguous(source.geometry->sizes);
    buffer.emplace(Device::cpu(), static_cast<size_t>(geometry.numel()) * item_size(source.dtype));
    operand.base = static_cast<char*>(buffer->data());
    operand.offset = 0;
    operand.geometry = &geometry;
    run_copy({Op::copy, {&source, 1}, {&operand, 1}, Attrs{}});
  }
};

}  // namespace

void run_indexing(const OpCall& call) {
  const Operand& out = call.outputs[0];
  const Operand& index = call.inputs[1];
  const int axis = AxisAttrs(call.attrs).axis;
  const bool elementwise = call.op == Op::gather || call.op == Op::scatter_add;
  const bool adds = call.op == Op::index_add || call.op == Op::scatter_add;
  const Private in(call.inputs[adds ? 2 : 0], out);
  if (adds && call.inputs[0].data() != out.data())
    run_copy({Op::copy, call.inputs.first(1), call.outputs, Attrs{}});
  if (index.geometry->numel() == 0 || out.geometry->numel() == 0) return;
  const Indexed indexed = arrange(out, in.operand, index, axis, elementwise);
  if (!adds) return elementwise ? gather_elements(indexed) : index_select(indexed);
  visit_dtype(out.dtype, [&]<class T>() {
    if (elementwise)
      scatter_add<T>(indexed);
    else
      index_add<T>(indexed);
  });
}

}  // namespace etch::cpu
