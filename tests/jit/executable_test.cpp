// Compiled graphs against the same ops one by one, bit for bit.
#include "jit/executable.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "jit/passes.h"
#include "jit/pipeline.h"
#include "runtime/config.h"
#include "tests/jit/graph_runner.h"
#include "tests/jit/random_program.h"

namespace etch::test {
namespace {

/// Compiles and runs; the difference to running node by node.
std::string compare(const Program& program, int64_t budget) {
  const Contents expected = run_nodes(program.graph, program);
  const Ref<jit::PlanExecutable> executable =
      jit::compile_graph(program.graph, outputs_of(program.graph), {.name = "test", .memory_budget = budget});
  bool refused = false;
  const Contents got = run_compiled(*executable, program, &refused);
  if (refused) return "";  // the caller runs such a call op by op
  const std::string text = difference(program.graph, expected, got);
  return text.empty() ? text : text + "\n" + print(program.graph) + "\nbecame\n" + executable->final_graph();
}

/// ETCH_SEEDS=first:count widens the search.
std::pair<uint64_t, uint64_t> seeds(uint64_t count) {
  uint64_t first = 0;
  if (const char* text = std::getenv("ETCH_SEEDS")) std::sscanf(text, "%lu:%lu", &first, &count);
  return {first, first + count};
}

void compare_random(uint64_t count, const RandomOptions& options, int64_t budget = 0) {
  const auto [first, last] = seeds(count);
  for (uint64_t seed = first; seed < last; ++seed)
    ASSERT_EQ(compare(random_program(seed, options), budget), "") << "seed " << seed;
}

TEST(Executable, RandomProgramsGiveTheBitsOfTheirOps) {
  ConfigGuard guard;
  config().verify = config().poison = true;
  compare_random(25, {});
}

TEST(Executable, SoDoLongerOnesWithoutACompiler) {
  ConfigGuard guard;
  config().verify = config().poison = true;
  config().cxx = "none";
  compare_random(150, {.nodes = 60});
}

TEST(Executable, AndThoseThatRecompute) {
  ConfigGuard guard;
  config().verify = config().poison = true;
  int recomputed = 0, inlined = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const Graph graph = random_program(seed, {.nodes = 50, .wide = true}).graph;
    config().skip_passes = "recompute,fuse,inline_recomputed,order";
    const Graph plain = jit::run_passes(graph, "plain", nullptr);
    recomputed += jit::recompute(plain).buffers.size() > plain.buffers.size();
    const Graph fused = jit::fuse(plain);
    inlined += jit::inline_recomputed(fused).buffers.size() > fused.buffers.size();
  }
  config().skip_passes = {};
  EXPECT_GE(recomputed, 5);
  EXPECT_GE(inlined, 4);
  compare_random(8, {.nodes = 50, .wide = true});
  config().cxx = "none";
  compare_random(40, {.nodes = 50, .wide = true});
  compare_random(40, {.nodes = 50, .wide = true}, 1);
}

TEST(Executable, AndWithEachPassLeftOut) {
  ConfigGuard guard;
  config().verify = config().poison = true;
  for (const jit::Pass& pass : jit::passes()) {
    if (!pass.optional) continue;
    SCOPED_TRACE(pass.name);
    config().skip_passes = pass.name;
    compare_random(4, {});
    config().cxx = "none";
    compare_random(40, {.nodes = 40});
    config().cxx = {};
  }
}

TEST(Executable, AndWithAllOptionalPassesLeftOut) {
  ConfigGuard guard;
  config().verify = config().poison = true;
  for (const jit::Pass& pass : jit::passes()) config().skip_passes += join_text({pass.name, ","});
  compare_random(40, {.nodes = 40});
}

}  // namespace
}  // namespace etch::test
