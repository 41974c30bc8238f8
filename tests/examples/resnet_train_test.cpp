// The resnet_train program, run as a user does.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

namespace etch {
namespace {

using Json = nlohmann::json;

struct Output {
  std::string text;  ///< stdout and stderr
  int status = -1;
};

class ResNetTrain : public testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(kProgram)) GTEST_SKIP() << kProgram << " is not built";
  }
  static Output run(const std::string& flags) {
    Output output;
    FILE* pipe = popen((std::string(kProgram) + " " + flags + " 2>&1").c_str(), "r");
    if (!pipe) return output;
    for (int c; (c = fgetc(pipe)) != EOF;) output.text += static_cast<char>(c);
    output.status = WEXITSTATUS(pclose(pipe));
    return output;
  }
  static constexpr const char* kProgram = ETCH_BINARY_DIR "/examples/resnet_train";
};

TEST_F(ResNetTrain, ComparesBothModesAsJson) {
  const Output output = run("--epochs=2 --json");
  ASSERT_EQ(output.status, 0) << output.text;
  const Json json = Json::parse(output.text);
  EXPECT_LE(json["loss_difference_first_20"].get<double>(), 1e-5);
  EXPECT_EQ(json["eager"]["loss"].size(), json["compiled"]["loss"].size());
  EXPECT_EQ(json["eager"]["test_accuracy"].size(), 2u);
  EXPECT_GT(json["compiled"]["compiled_calls"].get<int>(), 80);
  EXPECT_GT(json["compiled"]["bytes"]["arena"].get<int64_t>(), 0);
  EXPECT_GT(json["eager"]["bytes"]["activations"].get<int64_t>(), 0);
  EXPECT_GE(json["compiled"]["arena_bytes"], json["compiled"]["lower_bound_bytes"]);
}

TEST_F(ResNetTrain, ReachesItsAccuracy) {
  const Output output = run("--mode=eager --json");
  ASSERT_EQ(output.status, 0) << output.text;
  EXPECT_GE(Json::parse(output.text)["eager"]["test_accuracy"].back().get<double>(), 0.97);
}

TEST_F(ResNetTrain, PrintsATableForPeople) {
  const Output output = run("--mode=eager --epochs=1");
  for (const char* part :
       {"epoch 1/1", "46/46", "pictures/s", "test accuracy", "step, median, ms", "activations"})
    EXPECT_NE(output.text.find(part), std::string::npos) << part << " in\n" << output.text;
  EXPECT_EQ(output.text.find('\r'), std::string::npos);  // no bar where there is no terminal
}

TEST_F(ResNetTrain, BadFlagsAndDataAreErrors) {
  const auto expect_error = [](const Output& output, const char* part) {
    EXPECT_EQ(output.status, 1) << output.text;
    EXPECT_NE(output.text.find(part), std::string::npos) << output.text;
  };
  expect_error(run("--data=/nonexistent"), "expected a directory, got /nonexistent");
  expect_error(run("--mode=fast"), "--mode: expected eager, compiled or compare, got fast");
  expect_error(run("--model=vgg"), "--model: expected tiny, resnet18 or resnet50, got vgg");
  expect_error(run("--batch=-1"), "--batch: expected at least 0, got -1");
  expect_error(run("--device=tpu"), "--device: expected cpu or cuda, got tpu");
}

}  // namespace
}  // namespace etch
