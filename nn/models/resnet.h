// Residual networks (He et al., 2015), with the parameter names, initialisation and counts of torchvision's.
#pragma once

#include "nn/layers/conv.h"
#include "nn/layers/linear.h"
#include "nn/layers/norm.h"
#include "nn/layers/sequential.h"

namespace etch::nn {

enum class ResNetBlock {
  Basic,      ///< two 3x3 convolutions
  Bottleneck  ///< 1x1, 3x3, 1x1; the last four times as wide
};
enum class ResNetStem {
  Small,    ///< 3x3 convolution
  ImageNet  ///< 7x7 convolution of stride 2, then max-pooling of stride 2
};

struct ResNetOptions {
  ResNetBlock block = ResNetBlock::Basic;
  ResNetStem stem = ResNetStem::ImageNet;
  std::vector<int64_t> depths = {2, 2, 2, 2};  ///< blocks a stage; every stage but the first halves H and W
  int64_t width = 64;                          ///< channels of the first stage; each further one doubles them
  int64_t channels = 3;
  int64_t classes = 1000;
};

/// Pictures f32 [N, channels, H, W] -> logits [N, classes]. Convolutions have no bias and start
/// Kaiming-normal in fan-out mode. Throws ValueError for no stages or extents below 1.
class ResNet : public Module {
 public:
  explicit ResNet(ResNetOptions options);
  Tensor forward(const Tensor& x) override;

  ResNetOptions options;
  Conv2d conv1;
  BatchNorm2d bn1;
  std::vector<Sequential> stages;
  Linear fc;
};

/// For 32x32 pictures; 11,173,962 parameters for 10 classes.
ResNet resnet18_cifar(int64_t classes = 10, int64_t channels = 3);
/// For 224x224 pictures.
ResNet resnet18(int64_t classes = 1000);
/// For 224x224 pictures; 25,557,032 parameters for 1000 classes.
ResNet resnet50(int64_t classes = 1000);
/// Three stages of 16, 32 and 64 channels with one block each, for small pictures such as 8x8 digits.
ResNet resnet_tiny(int64_t classes = 10, int64_t channels = 1);

}  // namespace etch::nn
