// Looks for programs whose compiled answers differ from eager's: fuzz [--seconds N] [--seed S] [--programs N]
// [--kernels one in N programs also compiles its kernels; 0: none].
#include <chrono>
#include <cstdio>
#include <cstring>
#include <string>

#include "runtime/config.h"
#include "tests/jit/program_generator.h"

using namespace etch;

namespace {

int64_t flag(int argc, char** argv, const char* name, int64_t fallback) {
  for (int i = 1; i + 1 < argc; ++i)
    if (std::strcmp(argv[i], name) == 0) return std::stoll(argv[i + 1]);
  return fallback;
}

// Reports and returns whether the program differs in this mode.
bool differs(const fuzz::Program& program, const fuzz::Mode& mode) {
  const auto found = fuzz::find_difference(program, mode);
  if (!found) return false;
  std::printf("seed %llu, without \"%s\"%s: %s\n", static_cast<unsigned long long>(program.seed),
              mode.skip_passes.c_str(), mode.compile_kernels ? ", kernels compiled" : "", found->c_str());
  const fuzz::Program small = fuzz::shrink(program, mode);
  std::printf("%s%s\n", fuzz::find_difference(small, mode).value_or("gone").c_str(),
              ("\n" + fuzz::print(small)).c_str());
  std::fflush(stdout);
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  const int64_t seconds = flag(argc, argv, "--seconds", 60), programs = flag(argc, argv, "--programs", -1);
  const int64_t every = flag(argc, argv, "--kernels", 50);
  uint64_t seed = static_cast<uint64_t>(flag(argc, argv, "--seed", 1));
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  const std::vector<std::string> passes = fuzz::optional_passes();
  std::string all;
  for (const std::string& pass : passes) all += (all.empty() ? "" : ",") + pass;
  int64_t done = 0;
  int failures = 0;
  while (std::chrono::steady_clock::now() < end && done != programs && failures < 10) {
    const fuzz::Program program = fuzz::generate(seed);
    failures += differs(program, {});
    failures += differs(program, {.skip_passes = passes[seed % passes.size()], .poison = seed % 2 == 0});
    if (seed % 5 == 0) failures += differs(program, {.skip_passes = all});
    if (every > 0 && seed % static_cast<uint64_t>(every) == 0)
      failures += differs(program, {.compile_kernels = true});
    ++seed;
    ++done;
  }
  const fuzz::Totals& t = fuzz::totals();
  std::printf(
      "%lld programs (%lld runs, %lld calls; %lld compiles, %lld flushes compiled, %lld op by op; %lld "
      "errors "
      "raised), %d differ; next seed %llu\n",
      static_cast<long long>(done), static_cast<long long>(t.programs), static_cast<long long>(t.calls),
      static_cast<long long>(t.compiles), static_cast<long long>(t.compiled_flushes),
      static_cast<long long>(t.eager_flushes), static_cast<long long>(t.errors), failures,
      static_cast<unsigned long long>(seed));
  return failures != 0;
}
