// All layers, initialisers and losses, and files of their parameters.
#pragma once

#include "nn/init.h"
#include "nn/layers/activation.h"
#include "nn/layers/conv.h"
#include "nn/layers/linear.h"
#include "nn/layers/norm.h"
#include "nn/layers/sequential.h"
#include "nn/losses.h"
#include "nn/safetensors.h"
