// What passes between the recorder and a compiler: the recorded ops of a path, one call's values,
// executables.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/ref.h"
#include "runtime/storage.h"
#include "tracer/graph.h"
#include "tracer/op.h"

namespace etch {

/// One operand in a recorded stream. Storages are numbered in order of first appearance, externals and
/// internals alike.
struct RecordedOperand {
  enum class Kind : uint8_t { Tensor, Scalar, Absent };
  Kind kind;
  DType dtype;
  Scalar::Kind scalar_kind;
  int number;  ///< of the storage
  Geometry geometry;
};

struct RecordedOp {
  Op op;
  Attrs attrs;
  std::vector<RecordedOperand> inputs;
  std::vector<RecordedOperand> outputs;
};

/// What a path does not fix about an operand: a tensor's offset in elements, or a scalar's value.
struct OperandValue {
  int64_t offset = 0;
  Scalar scalar;
};

/// Facts about a numbered storage that hold for every call of a path.
struct RecordedStorage {
  bool external;
  int64_t bytes;
  Device device;
};

/// A path: everything about a stream of ops that is the same at every call.
struct Path {
  std::vector<const RecordedOp*> ops;
  std::vector<RecordedStorage> storages;  ///< by number
};

/// Bit `number`: the internal storage outlives the flush.
using LiveSet = std::vector<bool>;
bool contains(const LiveSet& outer, const LiveSet& inner);

/// One call of a path.
struct Segment {
  const Path& path;
  /// One an operand, in stream order: the inputs, then the outputs of each op. The position is the graph's
  /// slot.
  std::span<const OperandValue> values;
  std::span<Storage* const> storages;  ///< by number; internals are deferred, externals have bytes
  const LiveSet& live;                 ///< contained in the executable's own
};

/// A compiled path. Immutable; run() may be called from many threads at once.
class Executable : public RefCounted {
 public:
  virtual ~Executable() = default;
  /// Does what the segment's ops would do one by one, and materialises the live internals. All memory is
  /// allocated before the first write, so OutOfMemoryError leaves everything as it was. Returns false, with
  /// nothing done, when a check of index operands fails or an assumption does not hold: the caller then runs
  /// the segment op by op.
  virtual bool run(const Segment& segment) const = 0;
  /// The internals it materialises.
  virtual const LiveSet& live() const = 0;
  virtual std::string report() const = 0;  ///< kernels, memory and times, for explain()
  virtual std::string report_json() const = 0;
  static void destroy(Executable* executable) { delete executable; }
};

struct CompileOptions {
  std::string name;           ///< of the traced function, for dumps
  int64_t memory_budget = 0;  ///< bytes; 0: none
};

/// Compiles a path for calls whose live set is contained in `live`.
using CompileFunction = Ref<Executable> (*)(const Path& path, const LiveSet& live,
                                            const CompileOptions& options);
/// Set once, by jit/.
void register_compiler(CompileFunction compile);
CompileFunction registered_compiler();

/// The graph of a path: one node an op, buffers numbered like storages, live internals as outputs.
Graph build_graph(const Path& path, const LiveSet& live);

}  // namespace etch
