// The loops of reduction kernels, in the order of tracer/reduction.h.
#include <algorithm>

#include "codegen/emit.h"

namespace etch::codegen {

namespace {

constexpr std::string_view kLanes = "kLanes", kBlock = "kBlock";

}  // namespace

std::vector<int> Emitter::reductions_of(int pass) const {
  std::vector<int> found;
  for (int reduction : reductions_)
    if (nest_.values[reduction].stage == pass + 1) found.push_back(reduction);
  return found;
}

/// The full-level values that a pass over the row is for.
std::vector<int> Emitter::pass_roots(int pass) const {
  std::vector<int> roots = operands(reductions_of(pass));
  if (pass == nest_.passes - 1)
    for (int value : stored(Level::Full)) roots.push_back(value);
  return roots;
}

void Emitter::open_loops(LoopRole role) {
  for (int dim : dims(role)) line({"for (i64 i", dim, " = 0; i", dim, " < d", dim, "; ++i", dim, ") {"});
}

void Emitter::close_loops(LoopRole role) {
  for (size_t i = 0; i < dims(role).size(); ++i) line({"}"});
}

/// Declares the row-level values of `stage` that stores or later full-level values use.
void Emitter::row_values(int stage) {
  std::vector<int> roots;
  for (int value : stored(Level::Row)) roots.push_back(value);
  for (int pass = 0; pass < nest_.passes; ++pass)
    for (int root : pass_roots(pass)) roots.push_back(root);
  // Reductions stop need(), so what they reduce is a root of its own; what is used only after them is too.
  std::vector<bool> needed = needed_for(roots);
  for (size_t v = 0; v < needed.size(); ++v) {
    const LoopValue& value = nest_.values[v];
    needed[v] = needed[v] && value.level == Level::Row && value.stage <= stage &&
                value.kind != LoopValue::Kind::Reduction;
  }
  compute(needed, -1, "0");
}

/// Which costly values of this pass stay in row buffers because a later pass uses them.
void Emitter::choose_kept(int pass, const std::vector<bool>& needed) {
  keep_.assign(nest_.values.size(), false);
  if (!nest_.row_buffers || !dialect_.row_buffers || dims(LoopRole::Run).size() != 1) return;
  std::vector<bool> later(nest_.values.size(), false);
  for (int next = pass + 1; next < nest_.passes; ++next) {
    const std::vector<bool> used = needed_for(pass_roots(next));
    for (size_t v = 0; v < used.size(); ++v) later[v] = later[v] || used[v];
  }
  for (size_t v = 0; v < needed.size(); ++v) {
    const LoopValue& value = nest_.values[v];
    keep_[v] = needed[v] && later[v] && !kept_[v] && value.kind == LoopValue::Kind::Op &&
               value.level == Level::Full && is_costly(value.op);
  }
}

void Emitter::block_elements(const std::vector<int>& reductions, const std::vector<bool>& needed,
                             bool stores) {
  const int inner = dims(LoopRole::Run).back();
  const std::vector<bool> ready = ready_;
  compute(needed, inner, "e");
  for (size_t v = 0; v < keep_.size(); ++v)
    if (keep_[v]) line({"b", static_cast<int>(v), "[e] = v", static_cast<int>(v), ";"});
  if (stores) store(Level::Full, inner, "e");
  for (int r : reductions)
    line({"a", r, "[l] = ",
          combine(r, join_text({"a", r, "[l]"}), argument(nest_.values[r].args[0], nest_.values[r].compute)),
          ";"});
  ready_ = ready;
}

void Emitter::block(const std::vector<int>& reductions, const std::vector<bool>& needed, bool stores) {
  for (int r : reductions) {
    line({register_type(nest_.values[r].compute), " a", r, "[", kLanes, "];"});
    line({"for (int l = 0; l < ", kLanes, "; ++l) a", r, "[l] = ", identity(r), ";"});
  }
  if (dims(LoopRole::Run).size() > 1) {
    buffered_block(reductions, needed, stores);
  } else if (wants_parts(needed)) {
    block_in_parts(reductions, needed, stores);
  } else {
    hoist(needed, dims(LoopRole::Run)[0]);
    line({"i64 j = block;"});
    line({"for (; j + ", kLanes, " <= stop; j += ", kLanes, ") {"});
    line({dialect_.independent});
    line({"for (int l = 0; l < ", kLanes, "; ++l) {"});
    line({"const i64 e = j + l;"});
    block_elements(reductions, needed, stores);
    line({"}"});
    line({"}"});
    line({"const int left = static_cast<int>(stop - j);"});
    line({dialect_.independent});
    line({"for (int l = 0; l < left; ++l) {"});
    line({"const i64 e = j + l;"});
    block_elements(reductions, needed, stores);
    line({"}"});
  }
  for (int r : reductions) {
    const std::string_view type = register_type(nest_.values[r].compute);
    line({"fold_lanes<", type, ", reduce_", name(nest_.values[r].op), "<", type, ">>(a", r, ");"});
  }
}

/// Loops over lanes suit plain loads and cheap arithmetic of one width. Compilers vectorise anything else
/// only in loops over many elements.
bool Emitter::wants_parts(const std::vector<bool>& needed) const {
  if (!dialect_.row_buffers) return false;
  const int inner = dims(LoopRole::Run)[0];
  size_t width = 0;
  for (size_t v = 0; v < needed.size(); ++v) {
    const LoopValue& value = nest_.values[v];
    if (!needed[v] || ready_[v] || value.level != Level::Full) continue;
    const bool loaded = value.kind == LoopValue::Kind::Load && !kept_[v];
    if (loaded && nest_.windows[value.window].strides[inner].kind == LoopStride::Kind::Zero) continue;
    if (value.dtype == DType::Bool && !loaded) continue;  // a mask has the width of what it masks
    const size_t own = loaded ? item_size(value.dtype) : register_size(value.dtype);
    if (width != 0 && own != width) return true;
    width = own;
  }
  return false;
}

/// The elements of a part go to a buffer, unless a row buffer keeps them anyway, and then into the lanes.
void Emitter::block_in_parts(const std::vector<int>& reductions, const std::vector<bool>& needed,
                             bool stores) {
  const int inner = dims(LoopRole::Run)[0];
  const auto type = [this](int r) { return register_type(nest_.values[r].compute); };
  const auto buffered = [this](int r) {
    const int operand = nest_.values[r].args[0];
    const LoopValue& value = nest_.values[operand];
    return !(keep_[operand] || kept_[operand]) || compute_dtype(value.dtype) != nest_.values[r].compute;
  };
  hoist(needed, inner);
  for (int r : reductions)
    if (buffered(r)) line({"alignas(64) ", type(r), " e", r, "[kPart];"});
  line({"for (i64 part = block; part < stop; part += kPart) {"});
  line({"const i64 last = least(stop, part + kPart);"});
  line({dialect_.independent});
  line({"for (i64 j = part; j < last; ++j) {"});
  const std::vector<bool> ready = ready_;
  compute(needed, inner, "j");
  for (size_t v = 0; v < keep_.size(); ++v)
    if (keep_[v]) line({"b", static_cast<int>(v), "[j] = v", static_cast<int>(v), ";"});
  if (stores) store(Level::Full, inner, "j");
  for (int r : reductions)
    if (buffered(r))
      line({"e", r, "[j - part] = ", argument(nest_.values[r].args[0], nest_.values[r].compute), ";"});
  line({"}"});
  ready_ = ready;
  for (int r : reductions)
    line({"take_lanes<", type(r), ", reduce_", name(nest_.values[r].op), "<", type(r), ">>(a", r, ", ",
          buffered(r) ? join_text({"e", r}) : join_text({"b", nest_.values[r].args[0], " + part"}),
          ", last - part);"});
  line({"}"});
}

/// A run whose dimensions do not merge: elements go to a buffer first, by the segments of the innermost one.
void Emitter::buffered_block(const std::vector<int>& reductions, const std::vector<bool>& needed,
                             bool stores) {
  const std::vector<int>& run = dims(LoopRole::Run);
  const int inner = run.back();
  const std::vector<int> outside(run.begin(), run.end() - 1);
  const std::vector<bool> ready = ready_;
  const std::vector<std::string> pointers = pointer_;
  for (int r : reductions) line({register_type(nest_.values[r].compute), " e", r, "[", kBlock, "];"});
  line({"for (i64 at = block; at < stop;) {"});
  line({"const i64 first = at % d", inner, ", rest = at / d", inner, ";"});
  line({"const i64 last = least(d", inner, ", first + stop - at);"});
  line({"const i64 shift = at - block - first;"});
  line({"at += last - first;"});
  split_index("rest", outside);
  rebase(outside, "t", needed);
  hoist(needed, inner);
  line({dialect_.independent});
  line({"for (i64 j = first; j < last; ++j) {"});
  compute(needed, inner, "j");
  if (stores) store(Level::Full, inner, "j");
  for (int r : reductions)
    line({"e", r, "[shift + j] = ", argument(nest_.values[r].args[0], nest_.values[r].compute), ";"});
  line({"}"});
  line({"}"});
  ready_ = ready;
  pointer_ = pointers;
  for (int r : reductions)
    line({"take_lanes<", register_type(nest_.values[r].compute), ", reduce_", name(nest_.values[r].op), "<",
          register_type(nest_.values[r].compute), ">>(a", r, ", e", r, ", stop - block);"});
}

/// One pass over the row that ends with the values of `reductions`.
void Emitter::reduction_pass(int pass, const std::vector<int>& reductions) {
  const bool stores = pass == nest_.passes - 1;
  const std::vector<bool> needed = needed_for(pass_roots(pass));
  choose_kept(pass, needed);
  for (size_t v = 0; v < keep_.size(); ++v)
    if (keep_[v])
      line({"alignas(64) ", register_type(nest_.values[v].dtype), " b", static_cast<int>(v), "[", kRowBuffer,
            "];"});
  const bool outer = !dims(LoopRole::Outer).empty();
  const std::vector<std::string> pointers = pointer_;
  const std::vector<bool> ready = ready_;
  const std::string_view total = outer ? "r" : "part";
  for (int r : reductions)
    line({register_type(nest_.values[r].compute), " ", total, r, " = ", identity(r), ";"});
  line({"{"});
  open_loops(LoopRole::Outer);
  rebase(dims(LoopRole::Outer), "o", needed);
  if (outer)
    for (int r : reductions)
      line({register_type(nest_.values[r].compute), " part", r, " = ", identity(r), ";"});
  line({"const i64 run = ", product(LoopRole::Run), ";"});
  line({"for (i64 block = 0; block < run; block += ", kBlock, ") {"});
  line({"const i64 stop = least(run, block + ", kBlock, ");"});
  block(reductions, needed, stores);
  for (int r : reductions)
    line({"part", r, " = ", combine(r, join_text({"part", r}), join_text({"a", r, "[0]"})), ";"});
  line({"}"});
  if (outer)
    for (int r : reductions)
      line({"r", r, " = ", combine(r, join_text({"r", r}), join_text({"part", r})), ";"});
  close_loops(LoopRole::Outer);
  line({"}"});
  pointer_ = pointers;
  ready_ = ready;
  for (size_t v = 0; v < keep_.size(); ++v)
    if (keep_[v]) kept_[v] = true;
  for (int r : reductions) finalise(r, join_text({total, r}));
}

/// The last pass where it reduces nothing.
void Emitter::store_pass() {
  const std::vector<int>& run = dims(LoopRole::Run);
  const std::vector<bool> needed = needed_for(stored(Level::Full));
  const std::vector<std::string> pointers = pointer_;
  const std::vector<bool> ready = ready_;
  const std::vector<int> outside(run.begin(), run.end() - 1);
  keep_.assign(nest_.values.size(), false);
  line({"{"});
  open_loops(LoopRole::Outer);
  for (int dim : outside) line({"for (i64 i", dim, " = 0; i", dim, " < d", dim, "; ++i", dim, ") {"});
  std::vector<int> moved = dims(LoopRole::Outer);
  moved.insert(moved.end(), outside.begin(), outside.end());
  rebase(moved, "o", needed);
  hoist(needed, run.back());
  line({dialect_.independent});
  line({"for (i64 j = 0; j < d", run.back(), "; ++j) {"});
  compute(needed, run.back(), "j");
  store(Level::Full, run.back(), "j");
  line({"}"});
  for (size_t i = 0; i < outside.size(); ++i) line({"}"});
  close_loops(LoopRole::Outer);
  line({"}"});
  pointer_ = pointers;
  ready_ = ready;
}

void Emitter::rows() {
  open(0, "count");
  line({"for (i64 row = begin; row < end; ++row) {"});
  split_index("row", dims(LoopRole::Kept));
  rebase(dims(LoopRole::Kept), "q", std::vector<bool>(nest_.values.size(), true));
  for (int pass = 0; pass < nest_.passes; ++pass) {
    row_values(pass);
    if (const std::vector<int> reductions = reductions_of(pass); !reductions.empty())
      reduction_pass(pass, reductions);
    else
      store_pass();
  }
  row_values(nest_.passes);
  store(Level::Row, -1, "0");
  line({"}"});
  close();
}

void Emitter::split_blocks() {
  open(0, "count");
  const std::vector<int> reductions = reductions_;
  std::vector<int> roots = operands(reductions);
  for (int value : stored(Level::Full)) roots.push_back(value);
  keep_.assign(nest_.values.size(), false);
  const std::vector<bool> needed = needed_for(roots);
  std::vector<int> group = dims(LoopRole::Kept);
  group.insert(group.end(), dims(LoopRole::Outer).begin(), dims(LoopRole::Outer).end());
  line({"const i64 run = ", product(LoopRole::Run), ", blocks = (run + ", kBlock, " - 1) / ", kBlock, ";"});
  line({"for (i64 at = begin; at < end; ++at) {"});
  line({"const i64 block = at % blocks * ", kBlock, ", row = at / blocks;"});
  line({"const i64 stop = least(run, block + ", kBlock, ");"});
  split_index("row", group);
  rebase(group, "q", needed);
  std::vector<bool> row_level = needed;
  for (size_t v = 0; v < needed.size(); ++v) row_level[v] = needed[v] && nest_.values[v].level == Level::Row;
  compute(row_level, -1, "0");
  block(reductions, needed, true);
  for (int r : reductions) line({"s", r, "[at] = a", r, "[0];"});
  line({"}"});
  close();
}

void Emitter::split_fold() {
  open(1, "count");
  const bool outer = !dims(LoopRole::Outer).empty();
  line({"const i64 run = ", product(LoopRole::Run), ", blocks = (run + ", kBlock, " - 1) / ", kBlock,
        ", runs = ", product(LoopRole::Outer), ";"});
  line({"for (i64 row = begin; row < end; ++row) {"});
  split_index("row", dims(LoopRole::Kept));
  rebase(dims(LoopRole::Kept), "q", needed_for(stored(Level::Row)));
  for (int r : reductions_) {
    const std::string_view type = register_type(nest_.values[r].compute);
    line({type, " r", r, " = ", identity(r), ";"});
    line({"for (i64 i = 0; i < runs; ++i) {"});
    line({type, " u = ", identity(r), ";"});
    line({"for (i64 b = 0; b < blocks; ++b) u = ",
          combine(r, "u", join_text({"s", r, "[(row * runs + i) * blocks + b]"})), ";"});
    line({"r", r, " = ", outer ? combine(r, join_text({"r", r}), "u") : std::string("u"), ";"});
    line({"}"});
    finalise(r, join_text({"r", r}));
  }
  compute(needed_for(stored(Level::Row)), -1, "0");
  store(Level::Row, -1, "0");
  line({"}"});
  close();
}

void Emitter::column_chunks() {
  const int column = dims(LoopRole::Column)[0];
  const std::string tile = std::to_string(dialect_.column_tile);
  const int extra = nest_.first_extra + static_cast<int>(reductions_.size());
  const std::string size = join_text({"d", extra}), chunks = join_text({"d", extra + 1});
  open(0, join_text({product(LoopRole::Kept), " * ", chunks, " * ((d", column, " + ", tile, " - 1) / ", tile,
                     ")"}));
  std::vector<int> roots = operands(reductions_);
  for (int value : stored(Level::Full)) roots.push_back(value);
  const std::vector<bool> needed = needed_for(roots);
  line({"const i64 tiles = (d", column, " + ", tile, " - 1) / ", tile,
        ", rows = ", product(LoopRole::Reduced), ";"});
  line({"for (i64 at = begin; at < end; ++at) {"});
  line({"const i64 first = at % tiles * ", tile, ", last = least(d", column, ", first + ", tile, ");"});
  line({"const i64 part = at / tiles, chunk = part % ", chunks, ", kept = part / ", chunks, ";"});
  line({"const i64 stop = least(rows, (chunk + 1) * ", size, ");"});
  split_index("kept", dims(LoopRole::Kept));
  rebase(dims(LoopRole::Kept), "q", needed);
  for (int r : reductions_) {
    line({register_type(nest_.values[r].compute), " a", r, "[", tile, "];"});
    line({"for (i64 j = first; j < last; ++j) a", r, "[j - first] = ", identity(r), ";"});
  }
  const auto moving = std::count_if(nest_.values.begin(), nest_.values.end(), [&](const LoopValue& value) {
    return value.kind == LoopValue::Kind::Load && moves_on(value.window, column);
  });
  line({"for (i64 row = chunk * ", size, "; row < stop; ++row) {"});
  if (dialect_.fetches && moving > 1) line({"ETCH_ROW_BY_ROW"});
  split_index("row", dims(LoopRole::Reduced));
  rebase(dims(LoopRole::Reduced), "t", needed);
  hoist(needed, column);
  open_elements(join_text({"rows * d", column}), needed, column);
  compute(needed, column, "j");
  store(Level::Full, column, "j");
  for (int r : reductions_)
    line({"a", r, "[j - first] = ",
          combine(r, join_text({"a", r, "[j - first]"}),
                  argument(nest_.values[r].args[0], nest_.values[r].compute)),
          ";"});
  close_elements();
  line({"}"});
  for (int r : reductions_)
    line({"for (i64 j = first; j < last; ++j) s", r, "[part * d", column, " + j] = a", r, "[j - first];"});
  line({"}"});
  close();
}

void Emitter::column_fold() {
  open(1, "count");
  const int column = dims(LoopRole::Column)[0];
  const std::string tile = std::to_string(dialect_.column_tile);
  const int extra = nest_.first_extra + static_cast<int>(reductions_.size());
  const std::string chunks = join_text({"d", extra + 1});
  line({"for (i64 at = begin; at < end;) {"});
  line({"const i64 first = at % d", column, ", kept = at / d", column, ";"});
  line({"const i64 last = least(least(d", column, ", first + end - at), first + ", tile, ");"});
  line({"at += last - first;"});
  split_index("kept", dims(LoopRole::Kept));
  const std::vector<bool> needed = needed_for(stored(Level::Row));
  rebase(dims(LoopRole::Kept), "q", needed);
  for (int r : reductions_) {
    line({register_type(nest_.values[r].compute), " a", r, "[", tile, "];"});
    line({"for (i64 j = first; j < last; ++j) a", r, "[j - first] = ", identity(r), ";"});
  }
  line({"for (i64 chunk = 0; chunk < ", chunks, "; ++chunk) {"});
  line({"const i64 from = (kept * ", chunks, " + chunk) * d", column, ";"});
  for (int r : reductions_) {
    line({dialect_.independent});
    line({"for (i64 j = first; j < last; ++j) a", r, "[j - first] = ",
          combine(r, join_text({"a", r, "[j - first]"}), join_text({"s", r, "[from + j]"})), ";"});
  }
  line({"}"});
  hoist(needed, column);
  line({dialect_.independent});
  line({"for (i64 j = first; j < last; ++j) {"});
  for (int r : reductions_) finalise(r, join_text({"a", r, "[j - first]"}));
  compute(needed, column, "j");
  store(Level::Row, column, "j");
  line({"}"});
  line({"}"});
  close();
}

}  // namespace etch::codegen
