// Recognises sums of pieces.
#include "jit/piece_sum.h"

#include "absl/container/flat_hash_map.h"

namespace etch::jit {
namespace {

bool is_plain(const GraphOperand& operand) {
  return operand.is_tensor() && operand.dtype == DType::F32 && is_contiguous(operand.geometry);
}
/// All elements of something as large as `whole`.
bool is_whole(const GraphOperand& operand, const Geometry& whole) {
  return is_plain(operand) && operand.offset == 0 && operand.slot < 0 && operand.geometry == whole;
}

}  // namespace

std::optional<PieceSum> as_piece_sum(const Node& node) {
  if (node.op != Op::fused || node.outputs.size() != 1) return std::nullopt;
  const std::vector<Node>& body = node.group->body;
  const Geometry& whole = node.outputs[0].geometry;
  PieceSum sum;
  sum.out = node.outputs[0];
  if (!is_whole(sum.out, whole)) return std::nullopt;
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
  if (runs == 0 || total != sum.out.buffer) return std::nullopt;
  // Terms are added one by one to what is stored already.
  for (const PieceSum::Term& term : sum.terms)
    if (term.source.buffer == sum.out.buffer) return std::nullopt;
  return sum;
}

}  // namespace etch::jit
