// Looks through index operands and divisors in row-major order.
#include "eager/cpu/checks.h"

#include <cstring>

#include "eager/cpu/loop.h"
#include "runtime/error.h"
#include "tracer/attrs.h"

namespace etch::cpu {
namespace {

/// Position and value of the first element for which `bad` holds; position -1: none.
template <class T, class Bad>
std::pair<int64_t, T> find_first(const Operand& operand, Bad bad) {
  Loop loop(operand.geometry->sizes);
  loop.add(operand.data(), sizeof(T), operand.geometry);
  loop.merge();
  std::pair<int64_t, T> found{-1, T{}};
  int64_t position = 0;
  const auto look = [&](const int64_t* offset, int64_t n) {
    const char* from = loop.base[0] + offset[0];
    const int64_t stride = loop.inner_stride(0);
    bool any = false;
    for (int64_t i = 0; i < n; ++i) {
      T value;
      std::memcpy(&value, from + i * stride, sizeof value);
      any |= bad(value);
    }
    for (int64_t i = 0; any && found.first < 0 && i < n; ++i) {
      T value;
      std::memcpy(&value, from + i * stride, sizeof value);
      if (bad(value)) found = {position + i, value};
    }
    position += n;
  };
  if (loop.count > 0) walk(loop, 0, loop.count, look);
  return found;
}

void check_indices(const OpCall& call) {
  const int axis = AxisAttrs(call.attrs).axis;
  const int64_t size = call.inputs[0].geometry->sizes[axis];
  const auto [position, value] = find_first<int64_t>(
      call.inputs[1], [size](int64_t i) { return static_cast<uint64_t>(i) >= static_cast<uint64_t>(size); });
  ETCH_CHECK(position < 0, IndexError, name(call.op), ": expected indices in [0, ", size, "), got ", value,
             " at position ", position);
}

void check_labels(const OpCall& call, const Operand& logits, const Operand& target) {
  const int64_t classes = logits.geometry->sizes[1];
  const int64_t ignored = CrossEntropyAttrs(call.attrs).ignore_index;
  const auto [position, value] = find_first<int64_t>(target, [=](int64_t label) {
    return static_cast<uint64_t>(label) >= static_cast<uint64_t>(classes) && label != ignored;
  });
  ETCH_CHECK(position < 0, IndexError, name(call.op), ": expected labels in [0, ", classes, ") or ", ignored,
             " (ignored), got ", value, " at position ", position);
}

void check_divisors(const OpCall& call) {
  const DType dtype = call.outputs.empty() ? operand_dtype(call.op, call.inputs) : call.outputs[0].dtype;
  if (!is_integral(dtype)) return;
  const Operand& divisor = call.inputs[1];
  int64_t position = -1;
  if (divisor.is_scalar()) {
    if (divisor.scalar.to_int() == 0) position = 0;
  } else {
    visit_dtype(divisor.dtype, [&]<class T>() {
      if constexpr (std::is_integral_v<T>)
        position = find_first<T>(divisor, [](T b) { return b == T(0); }).first;
    });
  }
  ETCH_CHECK(position < 0, ValueError, name(call.op),
             ": expected non-zero integer divisors, got 0 at position ", position);
}

}  // namespace

void check_call_data(const OpCall& call) {
  switch (call.op) {
    case Op::cross_entropy:
      return check_labels(call, call.inputs[0], call.inputs[1]);
    case Op::cross_entropy_grad:
      return check_labels(call, call.inputs[1], call.inputs[2]);
    default:
      break;
  }
  const uint8_t flags = info(call.op).flags;
  if (flags & kChecksIndex) check_indices(call);
  if (flags & kChecksZeroDivisor) check_divisors(call);
}

}  // namespace etch::cpu
