// Residual blocks and the networks made of them.
#include "nn/models/resnet.h"

#include "eager/functional.h"
#include "nn/init.h"

namespace etch::nn {

namespace {

Conv2d plain_conv(int64_t in, int64_t out, int kernel, int64_t stride = 1) {
  return Conv2d(
      {.in = in, .out = out, .kernel = kernel, .stride = stride, .padding = kernel / 2, .bias = false});
}

/// Where the shape changes: a 1x1 convolution and its normalisation. Otherwise empty: the identity.
Sequential shortcut(int64_t in, int64_t out, int64_t stride) {
  if (in == out && stride == 1) return {};
  return Sequential(plain_conv(in, out, 1, stride), BatchNorm2d(out));
}

class BasicBlock : public Module {
 public:
  BasicBlock(int64_t in, int64_t width, int64_t stride)
      : conv1_(plain_conv(in, width, 3, stride)),
        bn1_(width),
        conv2_(plain_conv(width, width, 3)),
        bn2_(width),
        downsample_(shortcut(in, width, stride)) {
    register_module("conv1", conv1_);
    register_module("bn1", bn1_);
    register_module("conv2", conv2_);
    register_module("bn2", bn2_);
    if (!downsample_.empty()) register_module("downsample", downsample_);
  }
  Tensor forward(const Tensor& x) override {
    const Tensor y = bn2_(conv2_(bn1_(conv1_(x)).relu()));
    return (y + (downsample_.empty() ? x : downsample_(x))).relu();
  }

 private:
  Conv2d conv1_;
  BatchNorm2d bn1_;
  Conv2d conv2_;
  BatchNorm2d bn2_;
  Sequential downsample_;
};

class Bottleneck : public Module {
 public:
  static constexpr int64_t kExpansion = 4;

  Bottleneck(int64_t in, int64_t width, int64_t stride)
      : conv1_(plain_conv(in, width, 1)),
        bn1_(width),
        conv2_(plain_conv(width, width, 3, stride)),
        bn2_(width),
        conv3_(plain_conv(width, width * kExpansion, 1)),
        bn3_(width * kExpansion),
        downsample_(shortcut(in, width * kExpansion, stride)) {
    register_module("conv1", conv1_);
    register_module("bn1", bn1_);
    register_module("conv2", conv2_);
    register_module("bn2", bn2_);
    register_module("conv3", conv3_);
    register_module("bn3", bn3_);
    if (!downsample_.empty()) register_module("downsample", downsample_);
  }
  Tensor forward(const Tensor& x) override {
    const Tensor y = bn3_(conv3_(bn2_(conv2_(bn1_(conv1_(x)).relu())).relu()));
    return (y + (downsample_.empty() ? x : downsample_(x))).relu();
  }

 private:
  Conv2d conv1_;
  BatchNorm2d bn1_;
  Conv2d conv2_;
  BatchNorm2d bn2_;
  Conv2d conv3_;
  BatchNorm2d bn3_;
  Sequential downsample_;
};

int64_t expansion(ResNetBlock block) { return block == ResNetBlock::Basic ? 1 : Bottleneck::kExpansion; }

Conv2d stem(const ResNetOptions& o) {
  if (o.stem == ResNetStem::Small) return plain_conv(o.channels, o.width, 3);
  return plain_conv(o.channels, o.width, 7, 2);
}

ResNetOptions checked(ResNetOptions o) {
  ETCH_CHECK(!o.depths.empty() && o.width > 0 && o.channels > 0 && o.classes > 0, ValueError,
             "ResNet: expected stages and positive extents, got ", o.depths.size(), " stages, width ",
             o.width, ", channels ", o.channels, ", classes ", o.classes);
  for (int64_t depth : o.depths)
    ETCH_CHECK(depth > 0, ValueError, "ResNet: expected at least one block a stage, got ", depth);
  return o;
}

int64_t last_width(const ResNetOptions& o) { return (o.width << (o.depths.size() - 1)) * expansion(o.block); }

}  // namespace

ResNet::ResNet(ResNetOptions o)
    : options(checked(std::move(o))),
      conv1(stem(options)),
      bn1(options.width),
      fc(last_width(options), options.classes) {
  register_module("conv1", conv1);
  register_module("bn1", bn1);
  int64_t in = options.width;
  for (size_t s = 0; s < options.depths.size(); ++s) {
    const int64_t width = options.width << s;
    Sequential stage;
    for (int64_t i = 0; i < options.depths[s]; ++i) {
      const int64_t stride = s > 0 && i == 0 ? 2 : 1;
      if (options.block == ResNetBlock::Basic)
        stage.push_back(BasicBlock(in, width, stride));
      else
        stage.push_back(Bottleneck(in, width, stride));
      in = width * expansion(options.block);
    }
    register_module("layer" + std::to_string(s + 1), stage);
    stages.push_back(std::move(stage));
  }
  register_module("fc", fc);
  apply([](const std::string&, ModuleNode& node) {
    if (Tensor weight = node.find("weight"); weight.defined() && weight.ndim() == 4)
      init::kaiming_normal_(weight, {.mode = init::FanMode::Out, .nonlinearity = init::Nonlinearity::ReLU});
  });
}

Tensor ResNet::forward(const Tensor& x) {
  Tensor y = bn1(conv1(x)).relu();
  if (options.stem == ResNetStem::ImageNet)
    y = max_pool2d(y, {.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}});
  for (Sequential& stage : stages) y = stage(y);
  return fc(global_avg_pool2d(y).flatten(1));
}

ResNet resnet18_cifar(int64_t classes, int64_t channels) {
  return ResNet({.stem = ResNetStem::Small, .channels = channels, .classes = classes});
}

ResNet resnet18(int64_t classes) { return ResNet({.classes = classes}); }

ResNet resnet50(int64_t classes) {
  return ResNet({.block = ResNetBlock::Bottleneck, .depths = {3, 4, 6, 3}, .classes = classes});
}

ResNet resnet_tiny(int64_t classes, int64_t channels) {
  return ResNet({.stem = ResNetStem::Small,
                 .depths = {1, 1, 1},
                 .width = 16,
                 .channels = channels,
                 .classes = classes});
}

}  // namespace etch::nn
