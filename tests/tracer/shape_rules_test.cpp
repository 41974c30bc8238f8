// infer() and operand_dtype(): literal results and error texts.
#include <gtest/gtest.h>

#include <initializer_list>
#include <string>
#include <vector>

#include "runtime/error.h"
#include "tracer/attrs.h"
#include "tracer/op.h"

namespace etch {
namespace {

struct Arg {
  Geometry geometry;
  DType dtype = DType::F32;
  Scalar scalar;
  enum Kind { Tensor, Number, None } kind = Tensor;

  Arg(Dims sizes, DType type = DType::F32) : geometry(contiguous(sizes)), dtype(type) {}
  Arg(Geometry window, DType type = DType::F32) : geometry(window), dtype(type) {}
  Arg(Scalar value) : scalar(value), kind(Number) {}
  static Arg none() {
    Arg arg{Scalar(0)};
    arg.kind = None;
    return arg;
  }
};

std::vector<Operand> operands(const std::vector<Arg>& args) {
  std::vector<Operand> result;
  for (const Arg& arg : args) {
    Operand operand;
    if (arg.kind == Arg::Tensor) operand.geometry = &arg.geometry;
    operand.dtype = arg.dtype;
    operand.present = arg.kind != Arg::None;
    operand.scalar = arg.scalar;
    result.push_back(operand);
  }
  return result;
}

std::vector<OutputSpec> run(Op op, const std::vector<Arg>& args, const Attrs& attrs = {},
                            DType given = DType::F32) {
  std::vector<OutputSpec> outputs(kMaxOutputs);
  outputs.resize(infer(op, operands(args), attrs, given, outputs.data()));
  return outputs;
}

std::string show(const OutputSpec& spec) {
  return std::string(name(spec.dtype)) + to_string(spec.geometry.sizes) + to_string(spec.geometry.strides);
}

template <class E>
void expect_error(Op op, const std::vector<Arg>& args, const Attrs& attrs, std::string_view text) {
  try {
    run(op, args, attrs);
    FAIL() << name(op) << " took it";
  } catch (const E& error) {
    EXPECT_EQ(std::string(error.what()), text);
  }
}

Geometry nhwc(Dims sizes) { return {sizes, channels_last_strides(sizes)}; }

TEST(PointwiseShapes, Broadcast) {
  EXPECT_EQ(show(run(Op::add, {Dims{2, 1, 3}, Dims{4, 1}})[0]), "f32[2, 4, 3][12, 3, 1]");
  EXPECT_EQ(show(run(Op::exp, {Scalar(1.5)})[0]), "f32[][]");
  EXPECT_EQ(show(run(Op::mul, {Dims{0, 3}, Dims{1}})[0]), "f32[0, 3][3, 1]");
  expect_error<ShapeError>(Op::add, {Dims{2, 3}, Dims{4}}, {},
                           "add: expected shapes that broadcast, got [2, 3] and [4]");
}

TEST(PointwiseShapes, LayoutIsThatOfTheFirstFullSizeOperand) {
  EXPECT_EQ(show(run(Op::add, {Dims{3, 1, 1}, nhwc({2, 3, 4, 5})})[0]), "f32[2, 3, 4, 5][60, 1, 15, 3]");
  EXPECT_EQ(show(run(Op::add, {Dims{2, 3, 4, 5}, nhwc({2, 3, 4, 5})})[0]), "f32[2, 3, 4, 5][60, 20, 5, 1]");
  EXPECT_EQ(show(run(Op::neg, {Geometry{{2, 3}, {2, 8}}})[0]), "f32[2, 3][1, 2]");
  EXPECT_EQ(show(run(Op::neg, {Geometry{{2, 3}, {0, 1}}})[0]), "f32[2, 3][3, 1]");
  EXPECT_EQ(show(run(Op::add, {Geometry{{2, 3}, {0, 1}}, Geometry{{2, 3}, {1, 2}}})[0]), "f32[2, 3][1, 2]");
}

TEST(PointwiseDTypes, FollowTheRow) {
  EXPECT_EQ(run(Op::div, {Arg(Dims{2}), Scalar(2)})[0].dtype, DType::F32);
  EXPECT_EQ(run(Op::lt, {Arg(Dims{2}, DType::I64), Scalar(2)})[0].dtype, DType::Bool);
  EXPECT_EQ(run(Op::copy, {Arg(Dims{2}, DType::I64)}, {}, DType::BF16)[0].dtype, DType::BF16);
  EXPECT_EQ(run(Op::where, {Arg(Dims{2}, DType::Bool), Arg(Dims{2}, DType::F64), Scalar(0)})[0].dtype,
            DType::F64);
  EXPECT_EQ(show(run(Op::copy, {Scalar(7)}, pack_sizes({2, 3}), DType::I32)[0]), "i32[2, 3][3, 1]");
  expect_error<DTypeError>(Op::sub, {Arg(Dims{2}, DType::Bool), Arg(Dims{2}, DType::Bool)}, {},
                           "sub: expected a numeric dtype, got bool");
  expect_error<DTypeError>(Op::add, {Arg(Dims{2}, DType::I32), Arg(Dims{2}, DType::F32)}, {},
                           "add: expected operands of dtype f32, got i32");
  expect_error<DTypeError>(Op::where, {Arg(Dims{2}, DType::I32), Scalar(1.0), Scalar(2.0)}, {},
                           "where: expected condition of dtype bool, got i32");
}

DType computed(Op op, const std::vector<Arg>& args) { return operand_dtype(op, operands(args)); }

TEST(OperandDType, PromotesAsPyTorchDoes) {
  EXPECT_EQ(computed(Op::add, {Arg(Dims{2}, DType::I32), Arg(Dims{2}, DType::F16)}), DType::F16);
  EXPECT_EQ(computed(Op::add, {Arg(Dims{2}, DType::I32), Scalar(1.5)}), DType::F32);
  EXPECT_EQ(computed(Op::add, {Arg(Dims{2}, DType::F16), Scalar(1.5)}), DType::F16);
  EXPECT_EQ(computed(Op::add, {Arg(Dims{2}, DType::Bool), Scalar(1)}), DType::I64);
  EXPECT_EQ(computed(Op::add, {Arg(Dims{2}, DType::U8), Scalar(1000)}), DType::U8);
  EXPECT_EQ(computed(Op::div, {Arg(Dims{2}, DType::I64), Arg(Dims{2}, DType::I64)}), DType::F32);
  EXPECT_EQ(computed(Op::add, {Scalar(1), Scalar(2)}), DType::I64);
}

TEST(OperandDType, ZeroDimensionalTensorsAreWeakWithinTheirKind) {
  EXPECT_EQ(computed(Op::add, {Arg(Dims{2}, DType::F32), Arg(Dims{}, DType::F64)}), DType::F32);
  EXPECT_EQ(computed(Op::add, {Arg(Dims{2}, DType::I32), Arg(Dims{}, DType::F64)}), DType::F64);
  EXPECT_EQ(computed(Op::add, {Arg(Dims{}, DType::F64), Arg(Dims{}, DType::F32)}), DType::F64);
}

TEST(GeneratorShapes, ComeFromAttributesOrTheOperand) {
  EXPECT_EQ(show(run(Op::arange, {Scalar(0), Scalar(1)}, pack_sizes({5}), DType::I64)[0]), "i64[5][1]");
  EXPECT_EQ(show(run(Op::normal, {Scalar(1), Scalar(2)}, pack_sizes({2, 3}))[0]), "f32[2, 3][3, 1]");
  EXPECT_EQ(show(run(Op::dropout, {nhwc({1, 2, 2, 2}), Scalar(1), Scalar(2), Scalar(0.5)})[0]),
            "f32[1, 2, 2, 2][8, 1, 4, 2]");
  EXPECT_THROW(run(Op::uniform, {Scalar(1), Scalar(2)}, pack_sizes({2}), DType::I64), DTypeError);
}

TEST(ReductionShapes, KeepMemoryOrder) {
  EXPECT_EQ(show(run(Op::sum, {Dims{2, 3, 4}}, ReductionAttrs(0b010, false).pack())[0]), "f32[2, 4][4, 1]");
  EXPECT_EQ(show(run(Op::sum, {Dims{2, 3, 4}}, ReductionAttrs(0b111, true).pack())[0]),
            "f32[1, 1, 1][1, 1, 1]");
  EXPECT_EQ(show(run(Op::sum, {nhwc({2, 3, 4, 5})}, ReductionAttrs(0b0001, false).pack())[0]),
            "f32[3, 4, 5][1, 15, 3]");
  EXPECT_EQ(show(run(Op::sum, {Dims{}}, ReductionAttrs(0, false).pack())[0]), "f32[][]");
}

TEST(ReductionShapes, DTypesFollowTheRow) {
  const Attrs all = ReductionAttrs(1, false).pack();
  EXPECT_EQ(run(Op::sum, {Arg(Dims{2}, DType::Bool)}, all)[0].dtype, DType::I64);
  EXPECT_EQ(run(Op::sum, {Arg(Dims{2}, DType::BF16)}, all)[0].dtype, DType::BF16);
  EXPECT_EQ(run(Op::amax, {Arg(Dims{2}, DType::I32)}, all)[0].dtype, DType::I32);
  EXPECT_EQ(run(Op::any, {Arg(Dims{2}, DType::I32)}, all)[0].dtype, DType::Bool);
  EXPECT_EQ(run(Op::argmax, {Arg(Dims{2}, DType::F64)}, all)[0].dtype, DType::I64);
}

TEST(ReductionShapes, RefuseWhatHasNoAnswer) {
  EXPECT_EQ(show(run(Op::amax, {Dims{0, 3}}, ReductionAttrs(0b10, false).pack())[0]), "f32[0][1]");
  expect_error<ShapeError>(Op::amax, {Dims{0, 3}}, ReductionAttrs(0b01, false).pack(),
                           "amax: expected at least one element along the reduced axes, got [0, 3]");
  expect_error<ShapeError>(Op::argmax, {Dims{2, 3, 4}}, ReductionAttrs(0b011, false).pack(),
                           "argmax: expected one axis or all of them, got several of [2, 3, 4]");
}

TEST(MatmulShapes, BatchesBroadcast) {
  EXPECT_EQ(show(run(Op::matmul, {Dims{2, 3}, Dims{3, 5}})[0]), "f32[2, 5][5, 1]");
  EXPECT_EQ(show(run(Op::matmul, {Dims{4, 1, 2, 3}, Dims{6, 3, 5}})[0]), "f32[4, 6, 2, 5][60, 10, 5, 1]");
  EXPECT_EQ(show(run(Op::matmul, {Dims{2, 0}, Dims{0, 5}})[0]), "f32[2, 5][5, 1]");
  expect_error<ShapeError>(Op::matmul, {Dims{2, 3}, Dims{4, 5}}, {},
                           "matmul: expected [.., M, K] x [.., K, N], got [2, 3] and [4, 5]");
  expect_error<DTypeError>(Op::matmul, {Arg(Dims{2, 3}), Arg(Dims{3, 5}, DType::F64)}, {},
                           "matmul: expected operands of one dtype, got f32 and f64");
}

TEST(ConvShapes, ForwardAndGradientsAgree) {
  ConvAttrs attrs;
  attrs.stride[0] = attrs.stride[1] = 2;
  attrs.padding[0] = attrs.padding[1] = 1;
  EXPECT_EQ(show(run(Op::conv2d, {Dims{2, 3, 8, 9}, Dims{4, 3, 3, 3}, Arg::none()}, attrs.pack())[0]),
            "f32[2, 4, 4, 5][80, 1, 20, 4]");
  attrs.sizes[0] = 8;
  attrs.sizes[1] = 9;
  EXPECT_EQ(show(run(Op::conv2d_input_grad, {Dims{2, 4, 4, 5}, Dims{4, 3, 3, 3}}, attrs.pack())[0]),
            "f32[2, 3, 8, 9][216, 1, 27, 3]");
  attrs.sizes[0] = attrs.sizes[1] = 3;
  EXPECT_EQ(show(run(Op::conv2d_weight_grad, {Dims{2, 4, 4, 5}, Dims{2, 3, 8, 9}}, attrs.pack())[0]),
            "f32[4, 3, 3, 3][27, 9, 3, 1]");
}

TEST(ConvShapes, RefuseWhatDoesNotFit) {
  expect_error<ShapeError>(
      Op::conv2d, {Dims{2, 3, 8, 8}, Dims{4, 2, 3, 3}, Arg::none()}, ConvAttrs().pack(),
      "conv2d: expected x [N, C, H, W] and w [O, C/groups, KH, KW], got [2, 3, 8, 8] and "
      "[4, 2, 3, 3] with groups 1");
  expect_error<ShapeError>(Op::conv2d, {Dims{2, 3, 2, 2}, Dims{4, 3, 3, 3}, Arg::none()}, ConvAttrs().pack(),
                           "conv2d: expected a kernel reaching at most 2 (the padded input), got 3 for sizes "
                           "[2, 3, 2, 2]");
  expect_error<ShapeError>(Op::conv2d, {Dims{2, 3, 4, 4}, Dims{4, 3, 3, 3}, Dims{5}}, ConvAttrs().pack(),
                           "conv2d: expected bias of sizes [4], got [5]");
}

TEST(PoolShapes, FollowTheInputsLayout) {
  PoolAttrs attrs;
  attrs.kernel[0] = attrs.kernel[1] = attrs.stride[0] = attrs.stride[1] = 2;
  const auto outputs = run(Op::max_pool2d, {nhwc({1, 2, 4, 6})}, attrs.pack());
  EXPECT_EQ(show(outputs[0]), "f32[1, 2, 2, 3][12, 1, 6, 2]");
  EXPECT_EQ(show(outputs[1]), "i64[1, 2, 2, 3][12, 1, 6, 2]");
  EXPECT_EQ(show(run(Op::avg_pool2d, {Dims{1, 2, 4, 6}}, attrs.pack())[0]), "f32[1, 2, 2, 3][12, 6, 3, 1]");
  attrs.sizes[0] = 4;
  attrs.sizes[1] = 6;
  EXPECT_EQ(show(run(Op::avg_pool2d_grad, {Dims{1, 2, 2, 3}}, attrs.pack())[0]),
            "f32[1, 2, 4, 6][48, 24, 6, 1]");
}

TEST(IndexShapes, FollowTheIndex) {
  const Attrs axis = AxisAttrs(1).pack();
  EXPECT_EQ(show(run(Op::index_select, {Dims{2, 3}, Arg(Dims{5}, DType::I64)}, axis)[0]), "f32[2, 5][5, 1]");
  EXPECT_EQ(show(run(Op::gather, {Dims{2, 3}, Arg(Dims{1, 4}, DType::I64)}, axis)[0]), "f32[1, 4][4, 1]");
  EXPECT_EQ(show(run(Op::index_add, {Dims{2, 3}, Arg(Dims{5}, DType::I64), Dims{2, 5}}, axis)[0]),
            "f32[2, 3][3, 1]");
  EXPECT_EQ(show(run(Op::scatter_add, {Dims{2, 3}, Arg(Dims{2, 2}, DType::I64), Dims{2, 2}}, axis)[0]),
            "f32[2, 3][3, 1]");
  expect_error<DTypeError>(Op::index_select, {Dims{2, 3}, Arg(Dims{5}, DType::I32)}, axis,
                           "index_select: expected index of dtype i64, got i32");
}

TEST(CompositeShapes, GiveStatisticsInTheComputeDType) {
  EXPECT_EQ(show(run(Op::softmax, {Dims{2, 3}}, AxisAttrs(1).pack())[0]), "f32[2, 3][3, 1]");
  const auto loss = run(Op::cross_entropy, {Arg(Dims{4, 10}, DType::BF16), Arg(Dims{4}, DType::I64)},
                        CrossEntropyAttrs(-100).pack());
  EXPECT_EQ(show(loss[0]), "bf16[4][1]");
  EXPECT_EQ(show(loss[1]), "f32[4][1]");
  const auto layer = run(Op::layer_norm, {Dims{2, 3, 4}, Dims{4}, Dims{4}, Scalar(1e-5)});
  EXPECT_EQ(show(layer[1]), "f32[2, 3, 1][3, 1, 1]");
  const auto batch = run(Op::batch_norm, {nhwc({2, 3, 4, 4}), Dims{3}, Dims{3}, Geometry{{3}, {2}}, Dims{3},
                                          Scalar(0.1), Scalar(1e-5)});
  EXPECT_EQ(show(batch[0]), "f32[2, 3, 4, 4][48, 1, 12, 3]");
  EXPECT_EQ(show(batch[3]), "f32[3][2]");
  EXPECT_EQ(show(run(Op::sgd_plain_step, {Dims{3}, Dims{3}, Scalar(0.1), Scalar(0.0)})[0]), "f32[3][1]");
}

TEST(CompositeShapes, RefuseWhatDoesNotFit) {
  expect_error<ShapeError>(Op::cross_entropy, {Dims{4, 10}, Arg(Dims{5}, DType::I64)},
                           CrossEntropyAttrs(-100).pack(),
                           "cross_entropy: expected target of sizes [4], got [5]");
  expect_error<ShapeError>(Op::batch_norm,
                           {Dims{1, 3}, Dims{3}, Dims{3}, Dims{3}, Dims{3}, Scalar(0.1), Scalar(1e-5)}, {},
                           "batch_norm: expected more than one value a channel, got x [1, 3]");
  expect_error<ShapeError>(Op::sgd_plain_step, {Dims{3}, Dims{4}, Scalar(0.1), Scalar(0.0)}, {},
                           "sgd_plain_step: expected the gradient of sizes [3], got [4]");
  expect_error<ValueError>(Op::matmul, {Dims{3}}, {}, "matmul: expected 2 operands, got 1");
}

}  // namespace
}  // namespace etch
