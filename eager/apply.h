// The one door through which every op goes: shape rules, then deferral or execution. No tape here.
#pragma once

#include <span>

#include "eager/tensor.h"
#include "tracer/attrs.h"
#include "tracer/op.h"

namespace etch {

/// Applies `op` to operands that already have the dtype the op wants (see promote_operands). Undefined
/// `outputs` are made, defined ones are written in place (their version goes up). An undefined tensor among
/// the operands is an absent one. `given`: see infer().
void apply(Op op, std::span<const Arg> operands, const Attrs& attrs, DType given, std::span<Tensor> outputs);

/// The same for ops with one output.
Tensor apply(Op op, std::initializer_list<Arg> operands, const Attrs& attrs = {}, DType given = DType::F32);

/// PyTorch's result type: tensors with dimensions count before 0-d ones, and those before scalars, unless of
/// a higher kind.
DType result_type(std::span<const Arg> operands);

/// Throws ShapeError, naming `op`, unless the sizes are 0 or more and their product below 2^56.
void check_sizes(std::string_view op, const Dims& sizes);
/// A descriptor over `storage`.
Tensor make_tensor(Ref<Storage> storage, const Geometry& geometry, int64_t offset, DType dtype);
/// Uninitialised; deferred inside a trace. Throws ShapeError for too many elements.
Tensor make_empty(const Geometry& geometry, DType dtype, Device device,
                  MemoryCategory category = MemoryCategory::Temporary);
/// Another window on the same storage, not on the tape.
Tensor make_view(const Tensor& base, const Geometry& geometry, int64_t offset);

/// In-place on this tensor is allowed by the tape, with a value that is (`source_on_tape`) on the tape or
/// not; throws AutogradError naming `op` otherwise.
void check_in_place(std::string_view op, const Tensor& tensor, bool source_on_tape);

}  // namespace etch
