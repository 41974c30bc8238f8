// The loop IR between a fusion group and source text: what a kernel loads, computes, reduces and stores, and
// the loops around it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tracer/op.h"

namespace etch::codegen {

/// Where a value lives: one for each element of the full space, or one for each row (column) that the
/// reductions leave.
enum class Level : uint8_t { Full, Row };

/// One scalar of the kernel. F16 and BF16 values are held as F32, rounded after every op.
struct LoopValue {
  enum class Kind : uint8_t {
    Load,       ///< of `window`
    Scalar,     ///< argument `window` of the scalars
    Index,      ///< row-major index in the output of a generator; `window` gives its strides
    Op,         ///< `op` of `args`
    Single,     ///< reduction `op` over one element
    Reduction,  ///< reduction `op` of args[0] over the reduced dimensions
  };
  Kind kind = Kind::Op;
  Op op = Op::copy;
  DType dtype = DType::F32;    ///< the value's
  DType compute = DType::F32;  ///< the type T that the op's expression works in
  Level level = Level::Full;
  int stage = 0;  ///< passes over the row that must be complete before it can be computed
  int window = -1;
  std::vector<int> args = {};
};

/// What a loop dimension does. In memory order within a role.
enum class LoopRole : uint8_t {
  Kept,     ///< iterated by the caller's range
  Outer,    ///< reduced, outside of the innermost run (Rows)
  Run,      ///< the innermost run of reduced dimensions (Rows)
  Reduced,  ///< reduced (Columns)
  Column,   ///< innermost, vectorised (Pointwise, Columns)
};

struct LoopDim {
  LoopRole role = LoopRole::Kept;
  int64_t extent = 1;
};

/// A step between elements: nothing, one element, or an argument.
struct LoopStride {
  enum class Kind : uint8_t { Zero, One, Argument };
  Kind kind = Kind::Zero;
  int argument = -1;
};

struct LoopWindow {
  int pointer = -1;  ///< -1: the index of a generator
  DType dtype = DType::F32;
  std::vector<LoopStride> strides;  ///< of each LoopDim
};

struct LoopStore {
  int value;
  int window;
};

/// Arguments: dims[k] is the extent of loop dimension k, then come strides and what the kind adds
/// (`first_extra`).
struct LoopNest {
  enum class Kind : uint8_t {
    Pointwise,
    Rows,       ///< one iteration reduces one row
    SplitRows,  ///< phase 0 reduces blocks of rows into scratch, phase 1 folds them
    Columns,    ///< phase 0 reduces chunks of rows into scratch, phase 1 folds them for each column
  };
  Kind kind = Kind::Pointwise;
  std::vector<LoopDim> dims;
  std::vector<LoopWindow> windows;
  std::vector<LoopValue> values;  ///< operands before their users
  std::vector<LoopStore> stores;
  int passes = 1;            ///< over each row; all full-level stores happen in the last one (Rows)
  bool row_buffers = false;  ///< rows are short enough to keep costly values between passes on the stack
  int pointers = 0;          ///< without scratch
  int arguments = 0;
  int first_extra = 0;  ///< SplitRows, Columns: the byte offset in scratch of each reduction's partials
  int scalars = 0;
};

inline constexpr int64_t kRowBuffer = 4096;  ///< elements of a row that stay on the stack between passes
inline constexpr int64_t kColumnTile = 1024;

/// The few things in which host and CUDA text differ.
struct Dialect {
  std::string (*open)(const std::string& name, const LoopNest& nest, std::string_view count);
  std::string_view loop_open;  ///< begins the loop over iterations that close() ends
  std::string_view close;
  std::string_view independent;  ///< put before loops whose iterations touch distinct elements
  int64_t column_tile;
  bool row_buffers;
  bool fetches;  ///< loops that the hardware's prefetching does not serve well ask for memory ahead
};
const Dialect& host_dialect();
const Dialect& cuda_dialect();

/// Functions <name>_0, <name>_1, .. of one dialect.
std::string emit(const LoopNest& nest, const std::string& name, const Dialect& dialect);

/// Definitions of every op's expression as functions op_<name>, and of reductions as reduce_<name> and
/// identity_<name>.
const std::string& op_definitions();

}  // namespace etch::codegen
