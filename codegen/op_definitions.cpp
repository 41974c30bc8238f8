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
      type = join_text({"T", i});
      types += join_text({", class ", type});
    }
    if (row.rule == DTypeRule::Where && i == 0) type = "bool";
    parameters += join_text({i ? ", " : "", type, " ", kNames[i]});
  }
  if (generator) parameters += join_text({row.arity ? ", " : "", "i64 i"});
  const char* result = row.rule == DTypeRule::Bool ? "bool" : "T";
  return join_text({"template <", types, ">\nETCH_FN ", result, " op_", row.name, "(", parameters,
                    ") {\n  return static_cast<", result, ">(", row.expression, ");\n}\n"});
}

std::string reduction(const OpInfo& row) {
  return join_text({"template <class T>\nETCH_FN T identity_", row.name, "() {\n  return ", row.identity,
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
#ifndef ETCH_LANE_LOOP
#define ETCH_LANE_LOOP
#endif
ETCH_FN i64 least(i64 a, i64 b) { return a < b ? a : b; }
// Loops over lanes become vectors only if they stay loops, count in 64 bits and do not seem to alias themselves.
template <class T, T (*combine)(T, T)>
ETCH_FN void fold_lanes(T* lanes) {
  T half[16], quarter[8];
  ETCH_LANE_LOOP
  for (i64 l = 0; l < 16; ++l) half[l] = combine(lanes[l], lanes[l + 16]);
  ETCH_LANE_LOOP
  for (i64 l = 0; l < 8; ++l) quarter[l] = combine(half[l], half[l + 8]);
  for (i64 l = 0; l < 4; ++l) half[l] = combine(quarter[l], quarter[l + 4]);
  const T a = combine(half[0], half[2]), b = combine(half[1], half[3]);
  lanes[0] = combine(a, b);
}
template <class T, T (*combine)(T, T)>
ETCH_FN void take_lanes(T* lanes, const T* elements, i64 count) {
  i64 at = 0;
  for (; at + kLanes <= count; at += kLanes) {
    ETCH_LANE_LOOP
    for (i64 l = 0; l < kLanes; ++l) lanes[l] = combine(lanes[l], elements[at + l]);
  }
  const i64 left = count - at;
  ETCH_LANE_LOOP
  for (i64 l = 0; l < left; ++l) lanes[l] = combine(lanes[l], elements[at + l]);
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
