// Which composites have fused kernels.
#include "eager/cpu/composites.h"

namespace etch::cpu {

bool run_composite(const OpCall&, void*) { return false; }
size_t composite_scratch_bytes(const OpCall&) { return 0; }

}  // namespace etch::cpu
