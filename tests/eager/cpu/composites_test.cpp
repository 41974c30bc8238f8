// Fused composites: literal values, and the bits of their expansions.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "runtime/parallel.h"
#include "tests/eager/cpu/values.h"
#include "tracer/execute.h"

namespace etch::cpu {
namespace {

struct Case {
  Op op;
  std::vector<Input> inputs;
  Attrs attrs;
};

/// Fresh copies of all operands, as in-place composites write some.
Case copied(const Case& original) {
  Case result = original;
  for (Input& input : result.inputs)
    if (input.array) input.array = input.array->copy();
  return result;
}

bool run_primitives_only(const OpCall& call, void* scratch) {
  return info(call.op).kind != OpKind::Composite && run(call, scratch);
}

/// Outputs after execute(), with or without fused kernels.
std::vector<std::vector<char>> execute_case(const Case& original, bool fused) {
  register_executor(DeviceType::Cpu, {fused ? run : run_primitives_only, scratch_bytes});
  const Case call = copied(original);
  const std::vector<Operand> ins = operands(call.inputs);
  OutputSpec specs[kMaxOutputs];
  const int count = infer(call.op, ins, call.attrs, DType::F32, specs);
  std::vector<Array> outputs;
  std::vector<Operand> outs;
  for (int i = 0; i < count; ++i) {
    const int written = written_operand(call.op, i);
    outputs.push_back(written >= 0 ? *call.inputs[written].array : Array(specs[i].geometry, specs[i].dtype));
  }
  for (const Array& output : outputs) outs.push_back(output.operand());
  execute({call.op, ins, outs, call.attrs});
  std::vector<std::vector<char>> bits;
  for (const Array& output : outputs) bits.push_back(output.bits());
  return bits;
}

bool has_fused_kernel(const Case& original) {
  const Case call = copied(original);
  const std::vector<Operand> ins = operands(call.inputs);
  OutputSpec specs[kMaxOutputs];
  const int count = infer(call.op, ins, call.attrs, DType::F32, specs);
  std::vector<Array> outputs;
  std::vector<Operand> outs;
  for (int i = 0; i < count; ++i) {
    const int written = written_operand(call.op, i);
    outputs.push_back(written >= 0 ? *call.inputs[written].array : Array(specs[i].geometry, specs[i].dtype));
  }
  for (const Array& output : outputs) outs.push_back(output.operand());
  return run({call.op, ins, outs, call.attrs});
}

/// Fused on one and two threads, and expanded.
void expect_same_bits(const Case& call, bool fused = true) {
  const Geometry& first = call.inputs[0].array->geometry;
  SCOPED_TRACE(std::string(name(call.op)) + " " + to_string(first.sizes) + " " + to_string(first.strides) +
               " " + std::string(name(call.inputs[0].array->dtype)));
  EXPECT_EQ(has_fused_kernel(call), fused);
  const auto expected = execute_case(call, false);
  const int threads = num_threads();
  for (const int count : {1, 2}) {
    set_num_threads(count);
    EXPECT_EQ(execute_case(call, true), expected);
  }
  set_num_threads(threads);
}

constexpr DType kFloating[] = {DType::F32, DType::F64, DType::F16, DType::BF16};

Geometry channels_last(const Dims& sizes) { return {sizes, channels_last_strides(sizes)}; }
Array filled(const Dims& sizes, DType dtype, unsigned seed, double low = -2, double high = 2) {
  return random_array(contiguous(sizes), dtype, seed, low, high);
}

TEST(Composites, SoftmaxAndLogSoftmaxHaveLiteralValues) {
  const Array x({2, 2}, {0, 0, 0, std::log(3.0)});
  const Numbers y = apply(Op::softmax, {x}, AxisAttrs(1).pack()).values();
  EXPECT_NEAR(y[0], 0.5, 1e-7);
  EXPECT_NEAR(y[3], 0.75, 1e-6);
  EXPECT_NEAR(apply(Op::log_softmax, {x}, AxisAttrs(1).pack()).values()[2], -std::log(4.0), 1e-6);
}

TEST(Composites, CrossEntropyHasLiteralValues) {
  const Array logits({3, 2}, {0, 0, 0, std::log(3.0), 5, 5}), target({3}, {1, 0, -100}, DType::I64);
  const std::vector<Array> out =
      apply_all(Op::cross_entropy, {logits, target}, CrossEntropyAttrs(-100).pack());
  EXPECT_NEAR(out[0].values()[0], std::log(2.0), 1e-6);
  EXPECT_NEAR(out[0].values()[1], std::log(4.0), 1e-6);
  EXPECT_EQ(out[0].values()[2], 0);
  const Numbers grad = apply(Op::cross_entropy_grad, {Array({3}, {1, 2, 3}), logits, target, out[1]},
                             CrossEntropyAttrs(-100).pack())
                           .values();
  EXPECT_NEAR(grad[0], 0.5, 1e-6);
  EXPECT_NEAR(grad[1], -0.5, 1e-6);
  EXPECT_NEAR(grad[2], -1.5, 1e-6);
  EXPECT_EQ(grad[4], 0);
}

TEST(Composites, LayerNormHasLiteralValues) {
  const Array x({1, 4}, {1, 2, 3, 4}), w({4}, {1, 1, 2, 2}), b({4}, {0, 0, 0, 1});
  const std::vector<Array> out = apply_all(Op::layer_norm, {x, w, b, 0.0});
  const double inverse = 1 / std::sqrt(1.25);
  EXPECT_NEAR(out[0].values()[0], -1.5 * inverse, 1e-6);
  EXPECT_NEAR(out[0].values()[3], 3 * inverse + 1, 1e-6);
  EXPECT_EQ(out[1].values()[0], 2.5);
  EXPECT_NEAR(out[2].values()[0], inverse, 1e-7);
}

TEST(Composites, BatchNormWritesRunningStatistics) {
  const Array x({2, 2}, {1, 10, 3, 30}), w({2}, {1, 2}), b({2}, {0, 5}), mean({2}, {0, 0}),
      variance({2}, {1, 1});
  const std::vector<Array> out = apply_all(Op::batch_norm, {x, w, b, mean, variance, 0.5, 0.0});
  EXPECT_EQ(out[0].values(), (Numbers{-1, 3, 1, 7}));
  EXPECT_EQ(out[1].values(), (Numbers{2, 20}));
  EXPECT_EQ(mean.values(), (Numbers{1, 10}));
  EXPECT_EQ(variance.values(), (Numbers{1.5, 100.5}));
}

/// Batch norm of one channel without eps: {mean, 1 / std} and the running statistics at momentum 1.
std::vector<double> statistics_of(const std::vector<double>& x, DType dtype = DType::F32, bool fused = true) {
  const DType wide = compute_dtype(dtype);
  std::vector<double> both;
  for (double value : x) both.insert(both.end(), {value, 1});
  const Array in({static_cast<int64_t>(x.size()), 2}, both, dtype);
  const Array w({2}, {1, 1}, dtype), b({2}, {0, 0}, dtype), mean({2}, {0, 0}, wide),
      variance({2}, {0, 0}, wide);
  register_executor(DeviceType::Cpu, {fused ? run : run_primitives_only, scratch_bytes});
  const std::vector<Array> out = apply_all(Op::batch_norm, {in, w, b, mean, variance, 1.0, 0.0});
  register_executor(DeviceType::Cpu, {run, scratch_bytes});
  return {out[1].values()[0], out[2].values()[0], mean.values()[0], variance.values()[0]};
}

TEST(Composites, BatchNormSurvivesAMeanFarFromZero) {
  // 10000 plus or minus 10 of the last place of f32: 2^-10.
  const double step = 10.0 / 1024;
  std::vector<double> x;
  for (int i = 0; i < 4096; ++i) x.push_back(10000 + (i % 2 ? step : -step));
  const std::vector<double> found = statistics_of(x);
  EXPECT_EQ(found[0], 10000);
  EXPECT_NEAR(found[1] * step, 1, 1e-6);
  EXPECT_NEAR(found[3], step * step * 4096 / 4095, 1e-9);
}

TEST(Composites, BatchNormSurvivesFirstSamplesFarFromTheRest) {
  for (const DType dtype : {DType::F32, DType::F64}) {
    std::vector<double> x;
    for (int i = 0; i < 6400; ++i) x.push_back(i < 200 ? 5000 + i % 2 : i % 2);
    // Between the two groups lie 5000, of which 1/32 and 31/32 of the samples.
    const double mean = 0.5 + 5000 / 32.0, variance = 0.25 + 5000.0 * 5000 * 31 / 1024;
    const std::vector<double> found = statistics_of(x, dtype);
    EXPECT_NEAR(found[0] / mean, 1, dtype == DType::F32 ? 1e-6 : 1e-14);
    EXPECT_NEAR(found[1] * std::sqrt(variance), 1, dtype == DType::F32 ? 5e-5 : 1e-13);
  }
}

TEST(Composites, BatchNormOfEqualValuesHasNoVariance) {
  const std::vector<double> found = statistics_of(std::vector<double>(1000, 0.1));
  EXPECT_EQ(found[0], static_cast<double>(0.1f));
  EXPECT_EQ(found[1], std::numeric_limits<double>::infinity());
  EXPECT_EQ(found[3], 0);
}

TEST(Composites, BatchNormKeepsInfinitiesAndNaNs) {
  const double inf = std::numeric_limits<double>::infinity();
  for (const bool fused : {true, false})
    for (const size_t place : {size_t{0}, size_t{70}}) {
      std::vector<double> x(100, 1);
      x[place] = -inf;
      std::vector<double> found = statistics_of(x, DType::F32, fused);
      EXPECT_EQ(found[0], -inf);
      EXPECT_TRUE(std::isnan(found[1]) && std::isnan(found[3]));
      x[place] = std::nan("");
      found = statistics_of(x, DType::F32, fused);
      for (double value : found) EXPECT_TRUE(std::isnan(value));
    }
}

TEST(Composites, OptimisersHaveLiteralValues) {
  const Array p({2}, {1, 2}), g({2}, {0.5, -0.5}), buffer({2}, {1, 1});
  apply_all(Op::sgd_step, {p, g, buffer, 0.5, 0.5, 1.0, 0.0}, {0});
  EXPECT_EQ(buffer.values(), (Numbers{1, 0}));
  EXPECT_EQ(p.values(), (Numbers{0.5, 2}));
  apply_all(Op::sgd_plain_step, {p, g, 1.0, 0.5});
  EXPECT_EQ(p.values(), (Numbers{-0.25, 1.5}));
  const Array q({1}, {1}), h({1}, {2}), m({1}, {0}), v({1}, {0});
  apply_all(Op::adam_step, {q, h, m, v, 0.5, 0.5, 0.5, 0.0, 0.0, 0.5, 0.5}, {0});
  EXPECT_EQ(m.values(), Numbers{1});
  EXPECT_EQ(v.values(), Numbers{2});
  EXPECT_EQ(q.values(), Numbers{0.5});
}

TEST(Composites, SoftmaxFamilyEqualsItsExpansion) {
  for (const DType dtype : kFloating) {
    for (const Dims& sizes :
         {Dims{7}, Dims{3, 1}, Dims{1, 70}, Dims{300, 33}, Dims{2, 5000}, Dims{3, 4, 5, 64}}) {
      const Attrs axis = AxisAttrs(sizes.size() - 1).pack();
      const Array x = filled(sizes, dtype, 1, -9, 9), g = filled(sizes, dtype, 2),
                  y = filled(sizes, dtype, 3, 0, 1);
      expect_same_bits({Op::softmax, {x}, axis});
      expect_same_bits({Op::log_softmax, {x}, axis});
      expect_same_bits({Op::softmax_grad, {g, y}, axis});
      expect_same_bits({Op::log_softmax_grad, {g, y}, axis});
    }
  }
  const Array last = random_array(channels_last({2, 20, 3, 5}), DType::F32, 1);
  expect_same_bits({Op::softmax, {last}, AxisAttrs(1).pack()});
  expect_same_bits({Op::softmax, {last}, AxisAttrs(2).pack()}, false);
  expect_same_bits({Op::softmax, {random_array({{4, 6}, {0, 1}}, DType::F32, 1)}, AxisAttrs(1).pack()},
                   false);
  const Array wide = random_array({{30, 40}, {50, 1}}, DType::F32, 1);
  expect_same_bits({Op::softmax, {wide}, AxisAttrs(1).pack()});
}

TEST(Composites, CrossEntropyEqualsItsExpansion) {
  const Attrs attrs = CrossEntropyAttrs(2).pack();
  for (const DType dtype : kFloating) {
    for (const Dims& sizes : {Dims{1, 3}, Dims{65, 10}, Dims{40, 513}, Dims{2, 9000}}) {
      const int64_t rows = sizes[0];
      const Array x = filled(sizes, dtype, 1, -5, 5), g = filled({rows}, dtype, 2);
      const Array log_sum_exp = filled({rows}, compute_dtype(dtype), 3, 2, 9);
      Array target(contiguous({rows}), DType::I64);
      for (int64_t r = 0; r < rows; ++r)
        write_element(target.at(r), DType::I64, static_cast<double>(r * 7 % sizes[1]));
      expect_same_bits({Op::cross_entropy, {x, target}, attrs});
      expect_same_bits({Op::cross_entropy_grad, {g, x, target, log_sum_exp}, attrs});
    }
  }
}

TEST(Composites, LayerNormEqualsItsExpansion) {
  for (const DType dtype : kFloating) {
    for (const Dims& sizes :
         {Dims{9}, Dims{4, 1}, Dims{1, 33}, Dims{200, 40}, Dims{3, 50, 128}, Dims{2, 4500}}) {
      const int64_t n = sizes.back();
      Dims rows = sizes;
      rows[rows.size() - 1] = 1;
      const Array x = filled(sizes, dtype, 1), g = filled(sizes, dtype, 2), w = filled({n}, dtype, 3),
                  b = filled({n}, dtype, 4);
      const Array mean = filled(rows, compute_dtype(dtype), 5),
                  inverse = filled(rows, compute_dtype(dtype), 6, 0.5, 2);
      expect_same_bits({Op::layer_norm, {x, w, b, 1e-5}, {}});
      expect_same_bits({Op::layer_norm_grad, {g, x, mean, inverse, w}, {}}, n > 1);
    }
  }
}

TEST(Composites, BatchNormEqualsItsExpansion) {
  const Geometry geometries[] = {channels_last({2, 16, 5, 4}), channels_last({8, 64, 6, 6}),
                                 contiguous({70, 33}),         channels_last({3, 5, 40, 30}),
                                 contiguous({6, 8, 1, 1}),     channels_last({40, 9, 3, 2}),
                                 channels_last({1, 6, 30, 7})};
  for (const DType dtype : kFloating) {
    const DType statistics = compute_dtype(dtype);
    for (const Geometry& geometry : geometries) {
      const int64_t channels = geometry.sizes[1];
      const Array x = random_array(geometry, dtype, 1), g = random_array(geometry, dtype, 2);
      const Array w = filled({channels}, dtype, 3), b = filled({channels}, dtype, 4);
      const Array mean = filled({channels}, statistics, 5),
                  variance = filled({channels}, statistics, 6, 0.5, 2);
      expect_same_bits({Op::batch_norm, {x, w, b, mean, variance, 0.1, 1e-5}, {}});
      expect_same_bits({Op::batch_norm_eval, {x, w, b, mean, variance, 1e-5}, {}});
      expect_same_bits({Op::batch_norm_grad, {g, x, mean, variance, w}, {}});
    }
  }
}

TEST(Composites, BatchNormOfOtherMemoryOrdersIsExpanded) {
  const Array w({2}, {1, 2}), b({2}, {0, 5}), mean({2}, {0, 0}), variance({2}, {1, 1});
  for (const Geometry& geometry : {contiguous({3, 2, 2, 2}), Geometry{{3, 2, 2, 2}, {4, 1, 12, 2}}}) {
    const Array x = random_array(geometry, DType::F32, 1);
    expect_same_bits({Op::batch_norm, {x, w, b, mean, variance, 0.5, 1e-3}, {}}, false);
  }
}

TEST(Composites, OptimisersEqualTheirExpansions) {
  for (const DType dtype : kFloating) {
    for (const Geometry& geometry : {contiguous({5}), contiguous({130, 301}), channels_last({3, 4, 5, 6})}) {
      const Array p = random_array(geometry, dtype, 1), g = random_array(geometry, dtype, 2);
      const Array m = random_array(geometry, dtype, 3), v = random_array(geometry, dtype, 4, 0, 1);
      for (const int64_t flag : {0, 1}) {
        expect_same_bits({Op::sgd_step, {p, g, m, 0.1, 0.9, 0.75, 5e-4}, {flag}});
        expect_same_bits({Op::adam_step, {p, g, m, v, 1e-3, 0.1, 0.001, 1e-8, 0.01, 0.3, 0.2}, {flag}});
      }
      expect_same_bits({Op::sgd_plain_step, {p, g, 0.1, 0.01}, {}});
    }
  }
}

}  // namespace
}  // namespace etch::cpu
