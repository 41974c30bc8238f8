// Models that change between calls: modes, frozen and new parameters, checkpoints, dtypes, batches,
// recursion. Each call is compared with an eager twin, and the number of compiles is what a person would
// expect.
#include <unistd.h>

#include <filesystem>
#include <memory>

#include "nn/layers.h"
#include "nn/optim.h"
#include "tests/jit/contract.h"

namespace etch {
namespace {

using ControlFlow = Contract;

// A model, its optimiser and a step of training.
struct Trainer {
  nn::Sequential model{nn::Linear(3, 4), nn::Tanh(), nn::Dropout(0.25), nn::Linear(4, 2)};
  std::unique_ptr<optim::Sgd> optimizer = fresh_optimizer();

  std::unique_ptr<optim::Sgd> fresh_optimizer(double momentum = 0.9) {
    return std::make_unique<optim::Sgd>(model.parameters(),
                                        optim::SgdOptions{.lr = 0.1, .momentum = momentum});
  }
  Tensor run(const Tensor& x, const Tensor& y) {
    const Tensor loss = mse_loss(model(x), y);
    if (!model.is_training()) return loss.detach();
    loss.backward();
    optimizer->step();
    optimizer->zero_grad();
    return loss.detach();
  }
};

// The same trainer twice, one of them traced. What is done to it between calls is done to both.
class Twins {
 public:
  template <class F>
  void both(F&& f) {
    f(*eager_);
    f(*traced_);
  }
  void call(int64_t batch = 4, DType dtype = DType::F32) {
    SCOPED_TRACE("call " + std::to_string(calls_));
    const Tensor x = ramp({batch, 3}, 0.1 * calls_, 0.07).to(dtype);
    const Tensor y = ramp({batch, 2}, 1, -0.05).to(dtype);
    manual_seed(static_cast<uint64_t>(calls_));
    const Tensor expected = eagerly([&] { return eager_->run(x, y); });
    manual_seed(static_cast<uint64_t>(calls_));
    expect_same(step(x, y), expected);
    const auto want = eager_->model.state_dict(), got = traced_->model.state_dict();
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < got.size(); ++i) expect_same(got[i].second, want[i].second);
    ++calls_;
  }

 private:
  static std::unique_ptr<Trainer> make() {
    manual_seed(5);
    return std::make_unique<Trainer>();
  }

  std::unique_ptr<Trainer> eager_ = make(), traced_ = make();
  int calls_ = 0;

 public:
  using Step = std::function<Tensor(const Tensor&, const Tensor&)>;
  Compiled<Step> step =
      compile(Step([this](const Tensor& x, const Tensor& y) { return traced_->run(x, y); }));
};

TEST_F(ControlFlow, SwitchingBetweenTrainingAndEvaluation) {
  Twins twins;
  for (const bool train : {true, true, false, false, true, false, true, true, false}) {
    twins.both([&](Trainer& t) { t.model.train(train); });
    twins.call();
  }
  EXPECT_EQ(twins.step.compile_count(), 2) << twins.step.explain();
  EXPECT_EQ(twins.step.eager_calls(), 2);
}

TEST_F(ControlFlow, FreezingAndUnfreezingParameters) {
  Twins twins;
  for (const bool frozen : {false, false, true, true, false, true, true, false}) {
    twins.both([&](Trainer& t) {
      for (Tensor parameter : {t.model.parameters()[0], t.model.parameters()[1]})
        parameter.requires_grad_(!frozen);
    });
    twins.call();
  }
  EXPECT_EQ(twins.step.compile_count(), 2) << twins.step.explain();
  EXPECT_EQ(twins.step.eager_calls(), 2);
}

TEST_F(ControlFlow, ALayerAddedAtRunTime) {
  Twins twins;
  for (int i = 0; i < 8; ++i) {
    if (i == 4)
      twins.both([](Trainer& t) {
        manual_seed(9);
        t.model.push_back(nn::Linear(2, 2));
        t.optimizer = t.fresh_optimizer();
      });
    twins.call();
  }
  EXPECT_EQ(twins.step.compile_count(), 2) << twins.step.explain();
  EXPECT_EQ(twins.step.compiled_calls(), 6);
}

TEST_F(ControlFlow, ParametersWhoseStorageIsReplaced) {
  Twins twins;
  for (int i = 0; i < 6; ++i) {
    if (i % 2)
      twins.both([&](Trainer& t) {
        nn::NamedTensors other = t.model.state_dict();
        for (auto& [name, tensor] : other) tensor = tensor * 0.5 + 0.01 * i;
        t.model.load_state_dict(other, {.assign = true});
      });
    twins.call();
  }
  EXPECT_EQ(twins.step.compile_count(), 1) << twins.step.explain();
  EXPECT_EQ(twins.step.compiled_calls(), 5);
}

TEST_F(ControlFlow, ACheckpointLoadedBetweenCalls) {
  const std::string file = std::filesystem::temp_directory_path() / join_text({"etch-checkpoint-", getpid()});
  Twins twins;
  for (int i = 0; i < 8; ++i) {
    if (i == 2)
      twins.both([&](Trainer& t) {
        nn::save_safetensors(file, t.model.state_dict());
        nn::save_safetensors(file + ".optimizer", t.optimizer->state_dict());
      });
    if (i == 5)
      twins.both([&](Trainer& t) {
        t.model.load_state_dict(nn::load_safetensors(file));
        t.optimizer->load_state_dict(nn::load_safetensors(file + ".optimizer"));
      });
    twins.call();
  }
  std::filesystem::remove(file);
  std::filesystem::remove(file + ".optimizer");
  EXPECT_EQ(twins.step.compile_count(), 1) << twins.step.explain();
  EXPECT_EQ(twins.step.compiled_calls(), 7);
}

TEST_F(ControlFlow, AModelMovedBetweenDtypes) {
  Twins twins;
  twins.both([](Trainer& t) { t.optimizer = t.fresh_optimizer(0); });
  for (const DType dtype : {DType::F32, DType::F32, DType::F64, DType::F64, DType::BF16, DType::F32,
                            DType::BF16, DType::F64, DType::F32}) {
    twins.both([&](Trainer& t) { t.model.to(dtype); });
    twins.call(4, dtype);
  }
  EXPECT_EQ(twins.step.compile_count(), 3) << twins.step.explain();
  EXPECT_EQ(twins.step.eager_calls(), 3);
}

TEST_F(ControlFlow, AnInputThatSometimesRequiresGradients) {
  const auto body = [](const Tensor& x) {
    const Tensor y = (x * x).sum();
    if (x.requires_grad()) y.backward();
    return y.detach();
  };
  auto step = compile(body);
  for (int i = 0; i < 8; ++i) {
    Tensor x = ramp({3}, i).requires_grad_(i % 2 == 1), twin = ramp({3}, i).requires_grad_(i % 2 == 1);
    expect_same(step(x), eagerly([&] { return body(twin); }));
    EXPECT_EQ(x.grad().defined(), i % 2 == 1);
    if (i % 2) expect_same(x.grad(), twin.grad());
  }
  EXPECT_EQ(step.compile_count(), 2) << step.explain();
}

TEST_F(ControlFlow, ABatchThatGrowsAndShrinks) {
  Twins twins;
  for (const int64_t batch : {1, 2, 3, 4, 3, 2, 1, 1, 2, 3}) twins.call(batch);
  EXPECT_EQ(twins.step.compile_count(), 3) << twins.step.explain();  // 4 was seen once
  EXPECT_EQ(twins.step.eager_calls(), 4);
}

TEST_F(ControlFlow, ALastPartialBatchInEveryEpoch) {
  Twins twins;
  for (int epoch = 0; epoch < 4; ++epoch)
    for (const int64_t batch : {8, 8, 8, 3}) twins.call(batch);
  EXPECT_EQ(twins.step.compile_count(), 2) << twins.step.explain();
  EXPECT_EQ(twins.step.eager_calls(), 2);
}

TEST_F(ControlFlow, RecursionToADepthOfTheCall) {
  std::function<Tensor(const Tensor&, int)> body = [&](const Tensor& x, int depth) -> Tensor {
    return depth == 0 ? x : body(x * 0.5 + depth, depth - 1) - x;
  };
  auto step = compile(body);
  for (const int depth : {1, 2, 5, 1, 2, 5, 2, 1, 5})
    expect_same(step(ramp({3}, depth), depth), eagerly([&] { return body(ramp({3}, depth), depth); }));
  EXPECT_EQ(step.compile_count(), 3) << step.explain();
}

TEST_F(ControlFlow, RecursionUntilAValueIsSmall) {
  int reads = 0;
  std::function<Tensor(const Tensor&)> body = [&](const Tensor& x) -> Tensor {
    ++reads;
    return x.amax().item<float>() < 1 ? x + 1 : body(x * 0.5);
  };
  auto step = compile(body);
  for (const double start : {0.5, 3.0, 100.0, 0.25, 40.0, 7.0}) {
    const Tensor x = ramp({3}, start, 0.01);
    reads = 0;
    const Tensor got = step(x);
    const int of_step = std::exchange(reads, 0);
    expect_same(got, eagerly([&] { return body(x); }));
    EXPECT_EQ(of_step, reads);
  }
  // amax of the input; a half and its amax; the sum at the end: three paths, however deep.
  EXPECT_EQ(step.compile_count(), 3) << step.explain();
}

TEST_F(ControlFlow, EarlyReturns) {
  const auto body = [](const Tensor& x, bool stop) {
    const Tensor y = x * 2;
    if (stop) return y;
    if (y.sum().item<float>() > 10) return y + 100;
    return (y * y).exp() * 0;
  };
  auto step = compile(body);
  for (int i = 0; i < 12; ++i) {
    const Tensor x = ramp({2}, i % 2 ? 5 : 0);
    expect_same(step(x, i % 3 == 0), eagerly([&] { return body(x, i % 3 == 0); }));
  }
  EXPECT_EQ(step.compile_count(), 4) << step.explain();  // y; y and its sum; the ends of both branches
}

TEST_F(ControlFlow, HandlesDroppedInSomeCallsAndKeptInOthers) {
  Tensor w = ramp({4}, 0.5).requires_grad_();
  struct Kept {
    Tensor tensor;
    std::vector<double> values;
  };
  std::vector<Kept> kept;
  auto step = compile([&](const Tensor& x) {
    const Tensor hidden = (x * w).tanh(), y = hidden * hidden;
    y.sum().backward();
    Tensor gradient = w.grad();
    w.zero_grad();
    return std::tuple(hidden, y.slice(0, 1, 3), gradient, x.view(2, 2));
  });
  for (int i = 0; i < 24; ++i) {
    const Tensor x = ramp({4}, 0.1 * i, 0.3);
    const auto [hidden, window, gradient, alias] = step(x);
    EXPECT_EQ(&alias.storage(), &x.storage());
    if (i % 2) kept.push_back({hidden.detach(), {}});
    if (i % 3 == 0) kept.push_back({window, {}});
    if (i % 5 == 0) kept.push_back({gradient, {}});
    if (i % 4 == 1) kept.push_back({alias, {}});
    for (Kept& entry : kept) {
      const std::vector<double> now = entry.tensor.to_vector<double>();
      if (entry.values.empty()) entry.values = now;
      EXPECT_EQ(now, entry.values) << "call " << i;
    }
  }
  EXPECT_LE(step.compile_count(), 2) << step.explain();
}

TEST_F(ControlFlow, OutputsThatAliasInputsAndAreWrittenLater) {
  const auto body = [](Tensor x) {
    const Tensor y = x * 3;
    x.slice(0, 0, 2).add_(1);
    return std::tuple(x.t(), y, y.view(-1), x);
  };
  auto step = compile(body);
  for (int i = 0; i < 6; ++i) {
    const Tensor x = ramp({3, 2}, i), twin = ramp({3, 2}, i);
    auto [turned, y, flat, same] = step(x);
    auto [turned_twin, y_twin, flat_twin, same_twin] = eagerly([&] { return body(twin); });
    turned[0].fill_(-i);  // written by the caller, through whichever alias
    turned_twin[0].fill_(-i);
    flat.slice(0, 1, 3).mul_(2);
    flat_twin.slice(0, 1, 3).mul_(2);
    expect_same(x, twin);
    expect_same(y, y_twin);
  }
}

TEST_F(ControlFlow, InputsThatOverlapInNewWays) {
  const auto body = [](Tensor a, const Tensor& b, const Tensor& c) {
    const Tensor before = b + c;
    a.mul_(2);
    return before - (b + c * a);
  };
  auto step = compile(body);
  const auto arguments = [](const Tensor& base, int i) -> std::tuple<Tensor, Tensor, Tensor> {
    const Tensor square = base.slice(0, 0, 9).view(3, 3);
    switch (i % 6) {
      case 0:
        return {square, ramp({3, 3}), ramp({3, 3}, 7)};
      case 1:
        return {square, square.t(), ramp({3, 3}, 7)};  // transposed
      case 2:
        return {square, square[1].unsqueeze(0).expand(3, 3), square};  // a row, repeated
      case 3:
        return {square, base.slice(0, 3, 12).view(3, 3), square.t()};  // shifted by a row
      case 4:
        return {square, base.slice(0, 1, 18, 2).slice(0, 0, 9).view(3, 3), square};  // every other element
      default:
        return {square.t(), square, base.slice(0, 8, 17).view(3, 3)};  // one element shared
    }
  };
  for (int round = 0; round < 3; ++round)
    for (int i = 0; i < 6; ++i) {
      SCOPED_TRACE("way " + std::to_string(i) + " in round " + std::to_string(round));
      const Tensor base = ramp({20}, 1, 0.5), twin = ramp({20}, 1, 0.5);
      const auto [a, b, c] = arguments(base, i);
      const auto [ea, eb, ec] = arguments(twin, i);
      const Tensor expected = eagerly([&, ea = ea, eb = eb, ec = ec] { return body(ea, eb, ec); });
      expect_same(step(a, b, c), expected);
      expect_same(base, twin);
    }
  EXPECT_EQ(step.compile_count(), 6) << step.explain();
}

}  // namespace
}  // namespace etch
