// The tree of modules: names, flags, conversion, state dictionaries.
#include "nn/module.h"

#include <gtest/gtest.h>

#include "nn/layers.h"
#include "tests/runtime/expect_error.h"

namespace etch::nn {
namespace {

struct Net : Module {
  Linear hidden{{.in = 3, .out = 4}};
  BatchNorm2d norm{2};
  Sequential tail{Linear(4, 2), ReLU(), [](const Tensor& x) { return x * 2; }};
  Net() {
    register_module("hidden", hidden);
    register_module("norm", norm);
    register_module("tail", tail);
  }
  Tensor forward(const Tensor& x) override { return tail(hidden(x)); }
};

std::vector<std::string> names(const NamedTensors& tensors) {
  std::vector<std::string> result;
  for (const auto& [name, tensor] : tensors) result.push_back(name);
  return result;
}

TEST(Module, NamesFollowTheTree) {
  Net net;
  EXPECT_EQ(names(net.named_parameters()),
            (std::vector<std::string>{"hidden.weight", "hidden.bias", "norm.weight", "norm.bias",
                                      "tail.0.weight", "tail.0.bias"}));
  EXPECT_EQ(names(net.named_buffers()), (std::vector<std::string>{"norm.running_mean", "norm.running_var"}));
  EXPECT_EQ(net.parameter_count(), 12 + 4 + 2 + 2 + 8 + 2);
}

TEST(Module, ParametersAreLeavesInTheirCategory) {
  for (const Tensor& parameter : Net().parameters()) {
    EXPECT_TRUE(parameter.requires_grad());
    EXPECT_TRUE(parameter.is_leaf());
    EXPECT_EQ(parameter.storage().category(), MemoryCategory::Parameter);
  }
}

TEST(Module, TrainAndEvalReachAllChildren) {
  Net net;
  EXPECT_TRUE(net.norm.is_training());
  net.eval();
  EXPECT_FALSE(net.is_training());
  EXPECT_FALSE(net.norm.is_training());
  net.train();
  EXPECT_TRUE(net.norm.is_training());
}

TEST(Module, CopiesShareParametersAndFlags) {
  Net net;
  Net copy = net;
  EXPECT_TRUE(copy.hidden.weight.is_same(net.hidden.weight));
  copy.eval();
  EXPECT_FALSE(net.is_training());
}

TEST(Module, SharedParametersCountOnce) {
  Sequential net;
  Linear layer(2, 2);
  net.push_back(layer);
  net.push_back(layer);
  EXPECT_EQ(net.parameters().size(), 2u);
  EXPECT_EQ(net.state_dict().size(), 4u);
}

TEST(Module, StateDictRoundTrip) {
  Net a, b;
  const Tensor handle = b.hidden.weight;
  b.load_state_dict(a.state_dict());
  EXPECT_EQ(b.hidden.weight.to_vector<float>(), a.hidden.weight.to_vector<float>());
  EXPECT_TRUE(b.hidden.weight.is_same(handle));
  {
    NoGrad guard;
    a.hidden.weight.fill_(7);
  }
  EXPECT_NE(b.hidden.weight.to_vector<float>()[0], 7);  // values were copied
}

TEST(Module, LoadingByAssignmentSharesStorage) {
  Net a, b;
  b.load_state_dict(a.state_dict(), {.assign = true});
  EXPECT_EQ(&b.hidden.weight.storage(), &a.hidden.weight.storage());
}

TEST(Module, LoadingListsMissingAndUnexpectedNames) {
  Net net;
  NamedTensors state = net.state_dict();
  state[0].first = "hiden.weight";
  EXPECT_ERROR(net.load_state_dict(state), ValueError, "missing: hidden.weight; unexpected: hiden.weight");
  net.load_state_dict(state, {.strict = false});
}

TEST(Module, LoadingOtherSizesChangesNothing) {
  Net net;
  NamedTensors state = net.state_dict();
  for (auto& [name, tensor] : state) tensor = full_like(tensor, 3);
  state[1].second = zeros({5});
  const auto before = net.hidden.weight.to_vector<float>();
  EXPECT_ERROR(net.load_state_dict(state), ShapeError, "hidden.bias (expected [4], got [5])");
  EXPECT_EQ(net.hidden.weight.to_vector<float>(), before);
}

TEST(Module, ConversionKeepsTheHandles) {
  Net net;
  const Tensor handle = net.hidden.weight;
  net(ones({1, 3})).sum().backward();
  net.to(DType::F64);
  EXPECT_EQ(handle.dtype(), DType::F64);
  EXPECT_EQ(handle.grad().dtype(), DType::F64);
  EXPECT_TRUE(handle.requires_grad());
  EXPECT_EQ(handle.storage().category(), MemoryCategory::Parameter);
  EXPECT_EQ(net(ones({1, 3}, {.dtype = DType::F64})).dtype(), DType::F64);
  EXPECT_ERROR(net.to(DType::I64), DTypeError, "expected a floating dtype, got i64");
}

TEST(Module, ZeroGradDropsGradients) {
  Net net;
  net(ones({1, 3})).sum().backward();
  EXPECT_TRUE(net.hidden.weight.grad().defined());
  net.zero_grad();
  EXPECT_FALSE(net.hidden.weight.grad().defined());
}

TEST(Module, ApplyVisitsEveryNode) {
  Net net;
  std::vector<std::string> paths;
  net.apply([&](const std::string& path, ModuleNode&) { paths.push_back(path); });
  EXPECT_EQ(paths, (std::vector<std::string>{"", "hidden", "norm", "tail", "tail.0", "tail.1"}));
}

TEST(Module, BadRegistrationsAreErrors) {
  struct Bad : Module {
    explicit Bad(int kind) {
      if (kind == 0) register_parameter("a.b", zeros({1}));
      if (kind == 1) register_parameter("a", {});
      if (kind == 2) {
        register_parameter("a", zeros({1}));
        register_buffer("a", zeros({1}));
      }
      if (kind == 3) register_parameter("a", zeros({1}).requires_grad_() * 2);
      if (kind == 4) register_module("a", *this);
    }
    Tensor forward(const Tensor& x) override { return x; }
  };
  EXPECT_ERROR(Bad(0), ValueError, "expected a name without dots, got \"a.b\"");
  EXPECT_ERROR(Bad(1), ValueError, "expected a tensor for \"a\"");
  EXPECT_ERROR(Bad(2), ValueError, "expected a new name, got \"a\"");
  EXPECT_ERROR(Bad(3), AutogradError, "expected a leaf");
  EXPECT_ERROR(Bad(4), ValueError, "got the module itself");
}

TEST(Module, BuffersMayStayOutOfTheStateDict) {
  struct Mask : Module {
    Mask() { register_buffer("mask", ones({2}), /*persistent=*/false); }
    Tensor forward(const Tensor& x) override { return x; }
  };
  Mask mask;
  EXPECT_EQ(mask.named_buffers().size(), 1u);
  EXPECT_TRUE(mask.state_dict().empty());
}

}  // namespace
}  // namespace etch::nn
