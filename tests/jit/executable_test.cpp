// Compiled graphs against the same ops one by one, bit for bit.
#include "jit/executable.h"

#include <gtest/gtest.h>

#include "jit/pipeline.h"
#include "runtime/config.h"
#include "tests/jit/graph_runner.h"
#include "tests/jit/random_program.h"

namespace etch::test {
namespace {

Ref<jit::PlanExecutable> compile(const Graph& graph) {
  return jit::compile_graph(graph, outputs_of(graph), {.name = "test"});
}

/// Compiles and runs; the difference to running node by node.
std::string compare(const Program& program) {
  const Contents expected = run_nodes(program.graph, program);
  const Ref<jit::PlanExecutable> executable = compile(program.graph);
  bool refused = false;
  const Contents got = run_compiled(*executable, program, &refused);
  if (refused) return "";  // the caller runs such a call op by op
  const std::string text = difference(program.graph, expected, got);
  return text.empty() ? text : text + "\n" + print(program.graph) + "\nbecame\n" + executable->final_graph();
}

TEST(Executable, RandomProgramsGiveTheBitsOfTheirOps) {
  ConfigGuard guard;
  config().verify = config().poison = true;
  for (uint64_t seed = 0; seed < 60; ++seed) ASSERT_EQ(compare(random_program(seed)), "") << "seed " << seed;
}

}  // namespace
}  // namespace etch::test
