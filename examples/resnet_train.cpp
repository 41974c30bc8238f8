// Trains a ResNet on pictures, eagerly and compiled from the same seed, and compares losses, times and
// memory.
//
//   resnet_train --data=DIR --model=tiny|resnet18|resnet50 --batch=N --epochs=N
//                --mode=eager|compiled|compare --device=cpu|cuda --seed=N --threads=N --lr=X --json
//
// DIR holds IDX files (MNIST's names) or CIFAR-10's binary files; without it, the handwritten digits that
// come with Etch are used. Step times leave out waiting for data and the first three steps, in which a
// compiled step is recorded and compiled. Memory is the peak over training steps after those, as the
// allocator of all tensors and library scratch counts it.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "examples/flags.h"
#include "examples/progress.h"

ABSL_FLAG(double, lr, 0,
          "learning rate after warm-up; it falls to zero along a cosine; 0: the data's usual rate");

namespace {

using namespace etch;
using examples::Mode;
using Json = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

constexpr int64_t kWarmup = 3, kComparedSteps = 20;

struct Setup {
  std::shared_ptr<const data::Dataset> train, test;
  data::Normalization normalization;
  data::Augmentation augmentation;
  std::string model;
  int64_t batch = 0, epochs = 0;
  double lr = 0, weight_decay = 0;
  Device device;
  uint64_t seed = 0;
  bool quiet = false;
};

struct Epoch {
  double loss = 0;  ///< mean over the steps
  double accuracy = 0;
};

struct Result {
  std::vector<float> losses;  ///< of every step
  std::vector<Epoch> epochs;
  double step_ms = 0;  ///< median
  MemoryStats peak;
  CompiledMemory plan;
  int compiles = 0;
  int64_t compiled_calls = 0, eager_calls = 0;
  std::string explanation;
};

nn::ResNet make_model(const Setup& setup) {
  const int64_t channels = setup.train->channels;
  const int64_t classes = static_cast<int64_t>(setup.train->classes.size());
  if (setup.model == "tiny") return nn::resnet_tiny(classes, channels);
  if (setup.model == "resnet18") return nn::resnet18_cifar(classes, channels);
  ETCH_CHECK(setup.model == "resnet50", ValueError, "--model: expected tiny, resnet18 or resnet50, got ",
             setup.model);
  return nn::ResNet({.block = nn::ResNetBlock::Bottleneck,
                     .depths = {3, 4, 6, 3},
                     .channels = channels,
                     .classes = classes});
}

/// The share of test pictures whose largest logit is their label's.
double test_accuracy(nn::ResNet& model, const Setup& setup) {
  NoGrad guard;
  model.eval();
  data::DataLoader loader(setup.test, {.batch = 256, .normalization = setup.normalization});
  int64_t right = 0;
  for (auto& [images, labels] : loader) {
    const Tensor hits = model(images.to(setup.device)).argmax(1) == labels.to(setup.device);
    right += hits.sum().item<int64_t>();
  }
  model.train();
  return static_cast<double>(right) / static_cast<double>(setup.test->size());
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

Result train(const Setup& setup, bool compiled) {
  manual_seed(setup.seed);
  nn::ResNet model = make_model(setup);
  model.to(setup.device);
  data::DataLoader loader(setup.train, {.batch = setup.batch,
                                        .shuffle = true,
                                        .drop_last = true,
                                        .seed = setup.seed,
                                        .augment = setup.augmentation,
                                        .normalization = setup.normalization});
  optim::Sgd optimizer(
      model.parameters(),
      {.lr = setup.lr, .momentum = 0.9, .weight_decay = setup.weight_decay, .nesterov = true});
  const int64_t steps = loader.size(), total = steps * setup.epochs,
                warmup = std::max<int64_t>(1, total / 10);
  optim::CosineLr cosine(optimizer, {.steps = std::max<int64_t>(1, total - warmup)});
  optim::LinearWarmup schedule(optimizer, {.steps = warmup, .start = 0.1, .after = &cosine});

  const auto body = [&](const Tensor& x, const Tensor& y) {
    Tensor loss = nn::cross_entropy(model(x), y);
    loss.backward();
    optimizer.step();
    optimizer.zero_grad();
    return loss;
  };
  auto step = compile(body, {.name = "train"});

  Result result;
  std::vector<double> times;
  examples::Progress progress(compiled ? "compiled" : "eager   ", setup.epochs, steps, setup.batch,
                              !setup.quiet);
  for (int64_t epoch = 0; epoch < setup.epochs; ++epoch) {
    double sum = 0;
    int64_t done = 0;
    if (epoch > 0) reset_peak_memory(setup.device);
    for (auto& [images, labels] : loader) {
      if (epoch == 0 && done == kWarmup) reset_peak_memory(setup.device);
      const Tensor x = images.to(setup.device), y = labels.to(setup.device);
      const auto start = Clock::now();
      const float loss = (compiled ? step(x, y) : body(x, y)).item<float>();
      const double ms = std::chrono::duration<double, std::milli>(Clock::now() - start).count();
      schedule.step();
      if (epoch > 0 || done >= kWarmup) times.push_back(ms);
      result.losses.push_back(loss);
      sum += loss;
      progress.update(epoch + 1, ++done, loss);
    }
    const MemoryStats stats = memory_stats(setup.device);
    if (stats.peak_allocated > result.peak.peak_allocated) result.peak = stats;
    result.epochs.push_back({sum / static_cast<double>(steps), test_accuracy(model, setup)});
  }
  progress.finish();
  result.step_ms = median(times);
  if (compiled) {
    result.plan = step.memory();
    result.compiles = step.compile_count();
    result.compiled_calls = step.compiled_calls();
    result.eager_calls = step.eager_calls();
    result.explanation = step.explain();
  }
  return result;
}

Json to_json(const Result& result) {
  Json json, bytes;
  json["step_ms"] = result.step_ms;
  json["peak_bytes"] = result.peak.peak_allocated;
  for (int i = 0; i < kNumMemoryCategories; ++i)
    bytes[std::string(name(static_cast<MemoryCategory>(i)))] = result.peak.at_peak[i];
  json["bytes"] = bytes;
  json["arena_bytes"] = result.plan.arena;
  json["lower_bound_bytes"] = result.plan.lower_bound;
  json["compiles"] = result.compiles;
  json["compiled_calls"] = result.compiled_calls;
  json["eager_calls"] = result.eager_calls;
  json["loss"] = result.losses;
  for (const Epoch& epoch : result.epochs) {
    json["epoch_loss"].push_back(epoch.loss);
    json["test_accuracy"].push_back(epoch.accuracy);
  }
  return json;
}

/// The largest relative difference of the losses over the first `count` steps.
double largest_difference(const Result& a, const Result& b, size_t count) {
  double largest = 0;
  for (size_t i = 0; i < std::min(count, a.losses.size()); ++i) {
    const double size = std::max(std::abs(a.losses[i]), std::abs(b.losses[i]));
    if (size > 0) largest = std::max(largest, std::abs(double{a.losses[i]} - b.losses[i]) / size);
  }
  return largest;
}

double mebibytes(int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

int64_t beyond_state(const MemoryStats& peak) {
  return peak.peak_allocated - peak.at_peak[static_cast<int>(MemoryCategory::Parameter)] -
         peak.at_peak[static_cast<int>(MemoryCategory::OptimizerState)];
}

double saving(double eager, double compiled) { return eager > 0 ? 100 * (1 - compiled / eager) : 0; }

void print_epochs(const std::vector<const Result*>& runs, const std::vector<const char*>& names) {
  std::printf("\n%5s", "epoch");
  for (const char* name : names)
    std::printf("  %14s  %14s", (std::string(name) + " loss").c_str(), "test accuracy");
  std::printf("\n");
  for (size_t i = 0; i < runs[0]->epochs.size(); ++i) {
    std::printf("%5zu", i + 1);
    for (const Result* run : runs)
      std::printf("  %14.6f  %13.2f%%", run->epochs[i].loss, 100 * run->epochs[i].accuracy);
    std::printf("\n");
  }
}

void print_costs(const std::vector<const Result*>& runs, const std::vector<const char*>& names) {
  const bool both = runs.size() == 2;
  std::printf("\n%-34s", "");
  for (const char* name : names) std::printf("  %10s", name);
  std::printf(both ? "  %10s\n" : "\n", "saving");
  const auto row = [&](const char* title, auto value) {
    std::printf("%-34s", title);
    for (const Result* run : runs) std::printf("  %10.3f", value(*run));
    if (both && value(*runs[0]) > 0) std::printf("  %9.1f%%", saving(value(*runs[0]), value(*runs[1])));
    std::printf("\n");
  };
  row("step, median, ms", [](const Result& r) { return r.step_ms; });
  row("peak memory, MiB", [](const Result& r) { return mebibytes(r.peak.peak_allocated); });
  for (int i = 0; i < kNumMemoryCategories; ++i) {
    std::string title = "  " + std::string(name(static_cast<MemoryCategory>(i)));
    std::replace(title.begin(), title.end(), '_', ' ');
    row(title.c_str(), [i](const Result& r) { return mebibytes(r.peak.at_peak[i]); });
  }
  row("beyond parameters and their state", [](const Result& r) { return mebibytes(beyond_state(r.peak)); });
  const Result& last = *runs.back();
  if (last.plan.lower_bound > 0)
    std::printf("planned arena %.3f MiB, lower bound %.3f MiB: a ratio of %.4f\n", mebibytes(last.plan.arena),
                mebibytes(last.plan.lower_bound),
                static_cast<double>(last.plan.arena) / static_cast<double>(last.plan.lower_bound));
}

Setup read_flags() {
  Setup setup;
  std::string directory = absl::GetFlag(FLAGS_data);
  if (directory.empty()) directory = ETCH_EXAMPLE_DATA "/digits";
  setup.train = std::make_shared<const data::Dataset>(data::load(directory, data::Split::Train));
  setup.test = std::make_shared<const data::Dataset>(data::load(directory, data::Split::Test));
  ETCH_CHECK(setup.train->image_size() == setup.test->image_size(), IoError,
             "--data: expected training and test pictures of one size, got ", setup.train->image_size(),
             " and ", setup.test->image_size(), " pixels");
  setup.normalization = data::channel_statistics(*setup.train);
  const bool photos = setup.train->channels == 3;
  setup.augmentation = photos ? data::Augmentation{.crop_padding = 4, .flip = true}
                              : data::Augmentation{.crop_padding = setup.train->height >= 28 ? 2 : 1};
  setup.model = absl::GetFlag(FLAGS_model);
  if (setup.model.empty()) setup.model = photos ? "resnet18" : "tiny";
  setup.batch = examples::count_flag(FLAGS_batch, "batch", photos ? 64 : 32);
  setup.epochs = examples::count_flag(FLAGS_epochs, "epochs", photos ? 5 : 30);
  setup.lr = absl::GetFlag(FLAGS_lr) != 0 ? absl::GetFlag(FLAGS_lr) : photos ? 0.05 : 0.1;
  setup.weight_decay = photos ? 5e-4 : 5e-3;
  setup.device = examples::device_flag();
  setup.seed = absl::GetFlag(FLAGS_seed);
  setup.quiet = absl::GetFlag(FLAGS_json);
  // The tiny model's kernels are too short to be shared among threads.
  const int64_t threads = examples::count_flag(FLAGS_threads, "threads", setup.model == "tiny" ? 1 : 0);
  if (threads > 0) set_num_threads(static_cast<int>(threads));
  return setup;
}

void run() {
  const Mode mode = examples::mode_flag();
  const Setup setup = read_flags();
  if (!setup.quiet)
    std::printf("%s on %lld pictures of %lldx%lldx%lld, batch %lld, threads %d, seed %llu\n",
                setup.model.c_str(), static_cast<long long>(setup.train->size()),
                static_cast<long long>(setup.train->channels), static_cast<long long>(setup.train->height),
                static_cast<long long>(setup.train->width), static_cast<long long>(setup.batch),
                num_threads(), static_cast<unsigned long long>(setup.seed));
  std::vector<Result> results;
  std::vector<const char*> names;
  if (mode != Mode::Compiled) {
    results.push_back(train(setup, false));
    names.push_back("eager");
  }
  if (mode != Mode::Eager) {
    results.push_back(train(setup, true));
    names.push_back("compiled");
  }
  if (setup.quiet) {
    Json json = {{"model", setup.model},   {"batch", setup.batch},
                 {"epochs", setup.epochs}, {"device", to_string(setup.device)},
                 {"seed", setup.seed},     {"threads", num_threads()}};
    for (size_t i = 0; i < results.size(); ++i) json[names[i]] = to_json(results[i]);
    if (results.size() == 2) {
      json["loss_difference_first_20"] = largest_difference(results[0], results[1], kComparedSteps);
      json["loss_difference"] = largest_difference(results[0], results[1], results[0].losses.size());
    }
    std::printf("%s\n", json.dump().c_str());
    return;
  }
  std::vector<const Result*> runs;
  for (const Result& result : results) runs.push_back(&result);
  print_epochs(runs, names);
  print_costs(runs, names);
  if (runs.size() == 2)
    std::printf("losses differ by at most %.2g relative over the first %lld steps, %.2g over all %zu\n",
                largest_difference(*runs[0], *runs[1], kComparedSteps),
                static_cast<long long>(kComparedSteps),
                largest_difference(*runs[0], *runs[1], runs[0]->losses.size()), runs[0]->losses.size());
  if (mode == Mode::Compiled) std::printf("\n%s", results[0].explanation.c_str());
}

}  // namespace

int main(int argc, char** argv) {
  examples::parse_flags("Trains a ResNet on pictures, eagerly and compiled, and compares the two.", argc,
                        argv);
  try {
    run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "resnet_train: %s\n", error.what());
    return 1;
  }
  return 0;
}
