// Running a stream of ops: compiled, or one by one.
#include "tracer/stream.h"

#include <algorithm>
#include <new>
#include <type_traits>

#include "tracer/execute.h"

namespace etch {

LiveSet Stream::live() const {
  LiveSet set(storages.size());
  for (size_t i = 0; i < storages.size(); ++i) set[i] = !external[i] && storages[i]->use_count() > 1;
  return set;
}

void Stream::fail_incomplete(std::span<const RecordedOp* const> ops, const LiveSet& live, size_t next_op,
                             std::exception_ptr error) const {
  std::vector<bool> incomplete(storages.size());
  for (size_t i = next_op; i < ops.size(); ++i)
    for (const RecordedOperand& output : ops[i]->outputs) incomplete[output.number] = true;
  for (size_t i = 0; i < storages.size(); ++i)
    if (live[i] && (incomplete[i] || !storages[i]->has_bytes())) storages[i]->mark_failed(error);
}

namespace {
// Those of one op; setting all to nothing at each would cost more than most ops need.
union Operands {
  static_assert(std::is_trivially_destructible_v<Operand>);
  Operands() {}
  Operand items[kMaxInputs + kMaxOutputs];
};
}  // namespace

void Stream::run_one_by_one(std::span<const RecordedOp* const> ops, const LiveSet& live) {
  const size_t count = ops.size();
  // Dead ops are skipped; a value goes after its last use.
  std::vector<bool> needed(live), op_needed(count);
  std::vector<size_t> last_use(storages.size(), 0);
  for (size_t i = count; i-- > 0;) {
    const RecordedOp& op = *ops[i];
    bool wanted = false;
    for (const RecordedOperand& output : op.outputs)
      wanted |= external[output.number] || needed[output.number];
    op_needed[i] = wanted;
    if (!wanted) continue;
    const auto visit = [&](const RecordedOperand& operand) {
      if (operand.kind != RecordedOperand::Kind::Tensor) return;
      needed[operand.number] = true;
      last_use[operand.number] = std::max(last_use[operand.number], i);
    };
    for (const RecordedOperand& input : op.inputs) visit(input);
    for (const RecordedOperand& output : op.outputs) visit(output);
  }
  const OperandValue* next_value = values.data();
  for (size_t i = 0; i < count; ++i) {
    const RecordedOp& op = *ops[i];
    const OperandValue* value = next_value;
    next_value += op.inputs.size() + op.outputs.size();
    if (!op_needed[i]) continue;
    Operands operands;
    Operand* const inputs = operands.items;
    Operand* const outputs = operands.items + op.inputs.size();
    const auto set = [&](Operand* at, const RecordedOperand& from) {
      Operand& to = *new (at) Operand;
      to.dtype = from.dtype;
      to.present = from.kind != RecordedOperand::Kind::Absent;
      to.offset = value->offset;
      to.scalar = value->scalar;
      if (from.kind == RecordedOperand::Kind::Tensor) {
        to.storage = storages[from.number].get();
        to.geometry = &from.geometry;
      }
      ++value;
    };
    for (size_t k = 0; k < op.inputs.size(); ++k) set(inputs + k, op.inputs[k]);
    for (size_t k = 0; k < op.outputs.size(); ++k) set(outputs + k, op.outputs[k]);
    try {
      for (size_t k = 0; k < op.outputs.size(); ++k)
        if (!outputs[k].storage->has_bytes()) outputs[k].storage->materialise();
      execute({op.op, {inputs, op.inputs.size()}, {outputs, op.outputs.size()}, op.attrs});
    } catch (...) {
      fail_incomplete(ops, live, i, std::current_exception());
      throw;
    }
    const auto release = [&](const RecordedOperand& operand_of_op) {
      if (operand_of_op.kind != RecordedOperand::Kind::Tensor) return;
      const int number = operand_of_op.number;
      if (!external[number] && !live[number] && last_use[number] == i) storages[number] = nullptr;
    };
    for (const RecordedOperand& input : op.inputs) release(input);
    for (const RecordedOperand& output : op.outputs) release(output);
  }
}

bool Stream::run(const Executable& executable, const Path& path, const LiveSet& live) const {
  std::vector<Storage*> pointers(storages.size());
  for (size_t i = 0; i < storages.size(); ++i) pointers[i] = storages[i].get();
  try {
    return executable.run({path, values, pointers, live});
  } catch (...) {
    // What it completed has bytes.
    fail_incomplete(path.ops, live, path.ops.size(), std::current_exception());
    throw;
  }
}

}  // namespace etch
