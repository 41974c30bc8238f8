// All models.
#pragma once

#include "nn/models/gpt.h"
#include "nn/models/mlp.h"
#include "nn/models/resnet.h"
