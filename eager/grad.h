// Gradients as return values, with .grad left alone.
#pragma once

#include <vector>

#include "eager/tensor.h"

namespace etch {

struct GradOptions {
  bool retain_graph = false;
  bool create_graph = false;  ///< implies retain_graph; what is returned can be differentiated again
  bool allow_unused = false;  ///< an undefined tensor for an input that the output does not depend on
};

/// The gradients of `output` with respect to `inputs`, leaves or results of ops, in their order: what
/// backward() would add to .grad, which stays as it is for these and all others. Each has its input's sizes
/// and dtype; an input given twice gets one tensor twice. `gradient` has the output's sizes and may be left
/// out for a one-element output. Only nodes between output and inputs run; hooks there do too. Throws
/// ValueError for no inputs, ShapeError for a gradient of other sizes or one left out, AutogradError for an
/// output or input that does not require gradients or, unless allow_unused, an input that the output does not
/// depend on; else as backward().
///
///   const Tensor g = grad(critic(x).sum(), {x}, {}, {.create_graph = true})[0];
///   const Tensor penalty = (g.square().sum({1}).sqrt() - 1).square().mean();
std::vector<Tensor> grad(const Tensor& output, const std::vector<Tensor>& inputs, const Tensor& gradient = {},
                         GradOptions options = {});

}  // namespace etch
