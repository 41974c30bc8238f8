// Looks for programs whose compiled answers differ from eager's: fuzz [--seconds N] [--seed S] [--programs N]
// [--print N: their C++ instead, as tests] [--kernels one in N programs also compiles its kernels; 0: none]
// [--attention one in N seeds also gives a short program about attention, with kernels; 0: none]
// [--only: runs with kernels alone].
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>

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
              mode.skip_passes.c_str(),
              mode.compile_kernels ? ", kernels compiled"
              : mode.interpret     ? ", interpreted"
                                   : "",
              found->c_str());
  const fuzz::Program small = fuzz::shrink(program, mode);
  std::printf("%s%s\n", fuzz::find_difference(small, mode).value_or("gone").c_str(),
              ("\n" + fuzz::print(small)).c_str());
  std::fflush(stdout);
  return true;
}

void print_tests(uint64_t seed, int64_t count) {
  std::printf(
      "#include <gtest/gtest.h>\n\n#include \"tests/jit/program_helpers.h\"\n\nnamespace etch::fuzz {\n");
  for (int64_t i = 0; i < count; ++i, ++seed)
    std::printf("\nTEST(PrintedPrograms, Seed%llu) {\n%s}\n", static_cast<unsigned long long>(seed),
                fuzz::print(fuzz::generate(seed)).c_str());
  std::printf("\n}  // namespace etch::fuzz\n");
}

}  // namespace

int main(int argc, char** argv) {
  const int64_t seconds = flag(argc, argv, "--seconds", 60), programs = flag(argc, argv, "--programs", -1);
  const int64_t every = flag(argc, argv, "--kernels", 50), attention = flag(argc, argv, "--attention", 50);
  const bool only_kernels = std::find(argv, argv + argc, std::string_view("--only")) != argv + argc;
  uint64_t seed = static_cast<uint64_t>(flag(argc, argv, "--seed", 1));
  if (const int64_t count = flag(argc, argv, "--print", 0)) {
    print_tests(seed, count);
    return 0;
  }
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  const std::vector<std::string> passes = fuzz::optional_passes();
  std::string all;
  for (const std::string& pass : passes) all += (all.empty() ? "" : ",") + pass;
  int64_t done = 0, kernels = 0;
  int failures = 0;
  const auto report = [&] {
    const fuzz::Totals& t = fuzz::totals();
    std::printf(
        "%lld programs (%lld with kernels, %lld runs, %lld calls; %lld compiles, %lld flushes compiled, %lld "
        "op by op; %lld "
        "errors raised, %lld replays interpreted; %lld calls while compiling, %lld evictions, %lld calls "
        "beyond max_paths; %lld frozen calls, %lld bodies refused; %lld programs ran tiles), %d differ; next "
        "seed "
        "%llu\n",
        static_cast<long long>(done), static_cast<long long>(kernels), static_cast<long long>(t.programs),
        static_cast<long long>(t.calls), static_cast<long long>(t.compiles),
        static_cast<long long>(t.compiled_flushes), static_cast<long long>(t.eager_flushes),
        static_cast<long long>(t.errors), static_cast<long long>(t.interpreted),
        static_cast<long long>(t.while_compiling), static_cast<long long>(t.evictions),
        static_cast<long long>(t.refused_paths), static_cast<long long>(t.frozen_calls),
        static_cast<long long>(t.refused), static_cast<long long>(t.tiled), failures,
        static_cast<unsigned long long>(seed));
    std::fflush(stdout);
  };
  auto next_report = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() < end && done != programs && failures < 10) {
    const fuzz::Program program = fuzz::generate(seed);
    if (every > 0 && seed % static_cast<uint64_t>(every) == 0) {
      fuzz::Program few_paths = program;  // compilers are slow
      few_paths.calls = std::min(program.calls, 3);
      few_paths.compile_at = 1;
      failures += differs(few_paths, {.compile_kernels = true});
      ++kernels;
    }
    if (attention > 0 && seed % static_cast<uint64_t>(attention) == 0)
      failures += differs(fuzz::generate_attention(seed), {.compile_kernels = true});
    if (!only_kernels) {
      failures += differs(program, {});
      failures += differs(program, {.skip_passes = passes[seed % passes.size()], .poison = seed % 2 == 0});
      if (seed % 5 == 0) failures += differs(program, {.skip_passes = all});
      if (seed % 10 == 3) failures += differs(program, {.interpret = true});
      failures += differs(fuzz::generate_frozen(seed), {});
    }
    ++seed;
    ++done;
    if (std::chrono::steady_clock::now() > next_report) {
      report();
      next_report += std::chrono::minutes(1);
    }
  }
  report();
  return failures != 0;
}
