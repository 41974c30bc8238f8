// Checks of data that ops refuse: indices, labels and integer divisors.
#include <cstring>

#include "runtime/error.h"
#include "tracer/attrs.h"
#include "tracer/execute.h"

namespace etch {
namespace {

template <class T>
struct Found {
  int64_t position = -1;  ///< row-major; -1: nowhere
  T value{};
};

/// The first element, in row-major order, for which `bad` holds.
template <class T, class Bad>
Found<T> find_first(const Operand& operand, Bad bad) {
  const Geometry& geometry = *operand.geometry;
  const int64_t count = geometry.numel();
  const int last = geometry.ndim() - 1;
  const int64_t inner = last < 0 ? 1 : geometry.sizes[last];
  const int64_t step = last < 0 ? 0 : geometry.strides[last] * static_cast<int64_t>(sizeof(T));
  Dims index = Dims::filled(geometry.ndim(), 0);
  for (int64_t position = 0; position < count; position += inner) {
    const char* at = operand.data();
    for (int i = 0; i < last; ++i) at += index[i] * geometry.strides[i] * static_cast<int64_t>(sizeof(T));
    for (int64_t i = 0; i < inner; ++i) {
      T value;
      std::memcpy(&value, at + i * step, sizeof value);
      if (bad(value)) [[unlikely]]
        return {position + i, value};
    }
    for (int i = last - 1; i >= 0 && ++index[i] == geometry.sizes[i]; --i) index[i] = 0;
  }
  return {};
}

bool outside(int64_t index, int64_t size) {
  return static_cast<uint64_t>(index) >= static_cast<uint64_t>(size);
}

void check_labels(const OpCall& call, const Operand& logits, const Operand& target) {
  const int64_t classes = logits.geometry->sizes[1];
  const int64_t ignored = CrossEntropyAttrs(call.attrs).ignore_index;
  const auto found =
      find_first<int64_t>(target, [=](int64_t label) { return outside(label, classes) && label != ignored; });
  ETCH_CHECK(found.position < 0, IndexError, name(call.op), ": expected labels in [0, ", classes, ") or ",
             ignored, " (ignored), got ", found.value, " at position ", found.position);
}

void check_indices(const OpCall& call) {
  const int64_t size = call.inputs[0].geometry->sizes[AxisAttrs(call.attrs).axis];
  const auto found = find_first<int64_t>(call.inputs[1], [=](int64_t index) { return outside(index, size); });
  ETCH_CHECK(found.position < 0, IndexError, name(call.op), ": expected indices in [0, ", size, "), got ",
             found.value, " at position ", found.position);
}

void check_divisors(const OpCall& call) {
  if (!is_integral(operand_dtype(call.op, call.inputs))) return;
  const Operand& divisor = call.inputs[1];
  int64_t position = -1;
  if (divisor.is_scalar())
    position = divisor.scalar.to_int() == 0 ? 0 : -1;
  else
    visit_dtype(divisor.dtype, [&]<class T>() {
      if constexpr (std::is_integral_v<T>)
        position = find_first<T>(divisor, [](T value) { return value == T(0); }).position;
    });
  ETCH_CHECK(position < 0, ValueError, name(call.op),
             ": expected non-zero integer divisors, got 0 at position ", position);
}

}  // namespace

void check_data(const OpCall& call) {
  if (call.op == Op::cross_entropy) return check_labels(call, call.inputs[0], call.inputs[1]);
  if (info(call.op).flags & kChecksIndex) check_indices(call);
  if (info(call.op).flags & kChecksZeroDivisor) check_divisors(call);
}

}  // namespace etch
