// Small tensors and calls for kernel tests: memory with a geometry, run through the CPU executor.
#pragma once

#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <optional>
#include <random>
#include <vector>

#include "eager/cpu/executor.h"
#include "runtime/shape.h"
#include "tracer/attrs.h"
#include "tracer/op.h"

namespace etch::cpu {

inline double read_element(const char* at, DType dtype) {
  return visit_dtype(dtype, [&]<class T>() -> double {
    T value;
    std::memcpy(&value, at, sizeof value);
    if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>)
      return to_float(value);
    else
      return static_cast<double>(value);
  });
}

inline void write_element(char* at, DType dtype, double number) {
  visit_dtype(dtype, [&]<class T>() {
    T value;
    if constexpr (std::is_same_v<T, Half>)
      value = to_half(static_cast<float>(number));
    else if constexpr (std::is_same_v<T, BFloat16>)
      value = to_bfloat16(static_cast<float>(number));
    else
      value = static_cast<T>(number);
    std::memcpy(at, &value, sizeof value);
  });
}

/// A window into memory of its own (shared by copies).
struct Array {
  Geometry geometry;
  DType dtype = DType::F32;
  int64_t offset = 0;
  std::shared_ptr<std::vector<char>> bytes;

  Array(const Geometry& g, DType d, int64_t at = 0)
      : geometry(g),
        dtype(d),
        offset(at),
        bytes(std::make_shared<std::vector<char>>((extent(g) + at) * item_size(d) + 64, 0x5a)) {}
  /// Contiguous, from values in row-major order.
  Array(const Dims& sizes, const std::vector<double>& values, DType d = DType::F32)
      : Array(contiguous(sizes), d) {
    set(values);
  }

  /// The address of the element at a row-major position.
  char* at(int64_t position) const {
    int64_t element = offset;
    for (int d = geometry.ndim() - 1; d >= 0; --d) {
      element += position % geometry.sizes[d] * geometry.strides[d];
      position /= geometry.sizes[d];
    }
    return bytes->data() + element * static_cast<int64_t>(item_size(dtype));
  }
  void set(const std::vector<double>& values) const {
    for (size_t i = 0; i < values.size(); ++i) write_element(at(static_cast<int64_t>(i)), dtype, values[i]);
  }
  /// Row-major.
  std::vector<double> values() const {
    std::vector<double> result;
    for (int64_t i = 0; i < geometry.numel(); ++i) result.push_back(read_element(at(i), dtype));
    return result;
  }
  /// The elements' bytes in row-major order.
  std::vector<char> bits() const {
    std::vector<char> result;
    for (int64_t i = 0; i < geometry.numel(); ++i)
      result.insert(result.end(), at(i), at(i) + item_size(dtype));
    return result;
  }
  Array copy() const {
    Array result = *this;
    result.bytes = std::make_shared<std::vector<char>>(*bytes);
    return result;
  }
  Operand operand() const {
    Operand result;
    result.base = bytes->data();
    result.geometry = &geometry;
    result.offset = offset;
    result.dtype = dtype;
    return result;
  }
};

/// Reproducible numbers in [low, high).
inline Array random_array(const Geometry& geometry, DType dtype, unsigned seed, double low = -2,
                          double high = 2) {
  std::mt19937 engine(seed);
  std::uniform_real_distribution<double> draw(low, high);
  Array result(geometry, dtype);
  for (int64_t i = 0; i < geometry.numel(); ++i) write_element(result.at(i), dtype, draw(engine));
  return result;
}

/// An array, a scalar, or nothing.
struct Input {
  std::optional<Array> array;
  Operand scalar;
  Input(const Array& a) : array(a) {}
  template <class T>
  requires std::is_arithmetic_v<T> Input(T value) { scalar.scalar = value; }
  Input(std::nullopt_t) : scalar(Operand::absent()) {}
  Operand operand() const { return array ? array->operand() : scalar; }
};

inline std::vector<Operand> operands(const std::vector<Input>& inputs) {
  std::vector<Operand> result;
  for (const Input& input : inputs) result.push_back(input.operand());
  return result;
}

/// Runs `op` into outputs as infer() describes them; written operands are written in place.
inline std::vector<Array> apply_all(Op op, const std::vector<Input>& inputs, const Attrs& attrs = {},
                                    DType given = DType::F32) {
  const std::vector<Operand> ins = operands(inputs);
  OutputSpec specs[kMaxOutputs];
  const int count = infer(op, ins, attrs, given, specs);
  std::vector<Array> outputs;
  std::vector<Operand> outs;
  for (int i = 0; i < count; ++i) {
    const int written = written_operand(op, i);
    outputs.push_back(written >= 0 ? *inputs[written].array : Array(specs[i].geometry, specs[i].dtype));
  }
  for (const Array& output : outputs) outs.push_back(output.operand());
  if (!run({op, ins, outs, attrs})) fail<InternalError>("no kernel for ", name(op));
  return outputs;
}
inline Array apply(Op op, const std::vector<Input>& inputs, const Attrs& attrs = {},
                   DType given = DType::F32) {
  return apply_all(op, inputs, attrs, given)[0];
}

/// Runs `op` into a given output.
inline void apply_into(const Array& out, Op op, const std::vector<Input>& inputs, const Attrs& attrs = {}) {
  const std::vector<Operand> ins = operands(inputs);
  const Operand output = out.operand();
  run({op, ins, {&output, 1}, attrs});
}

using Numbers = std::vector<double>;

}  // namespace etch::cpu
