// Questions about graphs.
#include "tracer/graph.h"

namespace etch {

// A dense window of as many bytes as the buffer can only start at its beginning, whatever the slot says.
bool covers_buffer(const Graph& graph, const GraphOperand& operand) {
  return operand.geometry.numel() * static_cast<int64_t>(item_size(operand.dtype)) ==
             graph.buffers[operand.buffer].bytes &&
         is_dense(operand.geometry);
}

}  // namespace etch
