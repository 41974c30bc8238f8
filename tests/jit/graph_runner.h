// Runs a graph op by op, or compiled, on the same data.
#pragma once

#include <string>
#include <vector>

#include "jit/executable.h"
#include "tracer/path.h"

namespace etch::test {

/// The bytes of every buffer of a graph; those of internals are scratch.
using Contents = std::vector<std::vector<char>>;

/// A graph as build_graph() would give it, with one call's values and the bytes of its externals.
struct Program {
  Graph graph;
  std::vector<OperandValue> values;
  Contents contents;
};

/// Executes node by node (groups by their bodies) in memory of its own; returns all bytes afterwards.
Contents run_nodes(const Graph& graph, const Program& program);

/// Replays; returns externals and outputs (other buffers stay as they were). `live`: outputs wanted; empty:
/// all. Throws what the replay throws; sets `refused` when it returns false.
Contents run_compiled(const jit::PlanExecutable& executable, const Program& program, bool* refused = nullptr,
                      LiveSet live = {});

LiveSet outputs_of(const Graph& graph);

/// Empty, or which external or output differs first.
std::string difference(const Graph& graph, const Contents& expected, const Contents& got);

/// Settings restored at the end of a test.
class ConfigGuard {
 public:
  ConfigGuard();
  ~ConfigGuard();

 private:
  struct Saved;
  Saved* saved_;
};

}  // namespace etch::test
