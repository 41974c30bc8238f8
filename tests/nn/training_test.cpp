// Training eagerly and compiled from the same seed gives the same losses.
#include <gtest/gtest.h>

#include <cmath>

#include "jit/compile.h"
#include "nn/data.h"
#include "nn/layers.h"
#include "nn/models.h"
#include "nn/optim.h"

namespace etch {
namespace {

struct Outcome {
  std::vector<float> losses;
  int compiles = 0;
  int64_t compiled_calls = 0;
  double accuracy = 0;
};

/// A small ResNet on the digits for some epochs, with a rate that changes at every step.
Outcome train_on_digits(bool compiled, int epochs) {
  manual_seed(7);
  nn::ResNet model = nn::resnet_tiny();
  data::DataLoader loader(data::load(ETCH_EXAMPLE_DATA "/digits", data::Split::Train),
                          {.batch = 32, .shuffle = true, .drop_last = true, .seed = 7});
  optim::Sgd optimizer(model.parameters(), {.lr = 0.05, .momentum = 0.9, .weight_decay = 5e-4});
  optim::CosineLr schedule(optimizer, {.steps = loader.size() * epochs});
  const auto body = [&](const Tensor& x, const Tensor& y) {
    Tensor loss = nn::cross_entropy(model(x), y);
    loss.backward();
    optimizer.step();
    optimizer.zero_grad();
    return loss;
  };
  auto step = compile(body);
  Outcome run;
  for (int epoch = 0; epoch < epochs; ++epoch)
    for (auto& [images, labels] : loader) {
      run.losses.push_back((compiled ? step(images, labels) : body(images, labels)).item<float>());
      schedule.step();
    }
  run.compiles = step.compile_count();
  run.compiled_calls = step.compiled_calls();

  NoGrad guard;
  model.eval();
  data::DataLoader test(data::load(ETCH_EXAMPLE_DATA "/digits", data::Split::Test),
                        {.batch = 297, .normalization = loader.options().normalization});
  for (auto& [images, labels] : test)
    run.accuracy = static_cast<double>((model(images).argmax(1) == labels).sum().item<int64_t>()) / 297;
  return run;
}

TEST(Training, CompiledResNetConvergesAsEager) {
  const Outcome eager = train_on_digits(false, 2), compiled = train_on_digits(true, 2);
  ASSERT_EQ(eager.losses.size(), compiled.losses.size());
  for (size_t i = 0; i < 20; ++i)
    EXPECT_NEAR(compiled.losses[i], eager.losses[i], 1e-5 * std::abs(eager.losses[i])) << "step " << i;
  EXPECT_GE(compiled.compiled_calls, static_cast<int64_t>(compiled.losses.size()) - 3);
  EXPECT_LE(compiled.compiles, 3);
  EXPECT_LT(compiled.losses.back(), 0.3 * compiled.losses.front());
  EXPECT_NEAR(compiled.accuracy, eager.accuracy, 0.02);
  EXPECT_GT(compiled.accuracy, 0.75);
}

/// A small transformer with dropout, AdamW and a warm-up: random masks and bias corrections move at each
/// call.
std::vector<float> train_transformer(bool compiled, int steps, int* compiles) {
  manual_seed(3);
  nn::Gpt model({.vocabulary = 13, .context = 8, .width = 16, .heads = 2, .layers = 1});
  nn::Dropout dropout(0.1);
  optim::AdamW optimizer(model.parameters(), {.lr = 1e-2});
  optim::LinearWarmup schedule(optimizer, {.steps = 5});
  const Tensor tokens = randint(0, 13, {4, 8});
  const auto body = [&] {
    Tensor loss = nn::cross_entropy(dropout(model(tokens)).view({-1, 13}), tokens.view({-1}));
    loss.backward();
    optimizer.step();
    optimizer.zero_grad();
    return loss;
  };
  auto step = compile(body);
  std::vector<float> losses;
  for (int i = 0; i < steps; ++i) {
    losses.push_back((compiled ? step() : body()).item<float>());
    schedule.step();
  }
  *compiles = step.compile_count();
  return losses;
}

TEST(Training, CompiledTransformerWithDropoutAndAdamFollowsEager) {
  int compiles = 0;
  const auto eager = train_transformer(false, 12, &compiles);
  const auto compiled = train_transformer(true, 12, &compiles);
  for (size_t i = 0; i < eager.size(); ++i)
    EXPECT_NEAR(compiled[i], eager[i], 1e-5 * eager[i]) << "step " << i;
  EXPECT_LT(eager.back(), eager.front());
  EXPECT_GE(compiles, 1);
  EXPECT_LE(compiles, 3);
}

}  // namespace
}  // namespace etch
