// Where one path of a traced function leaves the others, in data and in words.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>

#include "tracer/op.h"

namespace etch {

struct PathEnd;

/// What made a new path.
struct Divergence {
  enum class Kind : uint8_t {
    None,  ///< the first path that begins where it does
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
  int from = 0;              ///< the number of the older path, from 1
  int op_index = -1;         ///< in the stream, from 0
  Op op = Op::fused;         ///< of the new path, there
  std::string what;          ///< "op", "input 0", "attribute 2", "threads", ...
  std::string before;        ///< in the older path
  std::string now;           ///< in the new one
  std::string text() const;  ///< all of it; empty for None
};

/// Where a new path leaves the older one that it shares most ops with, among those that begin where it does:
/// with the body, or after the same line. Of several, one with the same op there, and the oldest of these.
Divergence find_divergence(const PathEnd& now, const std::deque<std::unique_ptr<PathEnd>>& older);
/// What a user can do about paths made by such differences.
std::string_view remedy(Divergence::Kind kind);

}  // namespace etch
