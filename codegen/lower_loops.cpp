// The second half of lowering: loops in memory order, merged where all windows allow, and their arguments.
#include <algorithm>

#include "codegen/hash.h"
#include "codegen/lowering.h"

namespace etch::codegen {
namespace {

/// Whether `outer` and `inner` step as one dimension in every window.
bool mergeable(const std::vector<Strides>& windows, int outer, int inner, int64_t inner_size) {
  return std::all_of(windows.begin(), windows.end(),
                     [&](const Strides& s) { return s[outer] == s[inner] * inner_size; });
}

std::string kernel_name(const LoopNest& nest, const std::string& structure) {
  std::string text = "k";
  int ops = 0;
  for (const LoopValue& value : nest.values) {
    const bool computed = value.kind == LoopValue::Kind::Op || value.kind == LoopValue::Kind::Reduction;
    if (!computed || ++ops > 4) continue;
    text += '_';
    text += name(value.op);
  }
  if (ops > 4) text += join_text({"_and_", ops - 4});
  return text + "_" + Hash128::of(structure).hex().substr(0, 16);
}

}  // namespace

void Lowering::add_loop(LoopRole role, const std::vector<int>& group) {
  std::vector<Strides> strides;
  for (const Window& window : windows_) strides.push_back(window.strides);
  // Each merged dimension steps by its innermost member.
  std::vector<std::pair<int, int64_t>> merged;
  for (size_t i = group.size(); i-- > 0;) {
    if (!merged.empty() && mergeable(strides, group[i], merged.back().first, merged.back().second))
      merged.back().second *= size_[group[i]];
    else
      merged.emplace_back(group[i], size_[group[i]]);
  }
  for (size_t i = merged.size(); i-- > 0;) {
    nest_.dims.push_back({role, merged[i].second});
    loop_groups_.push_back({merged[i].first});
  }
}

void Lowering::make_loops() {
  std::vector<int> kept, outer, run, reduced;
  const bool rows = nest_.kind == LoopNest::Kind::Rows;
  for (int i = nd_ - 1; i >= 0; --i) {
    const int dim = order_[i];
    if (!reduced_[dim])
      kept.insert(kept.begin(), dim);
    else if (!rows)
      reduced.insert(reduced.begin(), dim);
    else if (kept.empty() && outer.empty())
      run.insert(run.begin(), dim);
    else
      outer.insert(outer.begin(), dim);
  }
  add_loop(LoopRole::Kept, kept);
  if (!rows) {
    // The innermost merged dimension is the vectorised one.
    if (nest_.dims.empty()) {
      nest_.dims.push_back({LoopRole::Column, 1});
      loop_groups_.push_back({});
    }
    nest_.dims.back().role = LoopRole::Column;
  }
  add_loop(LoopRole::Outer, outer);
  add_loop(LoopRole::Run, run);
  add_loop(LoopRole::Reduced, reduced);

  for (const LoopDim& dim : nest_.dims) {
    if (dim.role == LoopRole::Run) kernel_.run = static_cast<int>(kernel_.dims.size());
    kernel_.dims.push_back(dim.extent);
  }
  if (std::count_if(nest_.dims.begin(), nest_.dims.end(), [](const LoopDim& dim) {
        return dim.role == LoopRole::Run || dim.role == LoopRole::Outer;
      }) != 1)
    kernel_.run = -1;
  for (const Window& window : windows_) {
    LoopWindow& added = nest_.windows.emplace_back(LoopWindow{window.pointer, window.dtype, {}});
    for (size_t k = 0; k < nest_.dims.size(); ++k) {
      const int64_t step = loop_groups_[k].empty() ? 0 : window.strides[loop_groups_[k][0]];
      const bool inner = nest_.dims[k].role == LoopRole::Column ||
                         (nest_.dims[k].role == LoopRole::Run && k + 1 == nest_.dims.size());
      LoopStride stride;
      if (step == 1 && inner) {
        stride.kind = LoopStride::Kind::One;
      } else if (step != 0) {
        stride.kind = LoopStride::Kind::Argument;
        stride.argument = static_cast<int>(kernel_.dims.size());
        kernel_.dims.push_back(step);
      }
      added.strides.push_back(stride);
    }
  }
}

/// Takes `count` partial results of every reduction from scratch.
int64_t Lowering::partial_offset(int64_t count) {
  nest_.first_extra = static_cast<int>(kernel_.dims.size());
  for (const LoopValue& value : nest_.values) {
    if (value.kind != LoopValue::Kind::Reduction) continue;
    kernel_.dims.push_back(kernel_.scratch_bytes);
    const int64_t bytes = count * static_cast<int64_t>(item_size(value.compute));
    kernel_.scratch_bytes += (bytes + 63) / 64 * 64;
  }
  return count;
}

void Lowering::add_phases() {
  int64_t kept = 1, outer = 1, run = 1, reduced = 1, column = 1;
  for (const LoopDim& dim : nest_.dims) {
    if (dim.role == LoopRole::Kept) kept *= dim.extent;
    if (dim.role == LoopRole::Outer) outer *= dim.extent;
    if (dim.role == LoopRole::Run) run *= dim.extent;
    if (dim.role == LoopRole::Reduced) reduced *= dim.extent;
    if (dim.role == LoopRole::Column) column *= dim.extent;
  }
  // Work worth a thread, in simple operations on one element.
  constexpr int64_t kWork = 1 << 17;
  const int64_t element = 2 + static_cast<int64_t>(nest_.values.size() + nest_.stores.size());
  const auto grain = [&](int64_t elements) {
    return std::max<int64_t>(1, kWork / element / std::max<int64_t>(1, elements));
  };
  switch (nest_.kind) {
    case LoopNest::Kind::Pointwise:
      kernel_.phases.push_back({kept * column, grain(1)});
      break;
    case LoopNest::Kind::Rows:
      // Blocks of few long rows go to threads each, where no value needs a second pass.
      if (const int64_t blocks = (run + kReductionBlock - 1) / kReductionBlock;
          nest_.passes == 1 && outer * blocks >= 4 && kept < 32) {
        nest_.kind = LoopNest::Kind::SplitRows;
        partial_offset(kept * outer * blocks);
        kernel_.phases.push_back({kept * outer * blocks, grain(std::min(run, kReductionBlock))});
        kernel_.phases.push_back({kept, grain(outer * blocks)});
      } else {
        kernel_.phases.push_back({kept, grain(outer * run * nest_.passes)});
      }
      nest_.row_buffers = nest_.passes > 1 && outer == 1 && run <= kRowBuffer;
      break;
    case LoopNest::Kind::Columns: {
      const int64_t rows = chunk_rows(reduced);
      const int64_t chunks = (reduced + rows - 1) / rows;
      partial_offset(kept * chunks * column);
      kernel_.dims.push_back(rows);
      kernel_.dims.push_back(chunks);
      const int64_t tiles = (column + kColumnTile - 1) / kColumnTile;
      kernel_.phases.push_back(
          {kept * chunks * tiles, grain(std::min(rows, reduced) * std::min(column, kColumnTile))});
      kernel_.phases.push_back({kept * column, grain(chunks)});
      break;
    }
    case LoopNest::Kind::SplitRows:
      break;
  }
}

LoweredKernel Lowering::finish() {
  make_loops();
  add_phases();
  nest_.pointers = static_cast<int>(kernel_.pointers.size());
  nest_.scalars = static_cast<int>(kernel_.scalars.size());
  nest_.arguments = static_cast<int>(kernel_.dims.size());
  kernel_.name = kernel_name(nest_, emit(nest_, "kernel", host_dialect()));
  kernel_.host_source = emit(nest_, kernel_.name, host_dialect());
  kernel_.cuda_source = emit(nest_, kernel_.name, cuda_dialect());
  return std::move(kernel_);
}

KernelScalar kernel_scalar(const Scalar& scalar, DType dtype) {
  KernelScalar result{};
  switch (dtype) {
    case DType::F64:
      result.f64 = scalar.to<double>();
      break;
    case DType::F16:
    case DType::BF16:
    case DType::F32:
      result.f32 = scalar.to<float>();
      break;
    default:
      result.i64 = visit_dtype(dtype, [&]<class T>() -> int64_t {
        if constexpr (std::is_integral_v<T>) return static_cast<int64_t>(scalar.to<T>());
        return 0;
      });
  }
  return result;
}

}  // namespace etch::codegen
