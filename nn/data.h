// Datasets and the loader.
#pragma once

#include "nn/data/augment.h"
#include "nn/data/cifar10.h"
#include "nn/data/dataset.h"
#include "nn/data/idx.h"
#include "nn/data/loader.h"
