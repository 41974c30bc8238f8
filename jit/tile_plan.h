// A tiled node made ready for the CPU: matrix products and the row kernels between them, computed for one
// block of rows after another, so that what passes from one to the next stays in cache and never exists as a
// whole.
#pragma once

#include <optional>
#include <span>
#include <variant>
#include <vector>

#include "codegen/kernel.h"
#include "tracer/graph.h"

namespace etch::jit {

/// Rows of a tile, and rows and columns of the blocks that may be left out.
inline constexpr int64_t kTileRows = 64;

struct TilePlan {
  /// Memory that a product touches: a matrix of each batch with dense lines, rows or columns.
  struct Window {
    GraphOperand operand;
    int64_t lines = 0, length = 0, stride = 0;  ///< of a line in elements
    bool of_columns = false;                    ///< the lines are the columns
  };
  /// A product's operand: the tile's rows of a local matrix, or a window.
  struct Matrix {
    int local = -1, window = -1;
  };
  struct Mask {
    GraphOperand window;     ///< Bool [.., rows, columns], columns dense
    bool hides_when = true;  ///< what a hidden element's mask is
  };
  /// Columns of a product that nobody looks at, wherever the mask hides them from all rows of the tile.
  struct Hidden {
    /// The columns are looked at, but only multiplied by this local: where it is zero any finite number would
    /// do, and zeros are put there. -1: not looked at at all.
    int times_local = -1;
  };
  /// c = a b. By rows: the tile's rows of a and c, all of b. Otherwise the tile's rows are the terms:
  /// c += a b with the tile's columns of a, which lie densely, and rows of b.
  struct Product {
    bool by_rows = true;
    Matrix a, b, c;
    int64_t columns = 0, terms = 0;
    int64_t packed = -1;  ///< where b's transpose is kept, in floats of the scratch; -1: b is used as it is
    std::optional<Hidden> hidden;
  };
  struct Kernel {
    const Node* node = nullptr;
    codegen::LoweredKernel lowered;
    codegen::LoadedKernel loaded;
    std::vector<int> local;  ///< by pointer; -1: memory
    /// The kernel is a softmax of rows in which the mask chooses this scalar: if it is -inf, columns that are
    /// hidden up to the end of all rows need not be visited. -1: it is not.
    int fill = -1;
  };
  using Stage = std::variant<Product, Kernel>;
  /// A dense matrix of which the tile uses its rows: in scratch, or in memory if it is read or kept outside.
  struct Local {
    int64_t columns = 0;
    std::optional<GraphOperand> memory;
    int64_t place = 0;   ///< in floats of the scratch; locals that are not needed at the same time share one
    bool given = false;  ///< in memory and not written here
  };

  Dims batch;
  int64_t batches = 1, rows = 0;
  std::vector<Window> windows;
  std::vector<Local> locals;
  std::vector<Stage> stages;
  std::optional<Mask> mask;    ///< the first that hides columns; others are taken as they come
  int64_t magnitudes = 0;      ///< where the largest magnitudes of blocks of windows' lines are kept
  int64_t scratch_floats = 0;  ///< of one thread

  int64_t blocks(const Window& window) const { return (window.lines + kTileRows - 1) / kTileRows; }
};

/// None if the node's body has anything that tiles cannot do. The plan refers to the node.
std::optional<TilePlan> plan_tile(const Node& tiled);

/// Addresses of one call: first elements of the windows, of the locals in memory and of the mask; the
/// kernels' pointers and scalars, in the order of the stages.
struct TileArguments {
  std::vector<char*> windows, locals, pointers;
  char* mask = nullptr;
  std::vector<codegen::KernelScalar> scalars;
};

/// Runs all batches. `scratch` has scratch_floats for each of num_threads().
void run_tile(const TilePlan& plan, const TileArguments& arguments, float* scratch);

}  // namespace etch::jit
