// One call's stream of ops, ready to run.
#pragma once

#include <exception>
#include <span>
#include <vector>

#include "runtime/source_location.h"
#include "tracer/path.h"
#include "tracer/site.h"

namespace etch {

/// What a stream works on, apart from the ops.
struct Stream {
  std::vector<OperandValue> values;    ///< in stream order: the inputs, then the outputs of each op
  std::vector<Ref<Storage>> storages;  ///< by number
  std::vector<bool> external;          ///< by number

  /// The internals that somebody else holds too.
  LiveSet live() const;
  /// Runs the ops through the device's own kernels. Those that nothing live or external needs are skipped,
  /// and internals go after their last use.
  void run_one_by_one(std::span<const RecordedOp* const> ops, const LiveSet& live);
  /// Executable::run(); an error marks what it leaves undone.
  bool run(const Executable& executable, const Path& path, const LiveSet& live) const;
  /// Values that the ops from `next_op` on would have written raise `error` when they are used.
  void fail_incomplete(std::span<const RecordedOp* const> ops, const LiveSet& live, size_t next_op,
                       std::exception_ptr error) const;
};

/// What the flushes of one body did, for those who replay it without the body.
struct FlushCapture {
  int flushes = 0;
  FlushReason reason = FlushReason::EndOfBody;  ///< of the first flush
  SourceLocation where;
  bool left_known_paths = false;  ///< and the site takes no new ones: the rest of the body ran eagerly
  PathEnd* end = nullptr;         ///< of the last flush, as all that follows
  Ref<Executable> executable;     ///< compiled if there was none yet; null if there cannot be one
  Stream stream;                  ///< as before it ran
  LiveSet live;
};

}  // namespace etch
