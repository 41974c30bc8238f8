// A fixed share of the random programs; build/tests/fuzz looks for more.
#include "tests/jit/program_generator.h"

#include <gtest/gtest.h>

#include "eager/cpu/tile_product.h"
#include "runtime/parallel.h"

namespace etch::fuzz {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr uint64_t kShare = 1;  // sanitizers are slow
#elif defined(__has_feature)
constexpr uint64_t kShare = __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) ? 1 : 4;
#else
constexpr uint64_t kShare = 4;
#endif

void expect_no_difference(uint64_t seed, const Mode& mode) {
  const Program program = generate(seed);
  if (const auto found = find_difference(program, mode)) {
    const Program small = shrink(program, mode);
    ADD_FAILURE() << "seed " << seed << " without \"" << mode.skip_passes << "\": " << *found << "\n"
                  << print(small);
  }
}

TEST(RandomPrograms, CompiledEqualsEager) {
  for (uint64_t seed = 1; seed <= 150 * kShare; ++seed) expect_no_difference(seed, {});
  EXPECT_GT(2 * totals().compiled_flushes, totals().eager_flushes);
  for (const int64_t seen : {totals().while_compiling, totals().evictions, totals().refused_paths})
    EXPECT_GT(seen, 0);
}

TEST(RandomPrograms, WithoutAnyOnePass) {
  const std::vector<std::string> passes = optional_passes();
  for (size_t i = 0; i < passes.size(); ++i)
    for (uint64_t k = 0; k < 9 * kShare; ++k)
      expect_no_difference(10000 + i * 100 + k, {.skip_passes = passes[i]});
}

TEST(RandomPrograms, WithoutAnyOptionalPass) {
  std::string all;
  for (const std::string& pass : optional_passes()) all += (all.empty() ? "" : ",") + pass;
  for (uint64_t seed = 3000; seed < 3000 + 25 * kShare; ++seed)
    expect_no_difference(seed, {.skip_passes = all});
}

TEST(RandomPrograms, AgreeWithTheInterpreter) {
  const int64_t before = totals().interpreted;
  for (uint64_t seed = 5000; seed < 5000 + 30 * kShare; ++seed)
    expect_no_difference(seed, {.interpret = true});
  EXPECT_GT(totals().interpreted, before + 100);
}

TEST(RandomPrograms, FrozenCallsEqualEagerOnes) {
  const int64_t before = totals().frozen_calls;
  for (uint64_t seed = 6000; seed < 6000 + 60 * kShare; ++seed) {
    const Program program = generate_frozen(seed);
    const auto found = find_difference(program, {});
    EXPECT_FALSE(found) << "seed " << seed << ": " << *found << "\n" << print(shrink(program, {}));
  }
  EXPECT_GT(totals().frozen_calls, before + 60);
}

TEST(RandomPrograms, WithGeneratedKernels) {
  for (uint64_t seed = 4000; seed < 4000 + 8 * kShare; ++seed) {
    Program program = generate(seed);
    program.calls = 3;
    program.compile_at = 1;
    const auto found = find_difference(program, {.compile_kernels = true});
    EXPECT_FALSE(found) << "seed " << seed << ": " << *found;
  }
}

TEST(RandomPrograms, AboutAttention) {
  const int64_t before = totals().tiled;
  for (uint64_t seed = 7000; seed < 7000 + 8 * kShare; ++seed) {
    const Program program = generate_attention(seed);
    const auto found = find_difference(program, {.compile_kernels = true});
    EXPECT_FALSE(found) << "seed " << seed << ": " << *found << "\n" << print(program);
  }
  if (cpu::has_tile_product(64) && num_threads() <= 2) {
    EXPECT_GT(totals().tiled, before);
  }
}

TEST(RandomPrograms, AreTheSameForOneSeed) {
  EXPECT_EQ(print(generate(77)), print(generate(77)));
  EXPECT_NE(print(generate(77)), print(generate(78)));
}

}  // namespace
}  // namespace etch::fuzz
