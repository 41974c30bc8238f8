// Helpers for tests that interpret small graphs given as text.
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "tracer/interpreter.h"

namespace etch {

template <class T>
std::vector<std::byte> bytes_of(const std::vector<T>& values) {
  std::vector<std::byte> bytes(values.size() * sizeof(T));
  if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

/// Interprets nodes over the given externals (%0, %1, ..) and outputs of the given bytes that follow them.
class Interpreted {
 public:
  Interpreted(const std::vector<std::vector<std::byte>>& externals, const std::vector<int64_t>& outputs,
              const std::string& nodes, const std::vector<OperandValue>& values = {},
              const InterpreterOptions& options = {}) {
    std::string text = "graph cpu slots " + std::to_string(values.size()) + "\n";
    std::vector<std::vector<std::byte>> buffers = externals;
    int number = 0;
    for (const auto& external : externals)
      text += "buffer %" + std::to_string(number++) + " external " + std::to_string(external.size()) + "\n";
    for (int64_t bytes : outputs)
      text += "buffer %" + std::to_string(number++) + " output " + std::to_string(bytes) + "\n";
    buffers.resize(number);
    const Graph graph = parse(text + nodes);
    verify(graph, "test");
    results_ = interpret(graph, buffers, values, options);
  }

  const std::vector<double>& operator[](int buffer) const { return results_[buffer].values; }
  const InterpretedBuffer& buffer(int i) const { return results_[i]; }

 private:
  std::vector<InterpretedBuffer> results_;
};

using Doubles = std::vector<double>;

}  // namespace etch
