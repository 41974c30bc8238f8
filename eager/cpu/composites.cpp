// Which composites have fused kernels.
#include "eager/cpu/composites.h"

namespace etch::cpu {

bool run_composite(const OpCall& call, void* scratch) {
  bool empty = true;
  for (const Operand& output : call.outputs) empty &= output.geometry->numel() == 0;
  if (empty) return true;
  switch (call.op) {
    case Op::softmax:
    case Op::softmax_grad:
    case Op::log_softmax:
    case Op::log_softmax_grad:
      return run_along_axis(call);
    case Op::cross_entropy:
    case Op::cross_entropy_grad:
      return run_cross_entropy(call);
    case Op::layer_norm:
      return run_layer_norm(call);
    case Op::layer_norm_grad:
      return run_layer_norm_grad(call, scratch);
    case Op::batch_norm:
    case Op::batch_norm_grad:
    case Op::batch_norm_eval:
      return run_batch_norm(call, scratch);
    case Op::sgd_step:
    case Op::sgd_plain_step:
    case Op::adam_step:
      return run_optimizer_step(call);
    default:
      return false;
  }
}

size_t composite_scratch_bytes(const OpCall& call) {
  switch (call.op) {
    case Op::layer_norm_grad:
      return call.inputs[1].geometry->numel() == 0 ? 0 : layer_norm_grad_scratch_bytes(call);
    case Op::batch_norm:
    case Op::batch_norm_grad:
      return batch_norm_scratch_bytes(call);
    default:
      return 0;
  }
}

}  // namespace etch::cpu
