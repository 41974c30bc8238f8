// How a group becomes a kernel: lower.cpp decides whether and finds values and windows, lower_loops.cpp makes
// the loops and the arguments.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "codegen/kernel.h"
#include "codegen/loop.h"
#include "runtime/error.h"
#include "tracer/reduction.h"

namespace etch::codegen {

/// Strides over the dimensions of S that are not 1.
struct Strides {
  int64_t values[kMaxDims] = {};
  int64_t& operator[](int i) { return values[i]; }
  int64_t operator[](int i) const { return values[i]; }
};

/// A window as an address function over S.
struct Access {
  int buffer;
  int64_t offset;
  int slot;
  DType dtype;
  Strides strides;
};

class Lowering {
 public:
  /// False with why() unless the body can be one kernel. `outputs`: the windows to store; null stores all.
  bool analyse(const std::vector<Node>& body, const std::vector<GraphOperand>* outputs);
  const std::string& why() const { return why_; }
  LoweredKernel finish();

 private:
  struct Written {
    Access access;
    int value;
    GraphOperand operand;
    Level level;
  };
  struct Read {
    Access access;
    GraphOperand operand;
    int value;
  };
  struct Buffer {
    std::vector<Written> written;
    std::vector<Read> reads;
  };

  template <class... Pieces>
  bool refuse(const Pieces&... pieces) {
    why_ = join_text({Piece(pieces)...});
    return false;
  }
  bool find_space(const std::vector<Node>& body);
  bool check_node(const Node& node);
  bool find_level(const Node& node, Level* level);
  bool map(const Geometry& geometry, const Dims& sizes, Level level, Strides* strides);
  bool add_node(const Node& node);
  bool read(const GraphOperand& operand, const Dims& sizes, Level level, int* value);
  bool write(const GraphOperand& operand, Level level, int value);
  bool same_elements(const Access& a, const Access& b) const;
  bool disjoint(const Access& a, const Access& b) const;
  bool check_stages();
  void order_pointwise();
  int add_value(LoopValue value);
  int add_window(const GraphOperand& operand, const Strides& strides, DType dtype, bool written);
  int add_index(const Dims& sizes, Level level);

  void make_loops();
  void add_loop(LoopRole role, const std::vector<int>& group);
  void add_phases();
  int64_t partial_offset(int64_t count);

  struct Window {
    int pointer;
    DType dtype;
    Strides strides;
  };

  std::string why_;
  LoopNest nest_;
  LoweredKernel kernel_;
  int nd_ = 0;
  int64_t size_[kMaxDims];
  bool reduced_[kMaxDims] = {};
  int order_[kMaxDims];  ///< memory order, outermost first
  bool has_reductions_ = false;
  ReductionOrder::Kind kind_ = ReductionOrder::Kind::Rows;
  absl::flat_hash_map<int, Buffer> buffers_;
  std::vector<Window> windows_;
  std::vector<std::vector<int>> loop_groups_;
  std::vector<int64_t> loop_extents_;
};

}  // namespace etch::codegen
