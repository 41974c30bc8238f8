// Time and memory of one training step of a model, eager or compiled: one line of JSON, or of text.
//
//   train_step --model=mlp|resnet18|resnet50|gpt|pointwise|layernorm --batch=N --mode=eager|compiled
//              --steps=N --threads=N --seed=N --json
//
// --batch is the first extent of the input: pictures, sequences, elements for pointwise, rows for layernorm;
// 0 takes the usual one. Inputs and labels are random and stay the same for all steps. Gradients are set to
// none every step. step_ms is the median over --steps steps after the warm-up, in which a compiled step is
// recorded and compiled. Memory is counted over a step after warm-up by the allocator that all tensors and
// library scratch come from; `bytes` is its split at the peak. Compiled only: compile_ms is this process's,
// compile_warm_ms that of a second process which finds the kernels in the cache; host_us is the time of a
// call less the time of its plan's steps.
#include <absl/flags/flag.h>
#include <absl/flags/parse.h>
#include <absl/flags/usage.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>

#include "etch.h"
#include "nn/models.h"
#include "nn/optim.h"

ABSL_FLAG(std::string, model, "resnet18", "mlp, resnet18, resnet50, gpt, pointwise or layernorm");
ABSL_FLAG(int, batch, 0, "first extent of the input; 0: the model's usual one");
ABSL_FLAG(std::string, mode, "compiled", "eager or compiled");
ABSL_FLAG(std::string, device, "cpu", "cpu");
ABSL_FLAG(int, steps, 20, "steps that are timed");
ABSL_FLAG(int, threads, 0, "threads; 0: all cores");
ABSL_FLAG(int, seed, 1, "of the default generator");
ABSL_FLAG(bool, compile_only, false, "leave out compile_warm_ms, which starts this program again");
ABSL_FLAG(bool, explain, false,
          "also print the compiled step's report on stderr (with ETCH_LOG=3: time by kind of step)");
ABSL_FLAG(bool, json, false, "print one line of JSON");

namespace {

using namespace etch;
using Json = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

/// A model with its optimiser and inputs: `step` gives the loss (or, without one, an element of the output).
struct Workload {
  int64_t batch;
  std::shared_ptr<void> owner;  // what the closure refers to
  std::function<Tensor()> step;
};

Tensor labels(int64_t count, int64_t classes) { return randint(0, classes, {count}); }

template <class Model, class Optimizer>
Workload classifier(int64_t batch, std::shared_ptr<Model> model, std::shared_ptr<Optimizer> optimizer,
                    Tensor x, Tensor y) {
  return {batch, model, [=] {
            Tensor loss = cross_entropy((*model)(x).flatten(0, -2), y);
            loss.backward();
            optimizer->step();
            optimizer->zero_grad();
            return loss.detach();
          }};
}

template <class Model>
std::shared_ptr<optim::Sgd> sgd(Model& model) {
  return std::make_shared<optim::Sgd>(model.parameters(),
                                      optim::SgdOptions{.lr = 0.01, .momentum = 0.9, .weight_decay = 5e-4});
}

Workload make_resnet(int64_t batch, std::shared_ptr<nn::ResNet> model, int64_t size, int64_t classes) {
  const Tensor x = randn({batch, 3, size, size}).channels_last();
  const Tensor y = labels(batch, classes);
  return classifier(batch, model, sgd(*model), x, y);
}

Workload make_workload(const std::string& name, int64_t batch) {
  if (name == "mlp") {
    batch = batch ? batch : 128;
    auto model = std::make_shared<nn::Mlp>();
    const Tensor x = randn({batch, 784});
    return classifier(batch, model, sgd(*model), x, labels(batch, 10));
  }
  if (name == "resnet18") {
    batch = batch ? batch : 32;
    return make_resnet(batch, std::make_shared<nn::ResNet>(nn::resnet18_cifar()), 32, 10);
  }
  if (name == "resnet50") {
    batch = batch ? batch : 8;
    return make_resnet(batch, std::make_shared<nn::ResNet>(nn::resnet50()), 224, 1000);
  }
  if (name == "gpt") {
    batch = batch ? batch : 8;
    auto model = std::make_shared<nn::Gpt>();
    auto optimizer = std::make_shared<optim::AdamW>(model->parameters(), optim::AdamWOptions{.lr = 1e-3});
    const Tensor tokens = randint(0, 512, {batch, 256});
    return classifier(batch, model, optimizer, tokens, labels(batch * 256, 512));
  }
  if (name == "pointwise") {
    batch = batch ? batch : 16'777'216;
    auto x = std::make_shared<Tensor>(randn({batch}));
    x->requires_grad_();
    return {batch, x, [x] {
              const Tensor& a = *x;
              const Tensor loss = (((a * 1.1 + 0.1).tanh() * a.sigmoid() - a * a).gelu() + a * 0.5).sum();
              loss.backward();
              x->zero_grad();
              return loss.detach();
            }};
  }
  if (name == "layernorm") {
    batch = batch ? batch : 8192;
    struct State {
      Tensor x, w, b, g;
    };
    auto s = std::make_shared<State>(
        State{randn({batch, 1024}), ones({1024}), zeros({1024}), randn({batch, 1024})});
    for (Tensor* t : {&s->x, &s->w, &s->b}) t->requires_grad_();
    return {batch, s, [s] {
              const Tensor y = s->x + layer_norm(s->x, s->w, s->b).gelu();
              y.backward(s->g);
              const Tensor first = y.detach()[{0, 0}].clone();
              for (Tensor* t : {&s->x, &s->w, &s->b}) t->zero_grad();
              return first;
            }};
  }
  fail<ValueError>("train_step: expected --model=mlp|resnet18|resnet50|gpt|pointwise|layernorm, got ", name);
}

// The compile time of the same step in a new process, which finds this one's kernels in the cache.
double warm_compile_ms() {
  const std::string command = join_text(
      {"/proc/self/exe --json --compile_only --steps=1 --mode=compiled --model=", absl::GetFlag(FLAGS_model),
       " --batch=", absl::GetFlag(FLAGS_batch), " --threads=", absl::GetFlag(FLAGS_threads)});
  char self[4096];
  const ssize_t length = readlink("/proc/self/exe", self, sizeof self);
  const std::string line =
      std::string(self, length > 0 ? length : 0) + command.substr(sizeof "/proc/self/exe" - 1);
  FILE* pipe = popen(line.c_str(), "r");
  if (!pipe) return 0;
  std::string text;
  for (int c; (c = fgetc(pipe)) != EOF;) text += static_cast<char>(c);
  pclose(pipe);
  const Json json = Json::parse(text, nullptr, false);
  return json.is_object() ? json["compile_ms"].get<double>() : 0;
}

// Median over some calls of what is not spent in the plan's steps, which are timed one by one meanwhile.
template <class F>
double host_microseconds(F& traced) {
  const auto step_ms = [&] {
    double sum = 0;
    const Json report = Json::parse(traced.explain_json());
    for (const Json& path : report["paths"])
      for (const Json& executable : path["executables"])
        for (const Json& step : executable["step_times"]) sum += step["ms"].template get<double>();
    return sum;
  };
  const int level = std::exchange(config().log_level, 3);
  std::vector<double> host;
  for (int i = 0; i < 9; ++i) {
    const double before = step_ms();
    const auto start = Clock::now();
    traced();
    const double call = ms_since(start);
    host.push_back(1000 * (call - (step_ms() - before)));
  }
  config().log_level = level;
  std::sort(host.begin(), host.end());
  return host[host.size() / 2];
}

Json measure() {
  const std::string model = absl::GetFlag(FLAGS_model), mode = absl::GetFlag(FLAGS_mode);
  ETCH_CHECK(mode == "eager" || mode == "compiled", ValueError,
             "train_step: expected --mode=eager|compiled, got ", mode);
  ETCH_CHECK(absl::GetFlag(FLAGS_device) == "cpu", DeviceError, "train_step: expected --device=cpu, got ",
             absl::GetFlag(FLAGS_device));
  if (absl::GetFlag(FLAGS_threads) > 0) set_num_threads(absl::GetFlag(FLAGS_threads));
  manual_seed(static_cast<uint64_t>(absl::GetFlag(FLAGS_seed)));
  Workload work = make_workload(model, absl::GetFlag(FLAGS_batch));

  std::vector<float> losses;
  std::vector<double> times;
  auto traced = compile(work.step, {.name = model});
  const auto run = [&] {
    const auto start = Clock::now();
    const Tensor loss = mode == "compiled" ? traced() : work.step();
    const float value = loss.item<float>();
    const double ms = ms_since(start);
    losses.push_back(value);
    return ms;
  };
  for (int i = 0; i < 3; ++i) run();
  reset_peak_memory();
  for (int i = 0; i < absl::GetFlag(FLAGS_steps); ++i) times.push_back(run());
  const MemoryStats memory = memory_stats();
  std::sort(times.begin(), times.end());

  Json json;
  json["model"] = model;
  json["batch"] = work.batch;
  json["mode"] = mode;
  json["device"] = "cpu";
  json["dtype"] = "f32";
  json["threads"] = num_threads();
  json["step_ms"] = times[times.size() / 2];
  json["step_ms_min"] = times.front();
  Json bytes;
  for (int i = 0; i < kNumMemoryCategories; ++i)
    bytes[std::string(name(static_cast<MemoryCategory>(i)))] = memory.at_peak[i];
  double compile_ms = 0, warm_ms = 0, host_us = 0;
  int64_t ops = 0;
  if (mode == "compiled") {
    const Json report = Json::parse(traced.explain_json());
    for (const Json& path : report["paths"]) {
      compile_ms += path["compile_ms"].get<double>();
      ops += path["ops"].get<int64_t>();
    }
    warm_ms = absl::GetFlag(FLAGS_compile_only) ? 0 : warm_compile_ms();
    host_us = host_microseconds(traced);
  }
  if (absl::GetFlag(FLAGS_explain)) std::fprintf(stderr, "%s", traced.explain().c_str());
  json["compile_ms"] = compile_ms;
  json["compile_warm_ms"] = warm_ms;
  json["peak_bytes"] = memory.peak_allocated;
  json["bytes"] = bytes;
  json["arena_bytes"] = traced.memory().arena;
  json["lower_bound_bytes"] = traced.memory().lower_bound;
  json["host_us"] = host_us;
  json["ops"] = ops;
  json["loss"] = losses;
  return json;
}

}  // namespace

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage("Time and memory of a training step, eager or compiled.");
  absl::ParseCommandLine(argc, argv);
  try {
    const Json json = measure();
    if (absl::GetFlag(FLAGS_json)) {
      std::printf("%s\n", json.dump().c_str());
    } else {
      std::printf("%s batch %ld %s: %.2f ms a step (least %.2f), peak %.1f MiB\n",
                  json["model"].get<std::string>().c_str(), json["batch"].get<int64_t>(),
                  json["mode"].get<std::string>().c_str(), json["step_ms"].get<double>(),
                  json["step_ms_min"].get<double>(), json["peak_bytes"].get<double>() / (1 << 20));
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
