// Every kernel of whole training steps, printed as CUDA, compiles with NVRTC. (tests/codegen compiles its
// kernels for every architecture.)
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "codegen/build_nvrtc.h"
#include "codegen/kernel.h"
#include "etch.h"

namespace etch {
namespace {

namespace fs = std::filesystem;

/// Runs a step until it is compiled, and returns its kernels' CUDA text by file name.
template <class F>
void collect_kernels(F step, std::map<std::string, std::string>& kernels) {
  char folder[] = "/tmp/etch_cuda_dialect_XXXXXX";
  ASSERT_NE(mkdtemp(folder), nullptr);
  const std::string before = std::exchange(config().dump_dir, folder);
  auto traced = compile(step, {.compile_at = 1});
  traced();
  config().dump_dir = before;
  EXPECT_EQ(traced.compile_count(), 1);
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename();
    if (entry.path().extension() != ".cu") continue;
    std::stringstream text;
    text << std::ifstream(entry.path()).rdbuf();
    kernels[name.substr(name.find(".k_"))] = text.str();
  }
  fs::remove_all(folder);
}

template <class Model, class Optimizer>
auto training_step(Model& model, Optimizer& optimizer, const Tensor& x, const Tensor& y) {
  return [&model, &optimizer, x, y] {
    Tensor loss = cross_entropy(model(x).flatten(0, -2), y);
    loss.backward();
    optimizer.step();
    optimizer.zero_grad();
    return loss.detach();
  };
}

TEST(CudaDialect, KernelsOfTrainingStepsCompile) {
  if (!codegen::nvrtc_available()) GTEST_SKIP() << "no CUDA toolkit";
  std::map<std::string, std::string> kernels;
  manual_seed(1);
  nn::ResNet resnet = nn::resnet_tiny();
  optim::Sgd sgd(resnet.parameters(), {.lr = 0.1, .momentum = 0.9, .weight_decay = 5e-4, .nesterov = true});
  collect_kernels(training_step(resnet, sgd, randn({4, 1, 8, 8}), randint(0, 10, {4})), kernels);
  nn::Gpt gpt(
      {.vocabulary = 16, .context = 24, .width = 48, .heads = 2, .layers = 1});  // wide enough for tiles
  optim::AdamW adamw(gpt.parameters(), {.lr = 1e-3});
  collect_kernels(training_step(gpt, adamw, randint(0, 16, {2, 24}), randint(0, 16, {48})), kernels);
  nn::Mlp mlp({.widths = {8, 16, 4}});
  optim::Adam adam(mlp.parameters(), {.lr = 1e-3});
  collect_kernels(training_step(mlp, adam, dropout(randn({4, 8}), 0.5), randint(0, 4, {4})), kernels);
  ASSERT_GT(kernels.size(), 15u);

  std::string source = codegen::cuda_prelude();
  for (const auto& [name, text] : kernels) source += text;
  const codegen::CudaBinary binary = codegen::build_cuda(source, "sm_90");
  EXPECT_FALSE(binary.image.empty()) << binary.log;
}

}  // namespace
}  // namespace etch
