// execute(): overlaps, composites without a kernel, checks of data. The kernels are the interpreter.
#include "tracer/execute.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "runtime/error.h"
#include "tests/tracer/interpreting.h"
#include "tracer/attrs.h"

namespace etch {
namespace {

std::vector<Op> ran;

GraphOperand operand_in(const Operand& from, int buffer) {
  GraphOperand operand;
  operand.dtype = from.dtype;
  operand.scalar = from.scalar;
  if (from.is_scalar()) {
    operand.kind = GraphOperand::Kind::Scalar;
    operand.dtype = from.scalar.kind() == Scalar::Kind::Float ? DType::F64 : DType::I64;
  }
  if (from.is_tensor()) {
    operand.kind = GraphOperand::Kind::Tensor;
    operand.buffer = buffer;
    operand.geometry = *from.geometry;
  }
  return operand;
}

/// Interprets the call on copies of its windows' extents, then copies the outputs back.
bool run_by_interpreter(const OpCall& call, void*) {
  if (info(call.op).kind == OpKind::Composite) return false;
  ran.push_back(call.op);
  Graph graph;
  Node node{call.op, call.attrs, {}, {}, nullptr};
  std::vector<std::vector<std::byte>> bytes;
  const auto add = [&](const Operand& from) {
    std::vector<std::byte> copy;
    if (from.is_tensor()) {
      const auto* data = reinterpret_cast<const std::byte*>(from.data());
      copy.assign(data, data + extent(*from.geometry) * item_size(from.dtype));
    }
    bytes.push_back(copy);
    return operand_in(from, graph.add_buffer(GraphBuffer::Kind::External, static_cast<int64_t>(copy.size())));
  };
  for (const Operand& input : call.inputs) node.inputs.push_back(add(input));
  for (const Operand& output : call.outputs) node.outputs.push_back(add(output));
  graph.nodes.push_back(node);
  const auto results = interpret(graph, bytes);
  for (size_t i = 0; i < call.outputs.size(); ++i) {
    const auto& result = results[call.inputs.size() + i].bytes;
    std::memcpy(call.outputs[i].data(), result.data(), result.size());
  }
  return true;
}

class Execute : public testing::Test {
 protected:
  void SetUp() override {
    before_ = {};
    try {
      before_ = executor(DeviceType::Cpu);
    } catch (const DeviceError&) {
    }
    register_executor(DeviceType::Cpu, {run_by_interpreter, nullptr});
    ran.clear();
  }
  void TearDown() override { register_executor(DeviceType::Cpu, before_); }

  Executor before_;
};

template <class T>
Operand window(std::vector<T>& data, const Geometry& geometry, int64_t offset = 0) {
  Operand operand;
  operand.base = reinterpret_cast<char*>(data.data());
  operand.dtype = dtype_of<T>;
  operand.geometry = &geometry;
  operand.offset = offset;
  return operand;
}
Operand scalar(Scalar value) {
  Operand operand;
  operand.scalar = value;
  return operand;
}

void run(Op op, const std::vector<Operand>& inputs, const std::vector<Operand>& outputs,
         const Attrs& attrs = {}) {
  execute({op, inputs, outputs, attrs});
}

TEST_F(Execute, IdenticalWindowsNeedNoCopy) {
  Doubles x{1, 2, 3};
  const Geometry all = contiguous({3});
  run(Op::add, {window(x, all), scalar(1.0)}, {window(x, all)});
  EXPECT_EQ(x, (Doubles{2, 3, 4}));
  EXPECT_EQ(ran, std::vector<Op>{Op::add});
}

TEST_F(Execute, PartlyOverlappingOperandsAreCopied) {
  Doubles x{1, 2, 3, 4};
  const Geometry part = contiguous({3});
  run(Op::add, {window(x, part, 1), window(x, part)}, {window(x, part, 1)});
  EXPECT_EQ(x, (Doubles{1, 3, 5, 7}));
  EXPECT_EQ(ran, (std::vector<Op>{Op::copy, Op::add}));
}

TEST_F(Execute, TransposedAndReducedOperandsAreCopied) {
  Doubles x{1, 2, 3, 4};
  const Geometry rows = contiguous({2, 2}), columns{{2, 2}, {1, 2}}, column{{2}, {1}};
  run(Op::neg, {window(x, columns)}, {window(x, rows)});
  EXPECT_EQ(x, (Doubles{-1, -3, -2, -4}));
  run(Op::sum, {window(x, rows)}, {window(x, column)}, ReductionAttrs(0b10, false).pack());
  EXPECT_EQ(x, (Doubles{-4, -6, -2, -4}));
  EXPECT_EQ(ran, (std::vector<Op>{Op::copy, Op::neg, Op::copy, Op::sum}));
}

TEST_F(Execute, CompositesRunAsTheirExpansion) {
  Doubles x{0, std::log(3.0)}, y(2);
  const Geometry all = contiguous({2});
  run(Op::softmax, {window(x, all)}, {window(y, all)}, AxisAttrs(0).pack());
  EXPECT_NEAR(y[0], 0.25, 1e-15);
  EXPECT_NEAR(y[1], 0.75, 1e-15);
  EXPECT_EQ(ran, (std::vector<Op>{Op::amax, Op::sub, Op::exp, Op::sum, Op::div}));
}

TEST_F(Execute, OptimisersWriteInPlace) {
  Doubles p{1}, g{2};
  const Geometry all = contiguous({1});
  run(Op::sgd_plain_step, {window(p, all), window(g, all), scalar(0.5), scalar(0.0)}, {window(p, all)});
  EXPECT_EQ(p, Doubles{0});
}

TEST_F(Execute, StoragesGiveTheBytes) {
  const Ref<Storage> storage = Storage::allocate(Device::cpu(), 16);
  const Geometry all = contiguous({2});
  Operand operand;
  operand.storage = storage.get();
  operand.geometry = &all;
  operand.dtype = DType::F64;
  run(Op::copy, {scalar(7.0)}, {operand}, pack_sizes({2}));
  EXPECT_EQ(static_cast<double*>(storage->raw_data())[1], 7.0);
  const Ref<Storage> deferred = Storage::deferred(Device::cpu(), 16);
  operand.storage = deferred.get();
  EXPECT_THROW(run(Op::copy, {scalar(7.0)}, {operand}, pack_sizes({2})), InternalError);
  deferred->mark_failed(std::make_exception_ptr(ValueError("what went wrong")));
  EXPECT_THROW(run(Op::copy, {operand}, {operand}), ValueError);
}

template <class E>
void expect_refused(Op op, const std::vector<Operand>& inputs, const std::vector<Operand>& outputs,
                    const Attrs& attrs, std::string_view text) {
  try {
    run(op, inputs, outputs, attrs);
    FAIL();
  } catch (const E& error) {
    EXPECT_EQ(std::string_view(error.what()), text);
  }
  EXPECT_TRUE(ran.empty());
}

TEST_F(Execute, ChecksDataBeforeAnythingRuns) {
  Doubles x{1, 2, 3, 4}, y(4);
  std::vector<int64_t> index{1, -1, 0, 5};
  const Geometry four = contiguous({4}), two = contiguous({2}), matrix = contiguous({2, 2}), column{{2}, {2}};
  expect_refused<IndexError>(Op::index_select, {window(x, four), window(index, four)}, {window(y, four)},
                             AxisAttrs(0).pack(),
                             "index_select: expected indices in [0, 4), got -1 at position 1");
  expect_refused<IndexError>(
      Op::cross_entropy, {window(x, matrix), window(index, two, 2)}, {window(y, two), window(y, two, 2)},
      CrossEntropyAttrs(-100).pack(),
      "cross_entropy: expected labels in [0, 2) or -100 (ignored), got 5 at position 1");
  expect_refused<ValueError>(Op::remainder, {window(index, column), window(index, column)},
                             {window(index, column, 1)}, {},
                             "remainder: expected non-zero integer divisors, got 0 at position 1");
  expect_refused<ValueError>(Op::floor_divide, {window(index, four), scalar(0)}, {window(index, four)}, {},
                             "floor_divide: expected non-zero integer divisors, got 0 at position 0");
}

TEST_F(Execute, NoKernelsIsAnError) {
  register_executor(DeviceType::Cpu, {});
  Doubles x{1};
  const Geometry all = contiguous({1});
  EXPECT_THROW(run(Op::neg, {window(x, all)}, {window(x, all)}), DeviceError);
}

}  // namespace
}  // namespace etch
