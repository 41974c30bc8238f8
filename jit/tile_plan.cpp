// What of a tiled node is local, how its products walk over memory, and which columns a mask may leave out.
#include "jit/tile_plan.h"

#include <algorithm>
#include <map>
#include <set>

#include "eager/cpu/contractions.h"
#include "jit/graph_facts.h"

namespace etch::jit {
namespace {

constexpr int64_t kLine = 16;  // floats of a cache line
int64_t whole_lines(int64_t floats) { return (floats + kLine - 1) / kLine * kLine; }

/// The strides of axes of size 1 say nothing.
bool same_layout(const Geometry& a, const Geometry& b) {
  if (a.sizes != b.sizes) return false;
  for (int i = 0; i < a.ndim(); ++i)
    if (a.sizes[i] != 1 && a.strides[i] != b.strides[i]) return false;
  return true;
}

class Planner {
 public:
  explicit Planner(const Node& tiled) : tiled_(tiled) {}

  bool run() {
    if (!find_rows()) return false;
    add_locals_in_memory();
    for (const Node& node : tiled_.group->body)
      if (!(node.op == Op::matmul ? add_product(node) : add_kernel(node))) return false;
    find_hidden();
    place();
    return true;
  }
  TilePlan take() { return std::move(plan_); }

 private:
  int local_of(const GraphOperand& operand) const {
    const auto found = locals_.find(operand.buffer);
    return found == locals_.end() ? -1 : found->second;
  }

  static bool lists(const std::vector<GraphOperand>& list, const GraphOperand& operand) {
    return std::any_of(list.begin(), list.end(),
                       [&](const GraphOperand& o) { return o.is_tensor() && o.buffer == operand.buffer; });
  }
  bool is_stored(const GraphOperand& operand) const { return lists(tiled_.outputs, operand); }

  /// The rows are those of what is made and only read inside.
  bool find_rows() {
    for (const Node& node : tiled_.group->body) {
      const GraphOperand& made = node.outputs[0];
      if (is_stored(made) || made.geometry.ndim() < 2) continue;
      plan_.batch = made.geometry.sizes;
      plan_.rows = plan_.batch[plan_.batch.size() - 2];
      plan_.batch.resize(plan_.batch.size() - 2);
      for (int64_t size : plan_.batch) plan_.batches *= size;
      return true;
    }
    return false;
  }

  /// A matrix with a row for each of the tile's: the whole of a dense buffer.
  bool is_local(const GraphOperand& operand) const {
    const Geometry& g = operand.geometry;
    return operand.is_tensor() && operand.dtype == DType::F32 && operand.offset == 0 && operand.slot < 0 &&
           has_batch(g) && g.sizes[g.ndim() - 2] == plan_.rows && same_layout(g, contiguous(g.sizes));
  }

  bool add_local(const GraphOperand& operand) {
    if (!is_local(operand) || local_of(operand) >= 0) return false;
    locals_[operand.buffer] = static_cast<int>(plan_.locals.size());
    plan_.locals.push_back({operand.geometry.sizes.back(), std::nullopt, 0, false});
    return true;
  }

  /// What kernels take from outside or leave there.
  void add_locals_in_memory() {
    for (const Node& node : tiled_.group->body) {
      if (node.op != Op::fused) continue;
      for (const auto* operands : {&node.inputs, &node.outputs})
        for (const GraphOperand& operand : *operands) {
          const bool stored = is_stored(operand);
          if (!(stored || lists(tiled_.inputs, operand)) || !add_local(operand)) continue;
          plan_.locals.back().memory = operand;
          plan_.locals.back().given = !stored;
        }
    }
  }

  bool has_batch(const Geometry& g) const {
    if (g.ndim() != plan_.batch.size() + 2) return false;
    return std::equal(plan_.batch.begin(), plan_.batch.end(), g.sizes.begin());
  }

  Dims with_batch(int64_t rows, int64_t columns) const {
    Dims sizes = plan_.batch;
    sizes.push_back(rows);
    sizes.push_back(columns);
    return sizes;
  }

  /// The local that the operand is all of, or its transpose; -1.
  int whole_local(const GraphOperand& operand, bool transposed) const {
    const int local = local_of(operand);
    if (local < 0 || operand.offset != 0 || operand.slot >= 0) return -1;
    Geometry whole = contiguous(with_batch(plan_.rows, plan_.locals[local].columns));
    if (transposed) {
      const int n = whole.ndim();
      std::swap(whole.sizes[n - 2], whole.sizes[n - 1]);
      std::swap(whole.strides[n - 2], whole.strides[n - 1]);
    }
    return same_layout(operand.geometry, whole) ? local : -1;
  }

  /// The number of the window, or -1 if neither its rows nor (where allowed) its columns are dense. A matrix
  /// that several batches share is a window of each.
  int add_window(GraphOperand operand, bool columns_too) {
    Geometry& g = operand.geometry;
    if (operand.dtype != DType::F32 || local_of(operand) >= 0 || g.ndim() < 2) return -1;
    const Dims whole = with_batch(g.sizes[g.ndim() - 2], g.sizes.back());
    if (!can_broadcast_to(g.sizes, whole)) return -1;
    g = broadcast_to(g, whole);
    const int n = g.ndim();
    TilePlan::Window window{operand, g.sizes[n - 2], g.sizes[n - 1], g.strides[n - 2], false};
    if (g.strides[n - 1] != 1) {
      if (!columns_too || g.strides[n - 2] != 1) return -1;
      window = {operand, g.sizes[n - 1], g.sizes[n - 2], g.strides[n - 1], true};
    }
    if (window.stride < window.length) return -1;
    for (size_t i = 0; i < plan_.windows.size(); ++i)
      if (same_window(plan_.windows[i].operand, operand)) return static_cast<int>(i);
    plan_.windows.push_back(std::move(window));
    return static_cast<int>(plan_.windows.size()) - 1;
  }

  bool add_product(const Node& node) {
    const GraphOperand &a = node.inputs[0], &b = node.inputs[1], &c = node.outputs[0];
    const Operand inputs[] = {describe(a), describe(b)}, outputs[] = {describe(c)};
    if (!cpu::sums_in_order({node.op, inputs, outputs, node.attrs})) return false;
    if (!is_stored(c) && !add_local(c)) return false;
    TilePlan::Product product;
    product.columns = c.geometry.sizes.back();
    product.terms = a.geometry.sizes.back();
    product.c.local = whole_local(c, false);
    if (product.c.local < 0 && (!has_batch(c.geometry) || (product.c.window = add_window(c, false)) < 0))
      return false;
    const Geometry& g = a.geometry;
    product.by_rows = product.c.local >= 0 || g.strides[g.ndim() - 1] == 1;
    product.a.local = whole_local(a, !product.by_rows);
    if (product.a.local < 0) {
      product.a.window = add_window(a, !product.by_rows);
      if (product.a.window < 0 || plan_.windows[product.a.window].of_columns == product.by_rows) return false;
    }
    if ((product.by_rows ? g.sizes[g.ndim() - 2] : product.terms) != plan_.rows) return false;
    product.b.window = add_window(b, product.by_rows);
    // What the tile makes is whole only after its last block.
    if (product.b.window < 0 || is_stored(b) || (product.a.local < 0 && is_stored(a))) return false;
    plan_.stages.push_back(std::move(product));
    return true;
  }

  bool add_kernel(const Node& node) {
    TilePlan::Kernel kernel{&node, codegen::lower(node), {}, {}};
    for (const GraphOperand& output : node.outputs)
      if (!is_stored(output) && !add_local(output)) return false;
    const codegen::LoweredKernel& lowered = kernel.lowered;
    // One phase over all rows in their order in memory, which is the locals'.
    if (lowered.phases.size() != 1 || lowered.phases[0].count != plan_.batches * plan_.rows ||
        lowered.scratch_bytes > 0 || !lowered.same_address.empty())
      return false;
    bool any = false;
    for (const GraphOperand& pointer : lowered.pointers) {
      const int local = whole_local(pointer, false);
      const bool read = !lowered.written[kernel.local.size()];
      if (local < 0 && (local_of(pointer) >= 0 || (read && is_stored(pointer)))) return false;
      any = any || local >= 0;
      kernel.local.push_back(local);
    }
    plan_.stages.push_back(std::move(kernel));
    return any;
  }

  /// The first and last stages that use each local.
  std::vector<std::pair<int, int>> ranges() const {
    std::vector<std::pair<int, int>> ranges(plan_.locals.size(), {-1, -1});
    for (int s = 0; s < static_cast<int>(plan_.stages.size()); ++s) {
      const auto use = [&](int local) {
        if (local < 0) return;
        if (ranges[local].first < 0) ranges[local].first = s;
        ranges[local].second = s;
      };
      if (const auto* product = std::get_if<TilePlan::Product>(&plan_.stages[s])) {
        use(product->a.local), use(product->c.local);
        if (product->hidden) use(product->hidden->times_local);
      } else {
        for (int local : std::get<TilePlan::Kernel>(plan_.stages[s]).local) use(local);
      }
    }
    return ranges;
  }

  /// A kernel may write over a local of the same width that it is the last to read: it reads each element
  /// before it writes it.
  void place() {
    const auto ranges = this->ranges();
    int64_t top = 0;
    std::vector<int> order(plan_.locals.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int>(i);
    std::stable_sort(order.begin(), order.end(),
                     [&](int a, int b) { return ranges[a].first < ranges[b].first; });
    struct Place {
      int64_t at, columns;
      int last;
    };
    std::vector<Place> places;
    for (int l : order) {
      TilePlan::Local& local = plan_.locals[l];
      if (local.memory) continue;
      const bool by_kernel = std::holds_alternative<TilePlan::Kernel>(plan_.stages[ranges[l].first]);
      const auto free = std::find_if(places.begin(), places.end(), [&](const Place& place) {
        return place.columns == local.columns &&
               (place.last < ranges[l].first || (by_kernel && place.last == ranges[l].first));
      });
      if (free != places.end()) {
        local.place = free->at;
        free->last = ranges[l].second;
        continue;
      }
      local.place = top;
      places.push_back({top, local.columns, ranges[l].second});
      top += whole_lines(kTileRows * local.columns);
    }
    std::map<int, int64_t> packed;  // by window
    for (TilePlan::Stage& stage : plan_.stages)
      if (auto* product = std::get_if<TilePlan::Product>(&stage)) {
        const TilePlan::Window& b = plan_.windows[product->b.window];
        if (!b.of_columns) continue;
        const auto [at, added] = packed.emplace(product->b.window, top);
        if (added) top += whole_lines(b.lines * b.length);
        product->packed = at->second;
      }
    plan_.magnitudes = top;
    for (const TilePlan::Window& window : plan_.windows) top += plan_.blocks(window);
    plan_.scratch_floats = whole_lines(top);
  }

  void find_hidden() {
    for (size_t s = 0; s < plan_.stages.size(); ++s) {
      auto* product = std::get_if<TilePlan::Product>(&plan_.stages[s]);
      if (!product || product->c.local < 0 || plan_.locals[product->c.local].memory) continue;
      TilePlan::Kernel* reader = nullptr;
      bool only = true;
      for (size_t r = s + 1; r < plan_.stages.size(); ++r) {
        if (const auto* other = std::get_if<TilePlan::Product>(&plan_.stages[r])) {
          only = only && other->a.local != product->c.local;
        } else {
          auto& kernel = std::get<TilePlan::Kernel>(plan_.stages[r]);
          if (std::find(kernel.local.begin(), kernel.local.end(), product->c.local) == kernel.local.end())
            continue;
          only = only && !reader;
          reader = &kernel;
        }
      }
      if (only && reader) product->hidden = hidden_in(*reader->node, *product);
      if (product->hidden) reader->fill = masked_softmax(*reader);
    }
  }

  /// Follows what depends on the product's elements through the kernel: nothing of it may be stored or added
  /// up unless a mask chooses against it first, or it was multiplied by a local.
  std::optional<TilePlan::Hidden> hidden_in(const Node& fused, const TilePlan::Product& product) {
    TilePlan::Hidden hidden;
    std::optional<TilePlan::Mask> masked = plan_.mask;
    bool found = false;
    std::set<int> derived, scaled;  // buffers; of the second: the product times a local
    for (const Node& node : fused.group->body) {
      const auto is_product = [&](const GraphOperand& o) {
        return o.is_tensor() && whole_local(o, false) == product.c.local;
      };
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        const GraphOperand& input = node.inputs[i];
        if (!input.is_tensor()) continue;
        if (local_of(input) == product.c.local && !is_product(input)) return std::nullopt;
        if (!is_product(input) && !derived.count(input.buffer)) continue;
        if (node.op == Op::where && i > 0) {
          const std::optional<GraphOperand> mask = as_mask(fused, node.inputs[0], product.columns);
          if (!mask) return std::nullopt;
          if (!masked) masked = {*mask, i == 2};
          if (!same_window(*mask, masked->window) || masked->hides_when != (i == 2)) return std::nullopt;
          found = true;
          continue;
        }
        if (node.op == Op::sum && scaled.count(input.buffer)) continue;
        if (info(node.op).kind != OpKind::Pointwise) return std::nullopt;
        const int output = node.outputs[0].buffer;
        if (std::any_of(fused.outputs.begin(), fused.outputs.end(),
                        [&](const GraphOperand& o) { return o.buffer == output; }))
          return std::nullopt;
        derived.insert(output);
        if (node.op != Op::mul || !is_product(input)) continue;
        const GraphOperand& other = node.inputs[1 - i];
        const int local = other.is_tensor() ? whole_local(other, false) : -1;
        if (local < 0 || local == product.c.local || (hidden.times_local >= 0 && hidden.times_local != local))
          continue;
        hidden.times_local = local;
        scaled.insert(output);
      }
    }
    // Zeros in place of numbers hold only as far as the numbers are known to be finite.
    if (hidden.times_local >= 0 && (product.a.window < 0 || !plan_.windows[product.b.window].of_columns))
      return std::nullopt;
    if (!found) return std::nullopt;
    plan_.mask = masked;
    return hidden;
  }

  /// The scalar that the mask chooses, if all that the kernel does is the softmax of rows of what it chooses.
  int masked_softmax(const TilePlan::Kernel& kernel) const {
    const Node& fused = *kernel.node;
    int more = 0;  // nodes to which it matters how long rows are, apart from the softmax's two
    for (const Node& node : fused.group->body) more += info(node.op).kind != OpKind::Pointwise;
    if (more != 2) return -1;
    const auto maker = [&](const GraphOperand& operand, Op op) -> const Node* {
      for (const Node& node : fused.group->body)
        if (operand.is_tensor() && node.outputs[0].buffer == operand.buffer)
          return node.op == op ? &node : nullptr;
      return nullptr;
    };
    if (fused.outputs.size() != 1 || local_of(fused.outputs[0]) < 0 || kernel.lowered.run < 0) return -1;
    const Node *div = maker(fused.outputs[0], Op::div), *exp = div ? maker(div->inputs[0], Op::exp) : nullptr,
               *sum = div ? maker(div->inputs[1], Op::sum) : nullptr,
               *sub = exp ? maker(exp->inputs[0], Op::sub) : nullptr,
               *most = sub ? maker(sub->inputs[1], Op::amax) : nullptr,
               *where = sub ? maker(sub->inputs[0], Op::where) : nullptr;
    if (!sum || !most || !where || !same_window(sum->inputs[0], div->inputs[0]) ||
        !same_window(most->inputs[0], sub->inputs[0]))
      return -1;
    const auto mask = as_mask(fused, where->inputs[0], plan_.mask->window.geometry.sizes.back());
    if (!mask || !same_window(*mask, plan_.mask->window)) return -1;
    const GraphOperand& fill = where->inputs[plan_.mask->hides_when ? 1 : 2];
    const auto& scalars = kernel.lowered.scalars;
    const auto found = std::find_if(scalars.begin(), scalars.end(), [&](const GraphOperand& s) {
      return fill.is_scalar() && fill.dtype == DType::F32 && s.slot == fill.slot && s.dtype == fill.dtype &&
             (s.slot >= 0 || s.scalar.to_double() == fill.scalar.to_double());
    });
    return found == scalars.end() ? -1 : static_cast<int>(found - scalars.begin());
  }

  /// The condition as a window over all rows and columns, if it is memory.
  std::optional<GraphOperand> as_mask(const Node& fused, const GraphOperand& condition,
                                      int64_t columns) const {
    if (!condition.is_tensor() || condition.dtype != DType::Bool || local_of(condition) >= 0 ||
        std::none_of(fused.inputs.begin(), fused.inputs.end(),
                     [&](const GraphOperand& o) { return same_window(o, condition); }))
      return std::nullopt;
    const Dims sizes = with_batch(plan_.rows, columns);
    if (!can_broadcast_to(condition.geometry.sizes, sizes)) return std::nullopt;
    GraphOperand mask = condition;
    mask.geometry = broadcast_to(condition.geometry, sizes);
    if (mask.geometry.strides[mask.geometry.ndim() - 1] != 1) return std::nullopt;
    return mask;
  }

  const Node& tiled_;
  TilePlan plan_;
  std::map<int, int> locals_;  ///< by buffer
};

}  // namespace

std::optional<TilePlan> plan_tile(const Node& tiled) {
  Planner planner(tiled);
  if (!planner.run()) return std::nullopt;
  return planner.take();
}

}  // namespace etch::jit
