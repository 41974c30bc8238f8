// A slow evaluator of group bodies, node by node through memory: what generated kernels must give bit for
// bit.
#pragma once

#include <vector>

#include "tracer/graph.h"

namespace etch::testing {

using Memory = std::vector<std::vector<char>>;

/// Runs the nodes in order over `memory`, one block of bytes a buffer. `slots`: offsets of tensors and values
/// of scalars that have a slot.
void run_reference(const std::vector<Node>& body, Memory& memory, const std::vector<Scalar>& slots);

/// Calls f(index, linear) for every index of `sizes`, row-major.
template <class F>
void for_each_index(const Dims& sizes, F f) {
  Dims index = Dims::filled(sizes.size(), 0);
  const int64_t count = num_elements(sizes);
  for (int64_t linear = 0; linear < count; ++linear) {
    f(index, linear);
    for (int i = sizes.size(); i-- > 0;) {
      if (++index[i] < sizes[i]) break;
      index[i] = 0;
    }
  }
}

}  // namespace etch::testing
