// The op table's expressions as functions of generated text.
#include "codegen/loop.h"
#include "runtime/error.h"
#include "tracer/reduction.h"

namespace etch::codegen {
namespace {

static_assert(kReductionLanes == 32 && kReductionBlock == 4096, "the numbers in kReductionSupport");

std::string pointwise(const OpInfo& row) {
  constexpr const char* kNames[] = {"a", "b", "c", "d"};
  const bool generator = row.kind == OpKind::Generator;
  std::string types = "class T", parameters;
  for (int i = 0; i < row.arity; ++i) {
    std::string type = "T";
    // Scalars of generators keep their own kind.
    if (generator) {
      type = concat({"T", i});
      types += concat({", class ", type});
    }
    if (row.rule == DTypeRule::Where && i == 0) type = "bool";
    parameters += concat({i ? ", " : "", type, " ", kNames[i]});
  }
  if (generator) parameters += concat({row.arity ? ", " : "", "i64 i"});
  const char* result = row.rule == DTypeRule::Bool ? "bool" : "T";
  return concat({"template <", types, ">\nETCH_FN ", result, " op_", row.name, "(", parameters,
                 ") {\n  return static_cast<", result, ">(", row.expression, ");\n}\n"});
}

std::string reduction(const OpInfo& row) {
  return concat({"template <class T>\nETCH_FN T identity_", row.name, "() {\n  return ", row.identity,
                 ";\n}\ntemplate <class T>\nETCH_FN T reduce_", row.name,
                 "(T a, T b) {\n  return static_cast<T>(", row.expression, ");\n}\n"});
}

constexpr const char* kReductionSupport = R"(
union KernelScalar {
  double f64;
  float f32;
  long long i64;
};
constexpr int kLanes = 32, kBlock = 4096;
ETCH_FN i64 least(i64 a, i64 b) { return a < b ? a : b; }
template <class T, T (*combine)(T, T)>
ETCH_FN void fold_lanes(T* lanes) {
  for (int i = 0; i < 16; ++i) lanes[i] = combine(lanes[i], lanes[i + 16]);
  for (int i = 0; i < 8; ++i) lanes[i] = combine(lanes[i], lanes[i + 8]);
  for (int i = 0; i < 4; ++i) lanes[i] = combine(lanes[i], lanes[i + 4]);
  const T a = combine(lanes[0], lanes[2]), b = combine(lanes[1], lanes[3]);
  lanes[0] = combine(a, b);
}
template <class T, T (*combine)(T, T)>
ETCH_FN void take_lanes(T* lanes, const T* elements, int count) {
  int at = 0;
  for (; at + kLanes <= count; at += kLanes)
    for (int l = 0; l < kLanes; ++l) lanes[l] = combine(lanes[l], elements[at + l]);
  for (int l = 0; at + l < count; ++l) lanes[l] = combine(lanes[l], elements[at + l]);
}
)";

}  // namespace

const std::string& op_definitions() {
  static const std::string* const text = [] {
    auto* all = new std::string("namespace etch::scalar {\n");
    for (int i = 0; i < kNumOps; ++i) {
      const OpInfo& row = info(static_cast<Op>(i));
      if (row.kind == OpKind::Pointwise || row.kind == OpKind::Generator) *all += pointwise(row);
      if (row.kind == OpKind::Reduction) *all += reduction(row);
    }
    *all += kReductionSupport;
    *all += "}  // namespace etch::scalar\n";
    return all;
  }();
  return *text;
}

}  // namespace etch::codegen
