// Ops as data: the enum and its table from ops.def, calls, and shape inference.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "runtime/dtype.h"
#include "runtime/shape.h"
#include "runtime/storage.h"

namespace etch {

enum class Op : uint16_t {
#define ETCH_POINTWISE(name, ...) name,
#define ETCH_GENERATOR(name, ...) name,
#define ETCH_REDUCTION(name, ...) name,
#define ETCH_OP(name, ...) name,
#define ETCH_COMPOSITE(name, ...) name,
#include "tracer/ops.def"
  fused,  ///< only in graphs: a fusion group made by the passes
  tiled,  ///< only in graphs: products and the groups between them, computed a block of rows at a time
};
inline constexpr int kNumOps = static_cast<int>(Op::fused);

enum class OpKind : uint8_t {
  Pointwise,
  Generator,
  Reduction,
  Extremum,  ///< argmax, argmin: a position instead of a value
  Contraction,
  Window,
  Indexing,
  Composite,
  Group
};

/// How a row's dtypes follow from its operands'.
enum class DTypeRule : uint8_t {
  Promote,  ///< computes and gives the promoted dtype
  Numeric,  ///< the same, but bools are refused
  Float,    ///< the same, but integers become F32
  Bool,     ///< computes in the promoted dtype, gives Bool (reductions: computes in Bool)
  Where,    ///< the first operand is Bool, the others as Promote
  Cast,     ///< any to any; the output's dtype is given at the call
  Given,    ///< the output's dtype is given at the call
  Sum,      ///< integers and Bool accumulate in and give I64, floats stay
  Same,     ///< the operand's
  Rule,     ///< shape_rules.cpp decides
};

enum OpFlags : uint8_t {
  kCommutative = 1,
  kRandom = 2,             ///< draws from Philox: never merged, even with equal operands
  kChecksIndex = 4,        ///< raises IndexError for data out of range
  kChecksZeroDivisor = 8,  ///< raises ValueError for an integer divisor of zero
  kNeedsElements = 16,     ///< refuses to reduce nothing
  kWritesInputs = 32,      ///< some outputs are windows of operands, written in place
  kOptionalLast = 64,      ///< the last operand may be absent
};

inline constexpr int kMaxOutputs = 6;
inline constexpr int kMaxInputs = 12;

struct OpInfo {
  std::string_view name;
  OpKind kind;
  DTypeRule rule;
  uint8_t arity;
  uint8_t outputs;
  uint8_t flags;
  const char* expression;  ///< pointwise, generators: the element; reductions: the combination of a and b
  const char* identity;    ///< reductions: where the combination starts
  const char* doc;
  std::array<int8_t, kMaxOutputs> written;  ///< by output: the operand it overwrites; -1: none
};

const OpInfo& info(Op op);
inline std::string_view name(Op op) { return info(op).name; }
/// The op called `name`; throws ValueError.
Op parse_op(std::string_view name);

/// Structure attributes of a call: small integers whose meaning is the op's (see tracer/attrs.h).
struct Attrs {
  static constexpr int kMax = 16;
  std::array<int64_t, kMax> values{};
  int count = 0;

  Attrs() = default;
  Attrs(std::initializer_list<int64_t> list) {
    for (int64_t value : list) values[count++] = value;
  }
  int64_t operator[](int i) const { return values[i]; }
  bool operator==(const Attrs& other) const {
    if (count != other.count) return false;
    for (int i = 0; i < count; ++i)
      if (values[i] != other.values[i]) return false;
    return true;
  }
};

/// One operand of a call: a window into a storage, a host scalar, or (kOptionalLast) nothing.
struct Operand {
  Storage* storage = nullptr;  ///< identity; null for a scalar, an absent operand, and inside a running plan
  char* base = nullptr;        ///< the storage's bytes; set when the call is executed
  const Geometry* geometry = nullptr;  ///< null: a scalar, or absent
  int64_t offset = 0;                  ///< in elements of dtype
  DType dtype = DType::F32;
  bool present = true;
  Scalar scalar;

  bool is_scalar() const { return present && !geometry; }
  bool is_tensor() const { return geometry != nullptr; }
  static Operand absent() {
    Operand operand;
    operand.present = false;
    return operand;
  }
  /// The first element, once `base` is set.
  char* data() const { return base + offset * static_cast<int64_t>(item_size(dtype)); }
};

/// An op with all it works on. Outputs are windows too: fresh ones, or existing ones written in place.
struct OpCall {
  Op op;
  std::span<const Operand> inputs;
  std::span<const Operand> outputs;
  const Attrs& attrs;
};

/// What a call gives.
struct OutputSpec {
  Geometry geometry;
  DType dtype;
};

/// Sizes, strides and dtypes of the outputs; returns how many. `given` is the output dtype of rows with the
/// rule Cast or Given, and the sizes of operand-less generators are attributes. Outputs that kWritesInputs
/// writes in place are described as their operand. Throws ShapeError or DTypeError naming the op, what it
/// expected and what came.
int infer(Op op, std::span<const Operand> inputs, const Attrs& attrs, DType given, OutputSpec* outputs);

/// The operand that output number `output` of a kWritesInputs row overwrites; -1: a fresh tensor.
inline int written_operand(Op op, int output) { return info(op).written[output]; }

/// The dtype that pointwise rows compute in and that their tensor operands must be cast to (the first operand
/// of Where stays Bool); for operands that are all scalars, their default dtype.
DType operand_dtype(Op op, std::span<const Operand> inputs);

}  // namespace etch
