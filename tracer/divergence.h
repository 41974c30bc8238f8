// Where one path of a traced function leaves the others, in data and in words.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tracer/op.h"

namespace etch {

struct PathNode;

/// What made a new path.
struct Divergence {
  enum class Kind : uint8_t {
    None,  ///< a site's first path
    Op,
    Attribute,
    Operand,  ///< a tensor in one path, a scalar or nothing in the other
    DType,
    Sizes,
    Strides,
    Identity,  ///< another storage: tensors alias in another way, or come from other ops
    StorageBytes,
    Threads,
    Ended,
    WentOn,
  };
  Kind kind = Kind::None;
  int op_index = -1;         ///< in the stream, from 0
  Op op = Op::fused;         ///< of the new path, there
  std::string what;          ///< "op", "input 0", "attribute 2", "threads", ...
  std::string before;        ///< in the oldest path that is the same up to here
  std::string now;           ///< in the new one
  std::string text() const;  ///< all of it; empty for None
};

/// Where a new path that ends at `node` leaves the older ones.
Divergence find_divergence(const PathNode* node);
/// What a user can do about paths made by such differences.
std::string_view remedy(Divergence::Kind kind);

}  // namespace etch
