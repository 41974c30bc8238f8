// index_select, index_add, gather and scatter_add on the CPU.
#pragma once

#include "tracer/op.h"

namespace etch::cpu {

/// All indices are checked before anything is written. Sums add in the order of the index, rounded to the
/// dtype each time.
void run_indexing(const OpCall& call);

}  // namespace etch::cpu
