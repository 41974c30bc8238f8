// Builds a group by hand, runs its kernel whole and in pieces, and compares with the reference.
#pragma once

#include <random>
#include <string>

#include "codegen/kernel.h"
#include "tests/codegen/reference.h"

namespace etch::testing {

class Group {
 public:
  explicit Group(uint64_t seed = 1) : random_(seed) {}

  /// A tensor that exists before the group, filled at random; strides default to contiguous.
  GraphOperand input(DType dtype, const Dims& sizes, const Dims& strides = {}, int64_t offset = 0);
  /// A window into the same buffer.
  static GraphOperand view(GraphOperand operand, const Dims& sizes, const Dims& strides, int64_t offset = 0);
  static GraphOperand scalar(Scalar value, DType dtype = DType::F32);
  /// The same as arguments of the call.
  GraphOperand scalar_slot(Scalar value, DType dtype = DType::F32);
  GraphOperand offset_slot(GraphOperand operand, int64_t offset);

  /// Appends a node whose output is a fresh contiguous buffer.
  GraphOperand op(Op op, std::vector<GraphOperand> inputs, DType dtype, const Dims& sizes,
                  const Dims& strides = {});
  /// F32 with the sizes of the first tensor.
  GraphOperand op(Op op, std::vector<GraphOperand> inputs);
  /// Keeps dimensions unless told otherwise.
  GraphOperand reduce(Op op, const GraphOperand& operand, uint64_t axes, bool keepdim = true);
  /// Appends a node that writes `output`.
  void write(Op op, std::vector<GraphOperand> inputs, const GraphOperand& output);
  void keep(const GraphOperand& output) { outputs_.push_back(output); }

  /// Puts NaN, infinities, zeros of both signs and denormals into a floating tensor.
  void add_specials(const GraphOperand& operand);
  /// Lets the stored buffer `output` live in the memory of `input`, which has the same geometry.
  void share_memory(const GraphOperand& input, const GraphOperand& output) {
    shared_.emplace_back(input.buffer, output.buffer);
  }

  bool can_lower(std::string* why = nullptr) const { return codegen::can_lower(body_, why); }
  codegen::LoweredKernel lower() const;
  /// Fails the test unless the kernel gives the reference's bits (any NaN equals any NaN).
  void check();
  const std::vector<Node>& body() const { return body_; }

 private:
  int add_buffer(DType dtype, const Geometry& geometry, int64_t offset);
  void compare(const Memory& expected, const Memory& got, const std::string& what) const;
  void run(const codegen::LoweredKernel& kernel, const codegen::LoadedKernel& loaded, Memory& memory,
           int pieces);

  std::mt19937_64 random_;
  std::vector<Node> body_;
  std::vector<GraphOperand> outputs_;
  Memory memory_;
  std::vector<Scalar> slots_;
  std::vector<std::pair<int, int>> shared_;
};

}  // namespace etch::testing
