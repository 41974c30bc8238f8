// LibTorch's time and memory for the training steps that bench/train_step measures, to be run beside it.
//
//   libtorch_train_step --model mlp|resnet18|resnet50|gpt|pointwise|layernorm [--batch N] [--steps N]
//                       [--threads N] [--nchw] [--json]
//
// --batch is the first extent of the input: pictures, sequences, elements for pointwise, rows for layernorm.
// f32, channels-last for the ResNets, gradients set to none every step. peak_bytes counts everything that
// goes through LibTorch's CPU allocator.
//
// The program sets the environment in which LibTorch was fastest (1.13.1, two cores) and starts itself again;
// what the user has set stays:
// - OpenBLAS built on OpenMP (package libopenblas0-openmp), so that there is one thread pool. With the build
//   on pthreads, Debian's default, two pools fight: 21 to 32 ms against 8 for the MLP, 640 against 370 for
//   GPT.
// - OMP_PROC_BIND=true. OMP_WAIT_POLICY is left alone: passive costs the MLP a factor of 2.
// - A malloc that keeps its memory, in huge pages: pointwise 210 ms against 590, layernorm 24 against 77.
#include <c10/core/CPUAllocator.h>
#include <glob.h>
#include <torch/torch.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

namespace {

namespace nn = torch::nn;
using torch::Tensor;

// Counts live and peak bytes; the size stands in front of each block, whose alignment is LibTorch's 64.
class CountingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) const override {
    void* block = nullptr;
    if (posix_memalign(&block, kHeader, bytes + kHeader) != 0) throw std::bad_alloc();
    *static_cast<size_t*>(block) = bytes;
    const int64_t live = live_ += static_cast<int64_t>(bytes);
    int64_t peak = peak_;
    while (live > peak && !peak_.compare_exchange_weak(peak, live)) {
    }
    void* data = static_cast<char*>(block) + kHeader;
    return {data, data, &release, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }

  static void reset_peak() { peak_ = live_.load(); }
  static int64_t peak() { return peak_; }

 private:
  static constexpr size_t kHeader = 64;
  static void release(void* data) {
    if (!data) return;
    void* block = static_cast<char*>(data) - kHeader;
    live_ -= static_cast<int64_t>(*static_cast<size_t*>(block));
    free(block);
  }
  static inline std::atomic<int64_t> live_ = 0;
  static inline std::atomic<int64_t> peak_ = 0;
};

nn::Conv2d conv(int64_t in, int64_t out, int64_t kernel, int64_t stride = 1) {
  return nn::Conv2d(nn::Conv2dOptions(in, out, kernel).stride(stride).padding(kernel / 2).bias(false));
}

// A residual block: two 3x3 convolutions, or with `bottleneck` 1x1, 3x3, 1x1 with four times the width at the
// end.
struct BlockImpl : nn::Module {
  BlockImpl(int64_t in, int64_t width, int64_t stride, bool bottleneck) {
    const int64_t out = bottleneck ? 4 * width : width;
    if (bottleneck) {
      body->push_back(conv(in, width, 1));
      body->push_back(nn::BatchNorm2d(width));
      body->push_back(nn::ReLU(true));
      body->push_back(conv(width, width, 3, stride));
      body->push_back(nn::BatchNorm2d(width));
      body->push_back(nn::ReLU(true));
      body->push_back(conv(width, out, 1));
    } else {
      body->push_back(conv(in, width, 3, stride));
      body->push_back(nn::BatchNorm2d(width));
      body->push_back(nn::ReLU(true));
      body->push_back(conv(width, width, 3));
    }
    body->push_back(nn::BatchNorm2d(out));
    register_module("body", body);
    if (stride != 1 || in != out)
      shortcut = register_module("shortcut", nn::Sequential(conv(in, out, 1, stride), nn::BatchNorm2d(out)));
  }
  Tensor forward(const Tensor& x) {
    return body->forward(x).add_(shortcut ? shortcut->forward(x) : x).relu_();
  }
  nn::Sequential body;
  nn::Sequential shortcut = nullptr;
};
TORCH_MODULE(Block);

nn::Sequential resnet(const std::vector<int>& depths, bool bottleneck, bool cifar_stem, int64_t classes) {
  nn::Sequential net;
  net->push_back(cifar_stem ? conv(3, 64, 3) : conv(3, 64, 7, 2));
  net->push_back(nn::BatchNorm2d(64));
  net->push_back(nn::ReLU(true));
  if (!cifar_stem) net->push_back(nn::MaxPool2d(nn::MaxPool2dOptions(3).stride(2).padding(1)));
  int64_t in = 64;
  for (size_t stage = 0; stage < depths.size(); ++stage) {
    const int64_t width = 64 << stage;
    for (int i = 0; i < depths[stage]; ++i) {
      net->push_back(Block(in, width, i == 0 && stage > 0 ? 2 : 1, bottleneck));
      in = bottleneck ? 4 * width : width;
    }
  }
  net->push_back(nn::AdaptiveAvgPool2d(nn::AdaptiveAvgPool2dOptions(1)));
  net->push_back(nn::Flatten());
  net->push_back(nn::Linear(in, classes));
  return net;
}

constexpr int64_t kVocabulary = 512, kSequence = 256, kWidth = 256, kHeads = 8, kLayers = 4;

struct GptBlockImpl : nn::Module {
  GptBlockImpl() {
    register_module("norm1", norm1);
    register_module("qkv", qkv);
    register_module("projection", projection);
    register_module("norm2", norm2);
    register_module("up", up);
    register_module("down", down);
  }
  Tensor forward(Tensor x, const Tensor& mask) {
    const int64_t batch = x.size(0), head = kWidth / kHeads;
    auto parts = qkv(norm1(x)).view({batch, kSequence, 3, kHeads, head}).permute({2, 0, 3, 1, 4}).unbind(0);
    auto weights = (parts[0].matmul(parts[1].transpose(-2, -1)) * (1.0 / std::sqrt(double(head))))
                       .masked_fill(mask, -INFINITY)
                       .softmax(-1);
    auto mixed = weights.matmul(parts[2]).transpose(1, 2).reshape({batch, kSequence, kWidth});
    x = x + projection(mixed);
    return x + down(torch::gelu(up(norm2(x))));
  }
  nn::LayerNorm norm1{nn::LayerNormOptions({kWidth})}, norm2{nn::LayerNormOptions({kWidth})};
  nn::Linear qkv{kWidth, 3 * kWidth}, projection{kWidth, kWidth}, up{kWidth, 4 * kWidth},
      down{4 * kWidth, kWidth};
};
TORCH_MODULE(GptBlock);

struct GptImpl : nn::Module {
  GptImpl() {
    register_module("tokens", tokens);
    register_module("positions", positions);
    for (int i = 0; i < kLayers; ++i)
      blocks.push_back(register_module("block" + std::to_string(i), GptBlock()));
    register_module("norm", norm);
    register_module("head", head);
  }
  Tensor forward(const Tensor& ids) {
    auto x = tokens(ids) + positions(torch::arange(kSequence));
    for (auto& block : blocks) x = block(x, mask);
    return head(norm(x));
  }
  nn::Embedding tokens{kVocabulary, kWidth}, positions{kSequence, kWidth};
  std::vector<GptBlock> blocks;
  nn::LayerNorm norm{nn::LayerNormOptions({kWidth})};
  nn::Linear head{nn::LinearOptions(kWidth, kVocabulary).bias(false)};
  Tensor mask = torch::ones({kSequence, kSequence}, torch::kBool).triu(1);
};
TORCH_MODULE(Gpt);

using Step = std::function<double()>;

void clear_gradients(const std::vector<Tensor>& parameters) {
  for (const auto& parameter : parameters) parameter.mutable_grad() = Tensor();
}

// A step of `model` on fixed random pictures and labels with SGD.
Step picture_step(nn::Sequential model, Tensor x, int64_t classes, bool channels_last) {
  auto labels = torch::randint(classes, {x.size(0)}, torch::kLong);
  if (channels_last) {
    x = x.contiguous(torch::MemoryFormat::ChannelsLast);
    torch::NoGradGuard no_grad;
    for (auto& parameter : model->parameters())
      if (parameter.dim() == 4) parameter.set_data(parameter.contiguous(torch::MemoryFormat::ChannelsLast));
  }
  auto optimizer = std::make_shared<torch::optim::SGD>(
      model->parameters(), torch::optim::SGDOptions(0.01).momentum(0.9).weight_decay(5e-4));
  return [=]() mutable {
    auto loss = torch::cross_entropy_loss(model->forward(x), labels);
    loss.backward();
    optimizer->step();
    clear_gradients(model->parameters());
    return loss.item<double>();
  };
}

Step gpt_step(int64_t batch) {
  Gpt model;
  auto ids = torch::randint(kVocabulary, {batch, kSequence + 1}, torch::kLong);
  auto input = ids.narrow(1, 0, kSequence).contiguous(), target = ids.narrow(1, 1, kSequence).reshape({-1});
  auto optimizer =
      std::make_shared<torch::optim::AdamW>(model->parameters(), torch::optim::AdamWOptions(1e-3));
  return [=]() mutable {
    auto loss = torch::cross_entropy_loss(model(input).view({-1, kVocabulary}), target);
    loss.backward();
    optimizer->step();
    clear_gradients(model->parameters());
    return loss.item<double>();
  };
}

Step pointwise_step(int64_t elements) {
  auto x = torch::randn({elements}).requires_grad_();
  return [=]() mutable {
    auto loss = (torch::gelu(torch::tanh(x * 1.1 + 0.1) * torch::sigmoid(x) - x * x) + x * 0.5).sum();
    loss.backward();
    clear_gradients({x});
    return loss.item<double>();
  };
}

Step layernorm_step(int64_t rows) {
  auto x = torch::randn({rows, 1024}).requires_grad_(), gradient = torch::randn({rows, 1024});
  auto weight = torch::ones({1024}).requires_grad_(), bias = torch::zeros({1024}).requires_grad_();
  return [=]() mutable {
    auto y = x + torch::gelu(torch::layer_norm(x, {1024}, weight, bias));
    y.backward(gradient);
    clear_gradients({x, weight, bias});
    return y[0][0].item<double>();
  };
}

struct Options {
  std::string model = "resnet18";
  int64_t batch = 0, steps = 20;
  int threads = 0;
  bool channels_last = true, json = false;
};

[[noreturn]] void fail(const std::string& text) {
  std::fprintf(stderr, "libtorch_train_step: %s\n", text.c_str());
  std::exit(2);
}

// Accepts --name value and --name=value.
Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    std::string name = argv[i], value;
    const auto equals = name.find('=');
    if (name == "--json" || name == "--nchw") {
      (name == "--json" ? options.json : options.channels_last) = name == "--json";
      continue;
    }
    if (equals != std::string::npos) {
      value = name.substr(equals + 1);
      name.resize(equals);
    } else if (i + 1 < argc) {
      value = argv[++i];
    }
    if (name == "--model")
      options.model = value;
    else if (name == "--batch")
      options.batch = std::atoll(value.c_str());
    else if (name == "--steps")
      options.steps = std::atoll(value.c_str());
    else if (name == "--threads")
      options.threads = std::atoi(value.c_str());
    else
      fail("expected --model, --batch, --steps, --threads, --nchw or --json, got " + name);
  }
  if (options.steps < 1) fail("--steps: expected at least 1");
  const std::map<std::string, int64_t> batches = {{"mlp", 128}, {"resnet18", 32},        {"resnet50", 8},
                                                  {"gpt", 8},   {"pointwise", 16777216}, {"layernorm", 8192}};
  const auto found = batches.find(options.model);
  if (found == batches.end()) fail("--model: expected one of those in the usage, got " + options.model);
  if (options.threads <= 0) options.threads = static_cast<int>(std::thread::hardware_concurrency());
  if (options.batch <= 0) options.batch = found->second;
  return options;
}

Step make_step(const Options& options) {
  const int64_t batch = options.batch;
  if (options.model == "mlp") {
    nn::Sequential net(nn::Linear(784, 1024), nn::ReLU(true), nn::Linear(1024, 1024), nn::ReLU(true),
                       nn::Linear(1024, 10));
    return picture_step(net, torch::randn({batch, 784}), 10, false);
  }
  if (options.model == "resnet18")
    return picture_step(resnet({2, 2, 2, 2}, false, true, 10), torch::randn({batch, 3, 32, 32}), 10,
                        options.channels_last);
  if (options.model == "resnet50")
    return picture_step(resnet({3, 4, 6, 3}, true, false, 1000), torch::randn({batch, 3, 224, 224}), 1000,
                        options.channels_last);
  if (options.model == "gpt") return gpt_step(batch);
  return options.model == "pointwise" ? pointwise_step(batch) : layernorm_step(batch);
}

// Restarts the program once with the environment described at the top.
void enter_best_environment(char** argv) {
  const char* kMark = "LIBTORCH_TRAIN_STEP_RESTARTED";
  if (getenv(kMark)) return;
  setenv(kMark, "1", 1);
  setenv("OMP_PROC_BIND", "true", 0);
  setenv("MALLOC_MMAP_MAX_", "0", 0);
  setenv("MALLOC_TRIM_THRESHOLD_", "100000000000", 0);
  setenv("MALLOC_TOP_PAD_", "67108864", 0);
  setenv("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1", 0);
  glob_t found;
  if (glob("/usr/lib/*/openblas-openmp", 0, nullptr, &found) == 0)
    setenv("LD_LIBRARY_PATH", found.gl_pathv[0], 0);
  else
    std::fprintf(stderr,
                 "libtorch_train_step: expected libopenblas0-openmp; times will be slow without it\n");
  execv("/proc/self/exe", argv);
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = parse(argc, argv);
  enter_best_environment(argv);
  CountingAllocator allocator;
  c10::SetCPUAllocator(&allocator, /*priority=*/100);
  torch::set_num_threads(options.threads);
  torch::manual_seed(0);

  const Step step = make_step(options);
  std::vector<double> losses, times;
  for (int64_t i = 0; i < 3; ++i) losses.push_back(step());  // also creates the optimiser's state
  CountingAllocator::reset_peak();
  for (int64_t i = 0; i < options.steps; ++i) {
    const auto start = std::chrono::steady_clock::now();
    losses.push_back(step());
    times.push_back(
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
  }
  std::sort(times.begin(), times.end());
  const double median = times[times.size() / 2];

  if (!options.json) {
    std::printf("%s, batch %lld, LibTorch, %d threads: %.2f ms a step (least %.2f), peak %.1f MiB, loss %g\n",
                options.model.c_str(), static_cast<long long>(options.batch), torch::get_num_threads(),
                median, times.front(), double(CountingAllocator::peak()) / (1 << 20), losses.back());
    return 0;
  }
  std::printf(
      "{\"model\": \"%s\", \"batch\": %lld, \"mode\": \"libtorch\", \"device\": \"cpu\", \"dtype\": \"f32\", "
      "\"threads\": %d, \"step_ms\": %.4f, \"step_ms_min\": %.4f, \"peak_bytes\": %lld, \"loss\": [",
      options.model.c_str(), static_cast<long long>(options.batch), torch::get_num_threads(), median,
      times.front(), static_cast<long long>(CountingAllocator::peak()));
  for (size_t i = 0; i < losses.size(); ++i) std::printf("%s%.9g", i ? ", " : "", losses[i]);
  std::printf("]}\n");
  return 0;
}
