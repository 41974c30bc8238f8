// Recognises sums of pieces.
#include "jit/piece_sum.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "jit/graph_facts.h"

namespace etch::jit {
namespace {

bool is_plain(const GraphOperand& operand) {
  return operand.is_tensor() && operand.dtype == DType::F32 && is_contiguous(operand.geometry);
}
/// All elements of something as large as `whole`.
bool is_whole(const GraphOperand& operand, const Geometry& whole) {
  return is_plain(operand) && operand.offset == 0 && operand.slot < 0 && operand.geometry == whole;
}

/// The dimensions that `from` has over a contiguous whole, in order, with the steps of `to`; nothing unless
/// they are all of its elements and runs stay runs.
std::optional<Geometry> layout_of(const GraphOperand& from, const GraphOperand& to, int64_t count) {
  const Geometry &in = from.geometry, &out = to.geometry;
  if (from.offset != 0 || from.slot >= 0 || to.slot >= 0 || in.sizes != out.sizes) return std::nullopt;
  std::vector<int> order;
  for (int d = 0; d < in.ndim(); ++d)
    if (in.sizes[d] != 1) order.push_back(d);
  std::sort(order.begin(), order.end(), [&](int a, int b) { return in.strides[a] > in.strides[b]; });
  Geometry layout;
  int64_t reach = 1;
  for (size_t i = order.size(); i-- > 0; reach *= in.sizes[order[i]])
    if (in.strides[order[i]] != reach) return std::nullopt;
  if (reach != count || order.empty() || out.strides[order.back()] != 1) return std::nullopt;
  for (int d : order) {
    layout.sizes.push_back(in.sizes[d]);
    layout.strides.push_back(out.strides[d]);
  }
  return layout;
}

}  // namespace

std::optional<PieceSum> as_piece_sum(const Node& node) {
  if (node.op != Op::fused || node.outputs.size() != 1) return std::nullopt;
  const std::vector<Node>& body = node.group->body;
  const Geometry& whole = body.front().outputs[0].geometry;
  PieceSum sum;
  sum.out = node.outputs[0];
  if (!is_contiguous(whole) || sum.out.dtype != DType::F32) return std::nullopt;
  sum.layout = {{whole.numel()}, {1}};
  absl::flat_hash_map<int, PieceSum::Term> pieces;
  int total = -1, runs = 0;
  const auto take = [&](const GraphOperand& operand) {
    if (!is_whole(operand, whole) || operand.buffer == total) return false;
    const auto piece = pieces.find(operand.buffer);
    if (piece == pieces.end())
      sum.terms.push_back({operand, {}, operand});
    else if (!piece->second.source.is_tensor())
      return false;
    else
      sum.terms.push_back(piece->second);
    return true;
  };
  for (const Node& inner : body) {
    const GraphOperand& out = inner.outputs[0];
    if (inner.op == Op::copy && inner.inputs[0].is_scalar()) {
      if (!is_whole(out, whole) || inner.inputs[0].dtype != DType::F32 || pieces.contains(out.buffer))
        return std::nullopt;
      pieces[out.buffer] = {{}, inner.inputs[0], {}};
    } else if (inner.op == Op::copy && inner.inputs[0].buffer == total && &inner == &body.back()) {
      const std::optional<Geometry> layout = layout_of(inner.inputs[0], out, whole.numel());
      if (!layout || inner.inputs[0].dtype != DType::F32 || pieces.contains(out.buffer)) return std::nullopt;
      sum.layout = *layout;
      total = out.buffer;
    } else if (inner.op == Op::copy) {
      const auto piece = pieces.find(out.buffer);
      if (piece == pieces.end() || piece->second.source.is_tensor() || !is_plain(out) ||
          !is_plain(inner.inputs[0]) || inner.inputs[0].geometry.sizes != out.geometry.sizes ||
          out.geometry.numel() == 0)
        return std::nullopt;
      piece->second.source = inner.inputs[0];
      piece->second.window = out;
      ++runs;
    } else if (inner.op == Op::add && inner.inputs[0].is_tensor() && inner.inputs[1].is_tensor()) {
      if (!is_whole(out, whole) || pieces.contains(out.buffer)) return std::nullopt;
      if (total < 0 ? !take(inner.inputs[0])
                    : inner.inputs[0].buffer != total || !is_whole(inner.inputs[0], whole))
        return std::nullopt;
      if (!take(inner.inputs[1])) return std::nullopt;
      total = out.buffer;
    } else {
      return std::nullopt;
    }
  }
  if (runs == 0 || total != sum.out.buffer || !same_window(body.back().outputs[0], sum.out))
    return std::nullopt;
  // Terms are added one by one to what is stored already.
  for (const PieceSum::Term& term : sum.terms)
    if (term.source.buffer == sum.out.buffer) return std::nullopt;
  return sum;
}

}  // namespace etch::jit
