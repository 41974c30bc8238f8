// The printer of loop nests: what emit.cpp (values, pointwise loops) and emit_reductions.cpp share.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "codegen/loop.h"
#include "runtime/error.h"

namespace etch::codegen {

/// The C++ type of a value in a register, and of its element in memory.
std::string_view register_type(DType dtype);
std::string_view memory_type(DType dtype);
size_t register_size(DType dtype);
/// Whether the op's expression calls functions, and so is worth keeping rather than computing again.
bool is_costly(Op op);

class Emitter {
 public:
  Emitter(const LoopNest& nest, const std::string& name, const Dialect& dialect);
  std::string run();

 private:
  bool has_costly(const std::vector<bool>& needed) const;
  /// The vectorised loop over elements [first, last) of `dim`, one of `elements` in all, which asks for
  /// memory ahead where that pays; the lines of close_elements() end it.
  void open_elements(const std::string& elements, const std::vector<bool>& needed, int dim);
  void close_elements();
  bool moves_on(int window, int dim) const;
  void pointwise();
  void rows();
  void split_blocks();
  void split_fold();
  void column_chunks();
  void column_fold();

  const std::vector<int>& dims(LoopRole role) const { return by_role_[static_cast<int>(role)]; }
  /// Appends a line; braces at its ends set the indentation.
  void line(std::initializer_list<Piece> pieces);
  std::string extent(int dim) const;
  std::string product(LoopRole role) const;
  std::string stride(int window, int dim) const;

  /// The head of a phase: its function, arguments as locals, and the dialect's loop over iterations.
  void open(int phase, std::string_view count);
  void close();
  /// Declares i<dim> of every dimension in `group` from a linear index.
  void split_index(const std::string& linear, const std::vector<int>& group,
                   std::string_view type = "const i64");
  /// Declares pointers moved by the i<dim> of `group`, for the windows that `needed` values use.
  void rebase(const std::vector<int>& group, std::string_view prefix, const std::vector<bool>& needed);
  /// The element of a window at `index` of the innermost dimension `dim` (-1: at the pointer itself).
  std::string element(int window, int dim, std::string_view index) const;
  std::string argument(int value, DType type) const;
  void define(int value, const std::string& expression);
  std::string expression(int value) const;
  /// Declares the `needed` values that are not ready.
  void compute(const std::vector<bool>& needed, int dim, std::string_view index);
  void hoist(const std::vector<bool>& needed, int dim);
  void store(Level level, int dim, std::string_view index);

  void need(int value, std::vector<bool>& needed) const;
  std::vector<bool> needed_for(const std::vector<int>& roots) const;
  std::vector<int> stored(Level level) const;
  std::vector<int> operands(const std::vector<int>& reductions) const;

  std::string combine(int reduction, const std::string& a, const std::string& b) const;
  std::string identity(int reduction) const;
  /// Declares the reduction's value from its accumulated total.
  void finalise(int reduction, const std::string& total);

  /// Reduces elements [block, block + kReductionBlock) of a run into a<reduction>[0]; `needed` values and, if
  /// `stores`, the full-level stores.
  void block(const std::vector<int>& reductions, const std::vector<bool>& needed, bool stores);
  void block_elements(const std::vector<int>& reductions, const std::vector<bool>& needed, bool stores);
  bool wants_parts(const std::vector<bool>& needed) const;
  void block_in_parts(const std::vector<int>& reductions, const std::vector<bool>& needed, bool stores);
  void buffered_block(const std::vector<int>& reductions, const std::vector<bool>& needed, bool stores);
  void reduction_pass(int pass, const std::vector<int>& reductions);
  void store_pass();
  void row_values(int stage);
  void open_loops(LoopRole role);
  void close_loops(LoopRole role);
  void choose_kept(int pass, const std::vector<bool>& needed);
  std::vector<int> pass_roots(int pass) const;
  std::vector<int> reductions_of(int pass) const;

  const LoopNest& nest_;
  const std::string name_;
  const Dialect& dialect_;
  std::string text_;
  int depth_ = 0;
  int loops_ = 0;  ///< that close_elements() ends
  std::vector<int> reductions_;
  std::vector<int> by_role_[5];
  std::vector<bool> ready_;           ///< values that have a variable in scope
  std::vector<bool> kept_;            ///< values that an earlier pass left in a row buffer
  std::vector<bool> keep_;            ///< values that this pass leaves there
  std::vector<std::string> pointer_;  ///< of each window in the current scope
};

}  // namespace etch::codegen
