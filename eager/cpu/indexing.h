// index_select, index_add, gather and scatter_add on the CPU.
#pragma once

#include "tracer/op.h"

namespace etch::cpu {

/// Indices have been checked (check_data). Sums add in the order of the index, rounded to the dtype each
/// time.
void run_indexing(const OpCall& call);

}  // namespace etch::cpu
