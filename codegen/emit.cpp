// Loop nest -> C-like text, the same for both dialects but for what codegen/loop.h's Dialect says.
#include "codegen/emit.h"

#include <algorithm>

#include "runtime/error.h"
#include "tracer/reduction.h"

namespace etch::codegen {

std::string_view register_type(DType dtype) {
  constexpr std::string_view kTypes[kNumDTypes] = {"bool",  "u8",    "i32",   "i64",
                                                   "float", "float", "float", "double"};
  return kTypes[static_cast<int>(dtype)];
}

std::string_view memory_type(DType dtype) {
  constexpr std::string_view kTypes[kNumDTypes] = {"u8", "u8", "i32", "i64", "u16", "u16", "float", "double"};
  return kTypes[static_cast<int>(dtype)];
}

size_t register_size(DType dtype) { return item_size(compute_dtype(dtype)); }

namespace {

bool is_half(DType dtype) { return dtype == DType::F16 || dtype == DType::BF16; }
/// As in the names of its conversions, float_to_half() and half_to_float().
std::string_view half_name(DType dtype) { return dtype == DType::F16 ? "half" : "bfloat16"; }

}  // namespace

bool is_costly(Op op) {
  const std::string_view text = info(op).expression;
  for (size_t i = 1; i < text.size(); ++i)
    if (text[i] == '(' &&
        ((text[i - 1] >= 'a' && text[i - 1] <= 'z') || (text[i - 1] >= '0' && text[i - 1] <= '9')))
      return true;
  return false;
}

Emitter::Emitter(const LoopNest& nest, const std::string& name, const Dialect& dialect)
    : nest_(nest), name_(name), dialect_(dialect), kept_(nest.values.size()), keep_(nest.values.size()) {
  for (size_t i = 0; i < nest.values.size(); ++i)
    if (nest.values[i].kind == LoopValue::Kind::Reduction) reductions_.push_back(static_cast<int>(i));
  for (size_t k = 0; k < nest.dims.size(); ++k)
    by_role_[static_cast<int>(nest.dims[k].role)].push_back(static_cast<int>(k));
}

std::string Emitter::run() {
  switch (nest_.kind) {
    case LoopNest::Kind::Pointwise:
      pointwise();
      break;
    case LoopNest::Kind::Rows:
      rows();
      break;
    case LoopNest::Kind::SplitRows:
      split_blocks();
      split_fold();
      break;
    case LoopNest::Kind::Columns:
      column_chunks();
      column_fold();
      break;
  }
  return std::move(text_);
}

void Emitter::line(std::initializer_list<Piece> pieces) {
  const std::string text = join_text(pieces);
  if (text.empty()) return;
  if (text.starts_with('}')) --depth_;
  text_.append(static_cast<size_t>(2 * depth_), ' ');
  text_ += text;
  text_ += '\n';
  if (text.ends_with('{')) ++depth_;
}

std::string Emitter::extent(int dim) const { return join_text({"d", dim}); }

std::string Emitter::product(LoopRole role) const {
  std::string text;
  for (int dim : dims(role)) text += (text.empty() ? "" : " * ") + extent(dim);
  return text.empty() ? "1" : text;
}

std::string Emitter::stride(int window, int dim) const {
  const LoopStride& stride = nest_.windows[window].strides[dim];
  return stride.kind == LoopStride::Kind::Argument ? join_text({"d", stride.argument}) : "1";
}

void Emitter::open(int phase, std::string_view count) {
  ready_.assign(nest_.values.size(), false);
  pointer_.assign(nest_.windows.size(), "0");
  text_ += dialect_.open(join_text({name_, "_", phase}), nest_, count);
  depth_ = 1;
  for (int k = 0; k < nest_.arguments; ++k) line({"const i64 d", k, " = dims[", k, "];"});
  for (size_t w = 0; w < nest_.windows.size(); ++w) {
    const LoopWindow& window = nest_.windows[w];
    if (window.pointer < 0) continue;
    const int number = static_cast<int>(w);
    pointer_[w] = join_text({"p", number});
    const std::string_view type = memory_type(window.dtype);
    line({type, "* const p", number, " = reinterpret_cast<", type, "*>(pointers[", window.pointer, "]);"});
  }
  for (size_t v = 0; v < nest_.values.size(); ++v) {
    const LoopValue& value = nest_.values[v];
    if (value.kind != LoopValue::Kind::Scalar) continue;
    const std::string_view type = register_type(value.dtype);
    const std::string_view field = type == "float" ? "f32" : type == "double" ? "f64" : "i64";
    line({"const ", type, " v", static_cast<int>(v), " = static_cast<", type, ">(scalars[", value.window,
          "].", field, ");"});
    ready_[v] = true;
  }
  for (size_t i = 0; i < reductions_.size() && nest_.first_extra; ++i) {
    const std::string_view type = register_type(nest_.values[reductions_[i]].compute);
    line({type, "* const s", reductions_[i], " = reinterpret_cast<", type, "*>(pointers[", nest_.pointers,
          "] + d", nest_.first_extra + static_cast<int>(i), ");"});
  }
  line({dialect_.loop_open});
}

void Emitter::close() {
  line({"}"});
  text_ += dialect_.close;
  depth_ = 0;
}

void Emitter::split_index(const std::string& linear, const std::vector<int>& group, std::string_view type) {
  std::string rest = linear;
  for (size_t i = group.size(); i-- > 0;) {
    const int dim = group[i];
    if (i == 0) {
      line({type, " i", dim, " = ", rest, ";"});
    } else {
      line({type, " i", dim, " = ", rest, " % d", dim, ";"});
      const std::string next = join_text({"x", dim});
      line({"const i64 ", next, " = ", rest, " / d", dim, ";"});
      rest = next;
    }
  }
}

void Emitter::rebase(const std::vector<int>& group, std::string_view prefix,
                     const std::vector<bool>& needed) {
  std::vector<bool> used(nest_.windows.size(), false);
  for (size_t v = 0; v < needed.size(); ++v)
    if (needed[v] && nest_.values[v].window >= 0 && nest_.values[v].kind != LoopValue::Kind::Scalar)
      used[nest_.values[v].window] = true;
  for (const LoopStore& store : nest_.stores)
    if (needed[store.value]) used[store.window] = true;
  for (size_t w = 0; w < nest_.windows.size(); ++w) {
    std::string steps;
    for (int dim : group)
      if (nest_.windows[w].strides[dim].kind != LoopStride::Kind::Zero)
        steps += join_text({" + i", dim, " * ", stride(static_cast<int>(w), dim)});
    if (!used[w] || steps.empty()) continue;
    const std::string pointer = join_text({prefix, static_cast<int>(w)});
    const bool index = nest_.windows[w].pointer < 0;
    line({index ? "const i64 " : join_text({memory_type(nest_.windows[w].dtype), "* const "}), pointer, " = ",
          pointer_[w], steps, ";"});
    pointer_[w] = pointer;
  }
}

std::string Emitter::element(int window, int dim, std::string_view index) const {
  const bool number = nest_.windows[window].pointer < 0;
  std::string step;
  if (dim >= 0) {
    const LoopStride& stride = nest_.windows[window].strides[dim];
    if (stride.kind == LoopStride::Kind::One) step = std::string(index);
    if (stride.kind == LoopStride::Kind::Argument) step = join_text({"(", index, ") * d", stride.argument});
  }
  if (number) return step.empty() ? pointer_[window] : join_text({pointer_[window], " + ", step});
  return join_text({pointer_[window], "[", step.empty() ? "0" : step, "]"});
}

std::string Emitter::argument(int value, DType type) const {
  const std::string text = join_text({"v", value});
  const DType have = compute_dtype(nest_.values[value].dtype);
  // A choice rather than a conversion: compilers make a vector of it whatever was compared.
  if (have == DType::Bool && is_floating(type))
    return join_text({"(", text, " ? ", register_type(type), "(1) : ", register_type(type), "(0))"});
  return have == type ? text : join_text({"cast<", register_type(type), ">(", text, ")"});
}

void Emitter::define(int value, const std::string& expression) {
  const DType dtype = nest_.values[value].dtype;
  if (is_half(dtype)) {
    line({"const u16 h", value, " = float_to_", half_name(dtype), "(", expression, ");"});
    line({"const float v", value, " = ", half_name(dtype), "_to_float(h", value, ");"});
  } else {
    line({"const ", register_type(dtype), " v", value, " = ", expression, ";"});
  }
}

std::string Emitter::expression(int number) const {
  const LoopValue& value = nest_.values[number];
  const std::string_view type = register_type(value.compute);
  const OpInfo& row = info(value.op);
  // The result is of type T, or Bool for comparisons; the output may be of another dtype still.
  std::string call;
  DType result = value.compute;
  if (value.kind == LoopValue::Kind::Single) {
    call = join_text({"reduce_", row.name, "<", type, ">(identity_", row.name, "<", type, ">(), ",
                      argument(value.args[0], value.compute), ")"});
  } else if (value.op == Op::copy) {
    return argument(value.args[0], compute_dtype(value.dtype));
  } else {
    call = join_text({"op_", row.name, "<", type, ">("});
    for (size_t i = 0; i < value.args.size(); ++i) {
      const int arg = value.args[i];
      const DType have = compute_dtype(nest_.values[arg].dtype);
      DType want = value.compute;
      if (row.rule == DTypeRule::Where && i == 0) want = DType::Bool;
      if (row.kind == OpKind::Generator && nest_.values[arg].kind == LoopValue::Kind::Scalar &&
          is_integral(have))
        want = DType::I64;
      if (nest_.values[arg].kind == LoopValue::Kind::Index) want = DType::I64;
      call += join_text({i ? ", " : "", argument(arg, want)});
    }
    call += ")";
    if (row.rule == DTypeRule::Bool) result = DType::Bool;
  }
  const DType want = compute_dtype(value.dtype);
  return result == want ? call : join_text({"cast<", register_type(want), ">(", call, ")"});
}

void Emitter::compute(const std::vector<bool>& needed, int dim, std::string_view index) {
  for (size_t v = 0; v < nest_.values.size(); ++v) {
    if (!needed[v] || ready_[v]) continue;
    const LoopValue& value = nest_.values[v];
    const int number = static_cast<int>(v);
    ready_[v] = true;
    if (kept_[v]) {
      line({"const ", register_type(value.dtype), " v", number, " = b", number, "[", index, "];"});
      if (is_half(value.dtype))
        line({"const u16 h", number, " = float_to_", half_name(value.dtype), "(v", number, ");"});
    } else if (value.kind == LoopValue::Kind::Load) {
      const std::string source = element(value.window, dim, index);
      if (is_half(value.dtype)) {
        line({"const u16 h", number, " = ", source, ";"});
        line({"const float v", number, " = ", half_name(value.dtype), "_to_float(h", number, ");"});
      } else {
        line({"const ", register_type(value.dtype), " v", number, " = ", source,
              value.dtype == DType::Bool ? " != 0;" : ";"});
      }
    } else if (value.kind == LoopValue::Kind::Index) {
      line({"const i64 v", number, " = ", element(value.window, dim, index), ";"});
    } else {
      define(number, expression(number));
    }
  }
}

/// Full-level loads that do not move with `dim`: taken out of its loop, since stores may seem to alias them.
void Emitter::hoist(const std::vector<bool>& needed, int dim) {
  std::vector<bool> fixed(needed.size(), false);
  for (size_t v = 0; v < needed.size(); ++v)
    fixed[v] = needed[v] && !kept_[v] && nest_.values[v].kind == LoopValue::Kind::Load &&
               nest_.windows[nest_.values[v].window].strides[dim].kind == LoopStride::Kind::Zero;
  compute(fixed, dim, "0");
}

void Emitter::store(Level level, int dim, std::string_view index) {
  for (const LoopStore& store : nest_.stores) {
    const LoopValue& value = nest_.values[store.value];
    if (level != value.level && nest_.kind != LoopNest::Kind::Pointwise) continue;
    line({element(store.window, dim, index), " = ", is_half(value.dtype) ? "h" : "v", store.value, ";"});
  }
}

void Emitter::need(int value, std::vector<bool>& needed) const {
  if (needed[value] || ready_[value]) return;
  needed[value] = true;
  if (kept_[value] || nest_.values[value].kind == LoopValue::Kind::Reduction) return;
  for (int arg : nest_.values[value].args) need(arg, needed);
}

std::vector<bool> Emitter::needed_for(const std::vector<int>& roots) const {
  std::vector<bool> needed(nest_.values.size(), false);
  for (int root : roots) need(root, needed);
  return needed;
}

std::vector<int> Emitter::stored(Level level) const {
  std::vector<int> values;
  for (const LoopStore& store : nest_.stores)
    if (nest_.values[store.value].level == level || nest_.kind == LoopNest::Kind::Pointwise)
      values.push_back(store.value);
  return values;
}

std::vector<int> Emitter::operands(const std::vector<int>& reductions) const {
  std::vector<int> values;
  for (int reduction : reductions) values.push_back(nest_.values[reduction].args[0]);
  return values;
}

std::string Emitter::combine(int reduction, const std::string& a, const std::string& b) const {
  const LoopValue& value = nest_.values[reduction];
  return join_text({"reduce_", name(value.op), "<", register_type(value.compute), ">(", a, ", ", b, ")"});
}

std::string Emitter::identity(int reduction) const {
  const LoopValue& value = nest_.values[reduction];
  return join_text({"identity_", name(value.op), "<", register_type(value.compute), ">()"});
}

void Emitter::finalise(int reduction, const std::string& total) {
  const LoopValue& value = nest_.values[reduction];
  const DType want = compute_dtype(value.dtype);
  define(reduction,
         want == value.compute ? total : join_text({"cast<", register_type(want), ">(", total, ")"}));
  ready_[reduction] = true;
}

bool Emitter::has_costly(const std::vector<bool>& needed) const {
  for (size_t v = 0; v < needed.size(); ++v) {
    const LoopValue& value = nest_.values[v];
    if (needed[v] && value.kind == LoopValue::Kind::Op && value.level == Level::Full && is_costly(value.op))
      return true;
  }
  return false;
}

/// Whether elements along `dim` are neighbours and other dimensions lead to more of them.
bool Emitter::moves_on(int window, int dim) const {
  const std::vector<LoopStride>& strides = nest_.windows[window].strides;
  if (nest_.windows[window].pointer < 0 || strides[dim].kind != LoopStride::Kind::One) return false;
  return strides.size() == 1 || std::any_of(strides.begin(), strides.end(), [](const LoopStride& stride) {
           return stride.kind == LoopStride::Kind::Argument;
         });
}

// Costly loops, a part of which is computed while the next but one comes, and those over short rows that also
// write or add up several sums. Plain streams and single sums are best left to the hardware.
void Emitter::open_elements(const std::string& elements, const std::vector<bool>& needed, int dim) {
  const bool costly = has_costly(needed), columns = nest_.kind == LoopNest::Kind::Columns;
  const bool writes = !columns || !stored(Level::Full).empty();
  const bool more_than_a_sum = writes || reductions_.size() > 1;
  const bool fetches = dialect_.fetches && (costly || (more_than_a_sum && nest_.dims.size() > 1));
  loops_ = fetches ? 2 : 1;
  if (fetches) {
    std::vector<bool> read(nest_.windows.size(), false), written = read;
    for (size_t v = 0; v < needed.size(); ++v)
      if (const LoopValue& value = nest_.values[v]; needed[v] && value.kind == LoopValue::Kind::Load)
        read[value.window] = true;
    for (const LoopStore& store : nest_.stores)
      if (!columns || (!costly && nest_.values[store.value].level == Level::Full))
        written[store.window] = true;
    line({"const bool far = ", elements, " > kFetchFrom;"});
    line({"const i64 step = far ? kPart : last - first;"});
    line({"for (i64 from = first; from < last; from += step) {"});
    line({"const i64 to = least(last, from + step);"});
    line({"if (far) {"});
    for (size_t w = 0; w < nest_.windows.size(); ++w)
      if ((read[w] || written[w]) && moves_on(static_cast<int>(w), dim))
        line({written[w] && !costly ? "fetch_to_write(" : "fetch(", pointer_[w], " + from",
              costly || !writes ? " + 2 * kPart" : " + kPart", ", to - from);"});
    line({"}"});
  }
  line({dialect_.independent});
  line({fetches ? "for (i64 j = from; j < to; ++j) {" : "for (i64 j = first; j < last; ++j) {"});
}

void Emitter::close_elements() {
  for (; loops_ > 0; --loops_) line({"}"});
}

void Emitter::pointwise() {
  open(0, "count");
  const int inner = dims(LoopRole::Column)[0];
  const std::vector<int>& outer = dims(LoopRole::Kept);
  const std::vector<bool> needed = needed_for(stored(Level::Full));
  if (outer.empty()) {
    line({"const i64 first = begin, last = end;"});
  } else {
    // Segments of the innermost dimension; the outer indices count like an odometer.
    line({"i64 first = begin % d", inner, ";"});
    line({"const i64 begin_row = begin / d", inner, ";"});
    split_index("begin_row", outer, "i64");
    line({"for (i64 at = begin; at < end;) {"});
    line({"const i64 last = least(d", inner, ", first + end - at);"});
    line({"at += last - first;"});
  }
  rebase(outer, "q", needed);
  hoist(needed, inner);
  open_elements("end - begin", needed, inner);
  compute(needed, inner, "j");
  store(Level::Full, inner, "j");
  close_elements();
  if (!outer.empty()) {
    line({"first = 0;"});
    for (size_t i = outer.size(); i-- > 1;) {
      line({"if (++i", outer[i], " == d", outer[i], ") {"});
      line({"i", outer[i], " = 0;"});
    }
    line({"++i", outer[0], ";"});
    for (size_t i = 0; i < outer.size(); ++i) line({"}"});
  }
  close();
}

std::string emit(const LoopNest& nest, const std::string& name, const Dialect& dialect) {
  return Emitter(nest, name, dialect).run();
}

}  // namespace etch::codegen
