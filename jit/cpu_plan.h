// A compiled path on the CPU: a flat list of steps over one arena.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "codegen/kernel.h"
#include "eager/cpu/small_pointwise.h"
#include "jit/executable.h"
#include "jit/memory_plan.h"
#include "jit/piece_sum.h"
#include "jit/tile_plan.h"
#include "runtime/parallel.h"
#include "tracer/execute.h"

namespace etch::jit {

/// A graph after the passes with all that its replay needs.
struct CpuProgram {
  int threads = num_threads();  ///< that scratch memory is planned for; other numbers may need more
  Graph graph;
  /// For each node: what its fused group was lowered to, or how its tiles run; unused for other nodes.
  std::vector<codegen::LoweredKernel> lowered;
  std::vector<codegen::LoadedKernel> loaded;
  std::vector<std::optional<TilePlan>> tiles;
  MemoryPlan memory;
  std::vector<int64_t> scratch_bytes;  ///< by node
  std::vector<Node> checks;            ///< made before the first write; buffers are the graph's
};

/// A generated kernel of a program, of a fused node or inside a tiled one.
struct ProgramKernel {
  size_t node;
  codegen::LoweredKernel* lowered;
  codegen::LoadedKernel* loaded;
};
std::vector<ProgramKernel> kernels_of(CpuProgram& program);

/// Lowers the groups and plans memory; kernels are not loaded yet.
CpuProgram lower_to_cpu(Graph graph);
/// Builds and loads the kernels. Groups that none could be had for become their bodies again, with a new
/// plan.
void load_kernels(CpuProgram& program, ExecutableStatistics& statistics);

/// In-place reuse on the CPU: see cpu_program.cpp for when a step may overwrite an operand.
class CpuShareRule : public ShareRule {
 public:
  explicit CpuShareRule(const Graph& graph) : graph_(graph) {}
  bool may_share(int node, const GraphOperand& input, const GraphOperand& output) const override;

 private:
  const Graph& graph_;
};

/// What many steps keep, side by side in their order, so that a replay walks through few pages of memory.
/// Cold ones cost a step more than its arithmetic may.
template <class T>
class Packed {
 public:
  /// For all that will be added; what since() gave stays valid then.
  void reserve(size_t count) { all_.reserve(count); }
  void add(T value) {
    ETCH_INVARIANT(all_.size() < all_.capacity());
    all_.push_back(std::move(value));
  }
  size_t size() const { return all_.size(); }
  std::span<const T> since(size_t first) const { return std::span<const T>(all_).subspan(first); }

 private:
  std::vector<T> all_;
};

class CpuPlan final : public PlanExecutable {
 public:
  CpuPlan(CpuProgram program, const LiveSet& live, ExecutableStatistics statistics, std::string final_graph);
  bool run(const Segment& segment) const override;
  std::vector<StepTime> step_times() const override;
  std::vector<double> kernel_ms() const override;

 private:
  /// bases[base] + offset + the slot's offset in items.
  struct Address {
    int32_t base = 0;
    int32_t slot = -1;
    int64_t offset = 0;
    int64_t item = 0;
  };
  struct ScalarSource {
    int32_t slot = -1;
    DType dtype = DType::F32;
    Scalar scalar;
  };
  struct OperandSource {
    Address address;
    ScalarSource scalar;
  };
  /// A library or eager kernel. Templates hold everything but the numbers of a call.
  struct Call {
    const Node* node = nullptr;
    std::span<const Operand> operands;  ///< inputs, then outputs
    std::span<const OperandSource> sources;
    bool aliases = false;  ///< a written buffer is also read: tracer's execute() compares the ranges
    bool checks = false;   ///< its data can only be checked now
  };
  struct Pieces {
    struct Term {
      Address source;
      ScalarSource fill;
      int32_t slot = -1;  ///< of the run's place
      int64_t first = 0, length = 0;
    };
    std::vector<Term> terms;
    Address out;
    Geometry layout;
  };
  struct Phase {
    codegen::HostFunction function = nullptr;
    int64_t count = 0, grain = 1;
  };
  struct Kernel {
    std::span<const Phase> phases;  ///< with iterations
    std::span<const Address> pointers;
    std::span<const int64_t> dims;
    std::span<const ScalarSource> scalars;
  };
  struct SmallCall {
    cpu::SmallPointwise op;
    std::span<const OperandSource> sources;
  };
  struct Tile {
    const TilePlan* plan;
    std::vector<Address> windows, locals, pointers;
    std::vector<ScalarSource> scalars;
    Address mask;
  };
  struct Step {
    enum class Kind : uint8_t { Kernel, Tile, Call, SmallCall, Pieces };
    Kind kind = Kind::Call;
    int32_t index = 0;  ///< among the kind's
    int64_t scratch = -1;
  };
  struct AddressPair {
    Address a, b;
  };
  struct Frame;
  class Operands;
  class Memory;

  Address resolve(const GraphOperand& operand);
  void reserve();
  Kernel make_kernel(const codegen::LoweredKernel& lowered, const codegen::LoadedKernel& loaded);
  Pieces make_pieces(const PieceSum& sum);
  Tile make_tile(const TilePlan& plan);
  Call make_call(const Node& node, bool for_check);
  void run_step(const Step& step, const Frame& frame) const;
  void run_pieces(const Pieces& pieces, const Frame& frame) const;
  void run_small(const SmallCall& call, const Frame& frame) const;
  void run_kernel(const Kernel& kernel, char* scratch, const Frame& frame) const;
  void run_tiles(const Tile& tile, char* scratch, const Frame& frame) const;
  void run_call(const Call& call, char* scratch, const Frame& frame) const;

  CpuProgram program_;
  std::vector<Step> steps_;
  std::vector<Kernel> kernels_;
  std::vector<Tile> tiles_;
  std::vector<Call> calls_;
  std::vector<SmallCall> small_calls_;
  std::vector<Pieces> pieces_;
  std::vector<Call> checks_;
  Packed<Operand> operands_;
  Packed<OperandSource> sources_;
  Packed<Phase> phases_;
  Packed<Address> pointers_;
  Packed<int64_t> dims_;
  Packed<ScalarSource> scalars_;
  std::vector<AddressPair> same_address_;
  std::vector<int> base_buffers_;    ///< the buffer behind bases 1, 2, ..; base 0 is the arena
  std::vector<int> base_of_buffer_;  ///< -1: none yet
  int first_output_base_ = 0;
  std::vector<int> last_write_;  ///< by output: the last step that writes it
  struct Timing {
    std::atomic<int64_t> runs{0}, nanoseconds{0};
    std::atomic<int64_t> latest[31] = {};  ///< nanoseconds, the oldest overwritten

    void add(int64_t time);
    /// Milliseconds; 0 without runs. Outliers, such as a first run that touches fresh memory, do not count.
    double median() const;
  };
  Timing* timings() const;  ///< of each step, made at the first timed call

  mutable std::once_flag timed_once_;
  mutable std::unique_ptr<Timing[]> timings_;
  mutable std::atomic<Timing*> timed_{nullptr};
};

}  // namespace etch::jit
