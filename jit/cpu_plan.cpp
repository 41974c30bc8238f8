// Replay on the CPU: resolving addresses, running kernels and library calls.
#include "jit/cpu_plan.h"

#include <absl/container/inlined_vector.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>

#include "eager/cpu/piece_sum.h"
#include "jit/graph_facts.h"
#include "runtime/config.h"
#include "runtime/parallel.h"

namespace etch::jit {

/// The numbers of one call.
struct CpuPlan::Frame {
  std::span<const OperandValue> values;
  absl::InlinedVector<char*, 64> bases;

  char* at(const Address& a) const {
    char* data = bases[a.base] + a.offset;
    return a.slot < 0 ? data : data + values[a.slot].offset * a.item;
  }
  const Scalar& at(const ScalarSource& s) const { return s.slot < 0 ? s.scalar : values[s.slot].scalar; }
};

/// The operands of one call, filled in before use: most calls have few of them.
class CpuPlan::Operands {
 public:
  Operands(const Call& call, const Frame& frame)
      : inputs_(call.node->inputs.size()), all_(call.operands.size()) {
    static_assert(std::is_trivially_copyable_v<Operand>);
    Operand* const operands = reinterpret_cast<Operand*>(bytes_);
    std::memcpy(bytes_, call.operands.data(), all_ * sizeof(Operand));
    for (size_t i = 0; i < all_; ++i) {
      const OperandSource& source = call.sources[i];
      if (operands[i].is_tensor())
        operands[i].base = source.address.base < 0 ? nullptr : frame.at(source.address);
      else if (operands[i].present)
        operands[i].scalar = frame.at(source.scalar);
    }
  }
  Operands(const Operands&) = delete;
  Operands& operator=(const Operands&) = delete;

  std::span<const Operand> inputs() const { return all().first(inputs_); }
  std::span<const Operand> outputs() const { return all().subspan(inputs_); }

 private:
  std::span<const Operand> all() const { return {reinterpret_cast<const Operand*>(bytes_), all_}; }

  size_t inputs_, all_;
  alignas(Operand) std::byte bytes_[(kMaxInputs + kMaxOutputs) * sizeof(Operand)];
};

/// All blocks of one call; what is not handed over goes back.
class CpuPlan::Memory {
 public:
  explicit Memory(Device device) : device_(device) {}
  ~Memory() {
    for (void* block : blocks_)
      if (block) deallocate(device_, block);
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  char* add(int64_t bytes, MemoryCategory category) {
    blocks_.push_back(allocate(device_, static_cast<size_t>(bytes), category));
    return static_cast<char*>(blocks_.back());
  }
  void* hand_over(size_t at) { return std::exchange(blocks_[at], nullptr); }

 private:
  Device device_;
  absl::InlinedVector<void*, 16> blocks_;
};

CpuPlan::CpuPlan(CpuProgram program, const LiveSet& live, ExecutableStatistics statistics,
                 std::string final_graph)
    : program_(std::move(program)) {
  live_ = live;
  statistics_ = std::move(statistics);
  final_graph_ = std::move(final_graph);
  const Graph& graph = program_.graph;
  base_of_buffer_.assign(graph.buffers.size(), -1);
  auto add_base = [this](int buffer) {
    if (base_of_buffer_[buffer] >= 0) return;
    base_buffers_.push_back(buffer);
    base_of_buffer_[buffer] = static_cast<int>(base_buffers_.size());
  };
  auto add_externals = [&](const Node& node) {
    for (const auto* operands : {&node.inputs, &node.outputs})
      for (const GraphOperand& operand : *operands)
        if (operand.is_tensor() && graph.buffers[operand.buffer].kind == GraphBuffer::Kind::External)
          add_base(operand.buffer);
  };
  for (const Node& node : graph.nodes) add_externals(node);
  for (const Node& node : program_.checks) add_externals(node);
  first_output_base_ = static_cast<int>(base_buffers_.size()) + 1;
  for (size_t b = 0; b < graph.buffers.size(); ++b)
    if (graph.buffers[b].kind == GraphBuffer::Kind::Output) add_base(static_cast<int>(b));
  last_write_.assign(base_buffers_.size() + 1 - first_output_base_, -1);
  for (size_t i = 0; i < graph.nodes.size(); ++i)
    for (const GraphOperand& output : graph.nodes[i].outputs)
      if (const int base = base_of_buffer_[output.buffer]; base >= first_output_base_)
        last_write_[base - first_output_base_] = static_cast<int>(i);

  reserve();
  for (const Node& check : program_.checks) checks_.push_back(make_call(check, true));
  steps_.resize(graph.nodes.size());
  const std::vector<BufferFacts> facts = buffer_facts(graph);
  const auto add = [](Step& step, Step::Kind kind, auto& all, auto item) {
    step.kind = kind;
    step.index = static_cast<int32_t>(all.size());
    all.push_back(std::move(item));
  };
  for (size_t i = 0; i < steps_.size(); ++i) {
    const Node& node = graph.nodes[i];
    Step& step = steps_[i];
    step.scratch = program_.memory.scratch[i];
    if (program_.tiles[i]) {
      add(step, Step::Kind::Tile, tiles_, make_tile(*program_.tiles[i]));
    } else if (node.op != Op::fused) {
      Call call = make_call(node, false);
      call.checks = checked_operand(node) >= 0 && !checks_early(graph, facts, node);
      std::optional<cpu::SmallPointwise> small;
      if (info(node.op).kind == OpKind::Pointwise && node.op != Op::copy && !call.aliases && !call.checks) {
        const size_t inputs = node.inputs.size();
        small = cpu::SmallPointwise::of(
            {node.op, call.operands.first(inputs), call.operands.subspan(inputs), node.attrs});
      }
      if (small)
        add(step, Step::Kind::SmallCall, small_calls_, SmallCall{*small, call.sources});
      else
        add(step, Step::Kind::Call, calls_, call);
    } else if (const std::optional<PieceSum> sum = as_piece_sum(node)) {
      add(step, Step::Kind::Pieces, pieces_, make_pieces(*sum));
    } else {
      add(step, Step::Kind::Kernel, kernels_, make_kernel(program_.lowered[i], program_.loaded[i]));
    }
  }
}

/// At least what the steps and checks will add.
void CpuPlan::reserve() {
  size_t operands = 0, phases = 0, pointers = 0, dims = 0, scalars = 0;
  for (const auto* nodes : {&program_.graph.nodes, &program_.checks})
    for (const Node& node : *nodes) operands += node.inputs.size() + node.outputs.size();
  for (const codegen::LoweredKernel& kernel : program_.lowered) {
    phases += kernel.phases.size();
    pointers += kernel.pointers.size();
    dims += kernel.dims.size();
    scalars += kernel.scalars.size();
  }
  operands_.reserve(operands);
  sources_.reserve(operands);
  phases_.reserve(phases);
  pointers_.reserve(pointers);
  dims_.reserve(dims);
  scalars_.reserve(scalars);
}

CpuPlan::Kernel CpuPlan::make_kernel(const codegen::LoweredKernel& lowered,
                                     const codegen::LoadedKernel& loaded) {
  const size_t phases = phases_.size(), pointers = pointers_.size(), dims = dims_.size(),
               scalars = scalars_.size();
  for (size_t p = 0; p < lowered.phases.size(); ++p)
    if (lowered.phases[p].count > 0)
      phases_.add({loaded.phases[p], lowered.phases[p].count, lowered.phases[p].grain});
  for (const GraphOperand& window : lowered.pointers) pointers_.add(resolve(window));
  for (int64_t dim : lowered.dims) dims_.add(dim);
  for (const GraphOperand& s : lowered.scalars) scalars_.add({s.slot, s.dtype, s.scalar});
  const Kernel kernel{phases_.since(phases), pointers_.since(pointers), dims_.since(dims),
                      scalars_.since(scalars)};
  for (auto [read, written] : lowered.same_address)
    same_address_.push_back({kernel.pointers[read], kernel.pointers[written]});
  return kernel;
}

CpuPlan::Address CpuPlan::resolve(const GraphOperand& operand) {
  const int64_t item = static_cast<int64_t>(item_size(operand.dtype));
  Address result{0, operand.slot, operand.offset * item, item};
  if (base_of_buffer_[operand.buffer] >= 0) {
    result.base = base_of_buffer_[operand.buffer];
    return result;
  }
  const Place& place = program_.memory.places[operand.buffer];
  if (place.output >= 0)
    result.base = base_of_buffer_[place.output];
  else
    result.offset += place.offset;
  return result;
}

CpuPlan::Pieces CpuPlan::make_pieces(const PieceSum& sum) {
  Pieces result;
  for (const PieceSum::Term& from : sum.terms) {
    Pieces::Term& term = result.terms.emplace_back();
    term.source = resolve(from.source);
    term.length = from.source.geometry.numel();
    if (!from.fill.is_scalar()) continue;
    term.fill = {from.fill.slot, from.fill.dtype, from.fill.scalar};
    term.slot = from.window.slot;
    term.first = from.window.offset;
  }
  result.out = resolve(sum.out);
  result.layout = sum.layout;
  return result;
}

CpuPlan::Tile CpuPlan::make_tile(const TilePlan& plan) {
  Tile result{&plan, {}, {}, {}, {}, {}};
  if (plan.mask) result.mask = resolve(plan.mask->window);
  for (const TilePlan::Window& window : plan.windows) result.windows.push_back(resolve(window.operand));
  for (const TilePlan::Local& local : plan.locals)
    result.locals.push_back(local.memory ? resolve(*local.memory) : Address{});
  for (const TilePlan::Stage& stage : plan.stages) {
    if (!std::holds_alternative<TilePlan::Kernel>(stage)) continue;
    const auto& kernel = std::get<TilePlan::Kernel>(stage);
    for (size_t i = 0; i < kernel.local.size(); ++i)
      result.pointers.push_back(kernel.local[i] < 0 ? resolve(kernel.lowered.pointers[i]) : Address{});
    for (const GraphOperand& s : kernel.lowered.scalars)
      result.scalars.push_back({s.slot, s.dtype, s.scalar});
  }
  return result;
}

CpuPlan::Call CpuPlan::make_call(const Node& node, bool for_check) {
  Call call;
  call.node = &node;
  const size_t first = operands_.size();
  for (const auto* operands : {&node.inputs, &node.outputs})
    for (const GraphOperand& operand : *operands) {
      operands_.add(describe(operand));
      OperandSource source;
      source.scalar = {operand.slot, operand.dtype, operand.scalar};
      // A check reads externals only; its other operands have no bytes yet.
      source.address.base = -1;
      if (operand.is_tensor() && (!for_check || base_of_buffer_[operand.buffer] >= 0))
        source.address = resolve(operand);
      sources_.add(source);
    }
  call.operands = operands_.since(first);
  call.sources = sources_.since(first);
  for (const GraphOperand& output : node.outputs)
    for (const GraphOperand& input : node.inputs)
      if (input.is_tensor() && input.buffer == output.buffer)
        call.aliases = call.aliases || !is_pointwise(node) || !same_window(input, output);
  return call;
}

void CpuPlan::run_small(const SmallCall& call, const Frame& frame) const {
  const cpu::SmallPointwise& small = call.op;
  const std::span<const OperandSource> sources = call.sources;
  const char* in[cpu::kMaxLoopOperands];
  uint64_t numbers[cpu::kMaxLoopOperands];
  const size_t inputs = sources.size() - 1;
  for (size_t k = 0; k < inputs; ++k) {
    if (sources[k].address.base >= 0) {
      in[k] = frame.at(sources[k].address);
    } else {
      cpu::store_scalar(frame.at(sources[k].scalar), small.numbers[k], &numbers[k]);
      in[k] = reinterpret_cast<const char*>(&numbers[k]);
    }
  }
  small.kernel(frame.at(sources[inputs].address), in, small.scalars, small.count);
}

void CpuPlan::run_kernel(const Kernel& kernel, char* scratch, const Frame& frame) const {
  absl::InlinedVector<char*, 64> pointers(kernel.pointers.size() + 1);
  for (size_t i = 0; i < kernel.pointers.size(); ++i) pointers[i] = frame.at(kernel.pointers[i]);
  pointers.back() = scratch;
  absl::InlinedVector<codegen::KernelScalar, 16> scalars(kernel.scalars.size());
  for (size_t i = 0; i < kernel.scalars.size(); ++i)
    scalars[i] = codegen::kernel_scalar(frame.at(kernel.scalars[i]), kernel.scalars[i].dtype);
  for (const Phase& phase : kernel.phases)
    parallel_for(phase.count, phase.grain, [&](int64_t begin, int64_t end) {
      phase.function(pointers.data(), kernel.dims.data(), scalars.data(), begin, end);
    });
}

void CpuPlan::run_tiles(const Tile& tile, char* scratch, const Frame& frame) const {
  TileArguments arguments;
  const auto fill = [&](const std::vector<Address>& from, std::vector<char*>& to) {
    for (const Address& address : from) to.push_back(frame.at(address));
  };
  fill(tile.windows, arguments.windows);
  fill(tile.locals, arguments.locals);
  if (tile.plan->mask) arguments.mask = frame.at(tile.mask);
  fill(tile.pointers, arguments.pointers);
  for (const ScalarSource& scalar : tile.scalars)
    arguments.scalars.push_back(codegen::kernel_scalar(frame.at(scalar), scalar.dtype));
  run_tile(*tile.plan, arguments, reinterpret_cast<float*>(scratch));
}

void CpuPlan::run_pieces(const Pieces& pieces, const Frame& frame) const {
  absl::InlinedVector<cpu::PieceTerm, 8> terms;
  for (const Pieces::Term& term : pieces.terms)
    terms.push_back({reinterpret_cast<const float*>(frame.at(term.source)),
                     term.first + (term.slot < 0 ? 0 : frame.values[term.slot].offset), term.length,
                     codegen::kernel_scalar(frame.at(term.fill), DType::F32).f32});
  cpu::sum_of_pieces(terms, reinterpret_cast<float*>(frame.at(pieces.out)), pieces.layout);
}

void CpuPlan::run_call(const Call& call, char* scratch, const Frame& frame) const {
  const Operands operands(call, frame);
  const OpCall op{call.node->op, operands.inputs(), operands.outputs(), call.node->attrs};
  if (call.aliases) return execute(op);
  if (call.checks) check_data(op);
  if (!executor(DeviceType::Cpu).run(op, scratch)) execute(op);
}

void CpuPlan::run_step(const Step& step, const Frame& frame) const {
  char* const scratch = step.scratch >= 0 ? frame.bases[0] + step.scratch : nullptr;
  switch (step.kind) {
    case Step::Kind::Kernel:
      return run_kernel(kernels_[step.index], scratch, frame);
    case Step::Kind::Tile:
      return run_tiles(tiles_[step.index], scratch, frame);
    case Step::Kind::Call:
      return run_call(calls_[step.index], scratch, frame);
    case Step::Kind::SmallCall:
      return run_small(small_calls_[step.index], frame);
    case Step::Kind::Pieces:
      return run_pieces(pieces_[step.index], frame);
  }
}

// Where windows without elements lie when there is no arena.
alignas(64) static char kNothing[64];

bool CpuPlan::run(const Segment& segment) const {
  if (num_threads() != program_.threads) return false;
  const HeldThreads held(program_.threads);
  const Graph& graph = program_.graph;
  Frame frame;
  frame.values = segment.values;
  frame.bases.resize(base_buffers_.size() + 1);
  for (int base = 1; base < first_output_base_; ++base) {
    const GraphBuffer& buffer = graph.buffers[base_buffers_[base - 1]];
    const Storage* storage = segment.storages[buffer.number];
    if (static_cast<int64_t>(storage->bytes()) != buffer.bytes) return false;
    frame.bases[base] = static_cast<char*>(storage->raw_data());
  }
  for (const Call& check : checks_) {
    const Operands operands(check, frame);
    try {
      check_data({check.node->op, operands.inputs(), operands.outputs(), check.node->attrs});
    } catch (const Error&) {
      return false;
    }
  }

  Memory memory(graph.device);
  const bool arena = program_.memory.arena_bytes > 0;
  frame.bases[0] = arena ? memory.add(program_.memory.arena_bytes, MemoryCategory::Arena) : kNothing;
  const size_t first_block = arena;
  for (size_t base = first_output_base_; base < frame.bases.size(); ++base) {
    const GraphBuffer& buffer = graph.buffers[base_buffers_[base - 1]];
    const bool lives = segment.live[buffer.number];
    // Whole granules: an internal of the same rounded size may use the block before the output does.
    const int64_t bytes = (buffer.bytes + kPlanAlignment - 1) / kPlanAlignment * kPlanAlignment;
    frame.bases[base] =
        memory.add(bytes, lives ? segment.storages[buffer.number]->category() : MemoryCategory::Temporary);
  }
  for (const AddressPair& pair : same_address_)
    if (frame.at(pair.a) != frame.at(pair.b)) return false;

  const bool poison = config().poison;
  Timing* const times = log_enabled(3) ? timings() : nullptr;
  if (poison && arena) std::memset(frame.bases[0], 0xFF, program_.memory.arena_bytes);
  // An error of a step leaves what was complete before it.
  const auto hand_over_written_before = [&](size_t step) {
    for (size_t base = first_output_base_; base < frame.bases.size(); ++base) {
      const GraphBuffer& buffer = graph.buffers[base_buffers_[base - 1]];
      if (!segment.live[buffer.number] || last_write_[base - first_output_base_] >= static_cast<int>(step))
        continue;
      Storage& storage = *segment.storages[buffer.number];
      storage.adopt(memory.hand_over(first_block + base - first_output_base_), storage.category());
    }
  };
  size_t i = 0;
  try {
    for (; i < steps_.size(); ++i) {
      if (times) {
        const auto start = std::chrono::steady_clock::now();
        run_step(steps_[i], frame);
        times[i].add(std::chrono::nanoseconds(std::chrono::steady_clock::now() - start).count());
      } else {
        run_step(steps_[i], frame);
      }
      if (poison)
        for (const DeadRange& range : program_.memory.dead[i])
          std::memset(frame.bases[0] + range.offset, 0xFF, range.bytes);
    }
  } catch (const Error&) {
    hand_over_written_before(i);
    throw;
  }

  hand_over_written_before(steps_.size());
  return true;
}

void CpuPlan::Timing::add(int64_t time) {
  const int64_t run = runs.fetch_add(1, std::memory_order_relaxed);
  nanoseconds.fetch_add(time, std::memory_order_relaxed);
  latest[run % std::size(latest)].store(time, std::memory_order_relaxed);
}

double CpuPlan::Timing::median() const {
  const auto count = std::min<int64_t>(std::size(latest), runs.load(std::memory_order_relaxed));
  if (count == 0) return 0;
  std::vector<int64_t> times(latest, latest + count);
  std::nth_element(times.begin(), times.begin() + count / 2, times.end());
  return static_cast<double>(times[count / 2]) * 1e-6;
}

CpuPlan::Timing* CpuPlan::timings() const {
  std::call_once(timed_once_, [this] {
    timings_ = std::make_unique<Timing[]>(steps_.size());
    timed_.store(timings_.get(), std::memory_order_release);
  });
  return timings_.get();
}

std::vector<StepTime> CpuPlan::step_times() const {
  const Timing* const timings = timed_.load(std::memory_order_acquire);
  std::map<std::string, StepTime> kinds;
  for (size_t i = 0; i < steps_.size(); ++i) {
    StepTime& time = kinds[std::string(name(program_.graph.nodes[i].op))];
    if (!timings) continue;
    time.runs += timings[i].runs.load(std::memory_order_relaxed);
    time.ms += static_cast<double>(timings[i].nanoseconds.load(std::memory_order_relaxed)) * 1e-6;
    time.call_ms += timings[i].median();
  }
  std::vector<StepTime> result;
  for (auto& [kind, time] : kinds) {
    time.kind = kind;
    result.push_back(time);
  }
  std::sort(result.begin(), result.end(), [](const StepTime& a, const StepTime& b) { return a.ms > b.ms; });
  return result;
}

std::vector<double> CpuPlan::kernel_ms() const {
  const Timing* const timings = timed_.load(std::memory_order_acquire);
  std::vector<double> result;
  for (size_t i = 0; i < steps_.size(); ++i)
    if (steps_[i].kind == Step::Kind::Kernel || steps_[i].kind == Step::Kind::Tile)
      result.push_back(timings ? timings[i].median() : 0);
  return result;
}

}  // namespace etch::jit
