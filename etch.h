// Everything a user of Etch includes.
#pragma once

#include "eager/function.h"
#include "eager/functional.h"
#include "eager/grad.h"
#include "eager/tensor.h"
#include "jit/compile.h"
#include "nn/data.h"
#include "nn/layers.h"
#include "nn/models.h"
#include "nn/optim.h"
#include "runtime/allocator.h"
#include "runtime/config.h"
#include "runtime/error.h"
#include "runtime/parallel.h"
#include "runtime/philox.h"
