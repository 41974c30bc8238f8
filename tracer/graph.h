// The static graph of one path: ordered nodes over storage variables ("buffers").
//
// A buffer that is internal and written once, in full, before any read is a value in the SSA sense. Externals
// and partly written buffers are memory: nodes that touch one keep their order whenever one of the two writes
// it. Passes take a graph and return a new one.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/device.h"
#include "tracer/op.h"

namespace etch {

struct GraphBuffer {
  enum class Kind : uint8_t {
    External,  ///< exists before the call; given at each call, may be written in place
    Output,    ///< made by the call and outlives it: own memory
    Internal,  ///< made and dropped by the call: lives in the arena or nowhere
  };
  Kind kind = Kind::Internal;
  int64_t bytes = 0;
  /// The storage's number in the recorded stream; -1 for buffers that passes made.
  int number = -1;
};

/// An operand of a node. Its run-time number (offset or scalar) is slot `slot` of the call's values; -1:
/// none.
struct GraphOperand {
  enum class Kind : uint8_t { Tensor, Scalar, Absent };
  Kind kind = Kind::Absent;
  DType dtype =
      DType::F32;  ///< Scalar: what it is converted to before use (F64 for Float scalars of generators)
  int buffer = -1;
  Geometry geometry;
  int64_t offset = 0;  ///< elements, added to the slot's
  int slot = -1;
  Scalar scalar;  ///< the value of a scalar without slot

  bool is_tensor() const { return kind == Kind::Tensor; }
  bool is_scalar() const { return kind == Kind::Scalar; }
};

struct NodeGroup;

struct Node {
  Op op;
  Attrs attrs;
  std::vector<GraphOperand> inputs;
  std::vector<GraphOperand> outputs;
  /// Op::fused and Op::tiled. inputs: every tensor window the group loads and every scalar; outputs: every
  /// window it stores.
  std::shared_ptr<const NodeGroup> group;
};

/// Nodes that run as one: of a fused node pointwise, generator and reduction nodes, one generated kernel; of
/// a tiled node matrix products and fused nodes. Body operands refer to the graph's buffers; buffers that the
/// node does not list as outputs exist only inside it.
struct NodeGroup {
  std::vector<Node> body;
};

struct Graph {
  Device device;
  std::vector<GraphBuffer> buffers;
  std::vector<Node> nodes;
  /// Values (offsets and scalars) that a call supplies.
  int num_slots = 0;

  int add_buffer(GraphBuffer::Kind kind, int64_t bytes, int number = -1) {
    buffers.push_back({kind, bytes, number});
    return static_cast<int>(buffers.size()) - 1;
  }
};

/// The window writes every byte of its buffer.
bool covers_buffer(const Graph& graph, const GraphOperand& operand);

/// Text form, one node a line; parse() reads it back. `parse` throws ValueError with the line.
std::string print(const Graph& graph);
Graph parse(std::string_view text);
/// Graphviz.
std::string print_dot(const Graph& graph);

/// Throws InternalError, prefixed by `stage`, unless: buffers and slots exist; windows lie within their
/// buffers (as far as offsets are constant); operands fit the op's shape rule; internal and output buffers
/// are written before they are read; outputs are written; groups are closed.
void verify(const Graph& graph, std::string_view stage);

/// Replaces every composite node by its primitives (tracer/composites.cpp).
Graph expand_composites(const Graph& graph);

}  // namespace etch
