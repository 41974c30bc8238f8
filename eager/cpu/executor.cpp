// Dispatches every op of the table to its kernels.
#include "eager/cpu/executor.h"

#include "eager/cpu/composites.h"
#include "eager/cpu/contractions.h"
#include "eager/cpu/indexing.h"
#include "eager/cpu/pointwise.h"
#include "eager/cpu/reduction.h"

namespace etch::cpu {

bool run(const OpCall& call, void* scratch) {
  switch (info(call.op).kind) {
    case OpKind::Pointwise:
      call.op == Op::copy ? run_copy(call) : run_pointwise(call);
      return true;
    case OpKind::Generator:
      run_generator(call);
      return true;
    case OpKind::Reduction:
      run_reduction(call, scratch);
      return true;
    case OpKind::Extremum:
      run_arg_reduction(call);
      return true;
    case OpKind::Contraction:
      run_contraction(call, scratch);
      return true;
    case OpKind::Window:
      run_window(call);
      return true;
    case OpKind::Indexing:
      run_indexing(call);
      return true;
    case OpKind::Composite:
      return run_composite(call, scratch);
    case OpKind::Group:
      break;
  }
  return false;
}

size_t scratch_bytes(const OpCall& call) {
  switch (info(call.op).kind) {
    case OpKind::Reduction:
      return reduction_scratch_bytes(call);
    case OpKind::Contraction:
      return contraction_scratch_bytes(call);
    case OpKind::Composite:
      return composite_scratch_bytes(call);
    default:
      return 0;
  }
}

}  // namespace etch::cpu
