// What a replay promises beyond its bits: checks, memory, addresses, threads, figures.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <thread>

#include "eager/cpu/executor.h"
#include "jit/executable.h"
#include "runtime/config.h"
#include "tests/jit/graph_runner.h"
#include "tests/jit/random_program.h"

namespace etch::test {
namespace {

template <class T>
std::vector<char> bytes_of(const std::vector<T>& values) {
  std::vector<char> bytes(values.size() * sizeof(T));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

template <class T>
std::vector<T> values_of(const std::vector<char>& bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

Ref<jit::PlanExecutable> compile(const Graph& graph) {
  cpu::register_kernels();
  return jit::compile_graph(graph, outputs_of(graph), {.name = "run"});
}

constexpr const char* kSelect =
    "graph cpu slots 0\nbuffer %0 external 24 #0\nbuffer %1 external 16 #1\nbuffer %2 output 16 #2\n"
    "buffer %3 external 24 #3\n"
    "add(%3:f32[6]{1}, f32=1.0) -> %3:f32[6]{1}\n"
    "index_select<0>(%0:f32[3,2]{2,1}, %1:i64[2]{1}) -> %2:f32[2,2]{2,1}\n";

TEST(Run, RefusesBadIndicesBeforeTheFirstWrite) {
  Program program{parse(kSelect), {}, Contents(4)};
  program.contents[0] = bytes_of<float>({1, 2, 3, 4, 5, 6});
  program.contents[1] = bytes_of<int64_t>({2, 3});
  program.contents[3] = bytes_of<float>({0, 0, 0, 0, 0, 0});
  const auto executable = compile(program.graph);
  bool refused = false;
  const Contents got = run_compiled(*executable, program, &refused);
  EXPECT_TRUE(refused);
  EXPECT_EQ(got[3], program.contents[3]);
  EXPECT_TRUE(got[2].empty());

  program.contents[1] = bytes_of<int64_t>({2, 0});
  EXPECT_EQ(values_of<float>(run_compiled(*executable, program, &refused)[2]),
            (std::vector<float>{5, 6, 1, 2}));
  EXPECT_FALSE(refused);
}

constexpr const char* kPieces =
    "graph cpu slots 6\nbuffer %0 external 65536 #0\nbuffer %1 external 65536 #1\nbuffer %2 internal 131072 "
    "#2\n"
    "buffer %3 internal 131072 #3\nbuffer %4 internal 131072 #4\nbuffer %5 internal 131072 #5\n"
    "buffer %6 output 131072 #6\n"
    "copy<32768>(f32@0) -> %2:f32[32768]{1}\n"
    "copy(%0:f32[16384]{1}) -> %2:f32[16384]{1}@1\n"
    "copy<32768>(f32@2) -> %3:f32[32768]{1}\n"
    "copy(%1:f32[16384]{1}) -> %3:f32[16384]{1}@3\n"
    "add(%2:f32[32768]{1}, %3:f32[32768]{1}) -> %4:f32[32768]{1}\n"
    "copy<32768>(f32@4) -> %5:f32[32768]{1}\n"
    "copy(%0:f32[16384]{1}) -> %5:f32[16384]{1}@5\n"
    "add(%4:f32[32768]{1}, %5:f32[32768]{1}) -> %6:f32[32768]{1}\n";

// Apart, meeting, overlapping and at odd places; sums of negative zeros; fills other than zero.
TEST(Run, AddsPiecesWhereverTheirRunsLie) {
  Program program{parse(kPieces), {}, Contents(7)};
  std::vector<float> x(16384), y(16384);
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] = i % 3 == 0 ? -0.0f : 0.1f * static_cast<float>(i);
    y[i] = i % 2 == 0 ? -0.0f : 1.0f / static_cast<float>(i);
  }
  program.contents[0] = bytes_of(x);
  program.contents[1] = bytes_of(y);
  const auto executable = compile(program.graph);
  EXPECT_EQ(executable->statistics().steps, 1);
  struct Case {
    int64_t at[3];
    double fill[3];
  };
  for (const Case& c : {Case{{0, 16384, 0}, {0, 0, 0}}, Case{{16384, 0, 16384}, {-0.0, -0.0, -0.0}},
                        Case{{5, 7, 16383}, {0, 2.5, -0.0}}, Case{{9000, 9000, 9000}, {1, 1e30, -1e30}}}) {
    program.values.clear();
    for (int k = 0; k < 3; ++k) {
      program.values.push_back({0, Scalar(c.fill[k])});
      program.values.push_back({c.at[k], Scalar(0.0)});
    }
    const Contents expected = run_nodes(program.graph, program);
    const std::vector<char> got = run_compiled(*executable, program)[6];
    EXPECT_TRUE(std::equal(got.begin(), got.end(), expected[6].begin())) << c.at[0] << " " << c.at[1];
  }
}

TEST(Run, AddsPiecesInAnotherOrder) {
  std::string text = kPieces;
  text.replace(text.find("buffer %6 output"), 16, "buffer %6 internal");
  text.replace(text.find("copy<"), 0,
               "buffer %7 internal 131072\nbuffer %8 external 4096 #7\nbuffer %9 output 32768 #8\n");
  text +=
      "copy(%6:f32[64,8,64]{64,4096,1}) -> %7:f32[64,8,64]{512,64,1}\n"
      "matmul(%7:f32[512,64]{64,1}, %8:f32[64,16]{16,1}) -> %9:f32[512,16]{16,1}\n";
  Program program{parse(text), {}, Contents(10)};
  std::vector<float> x(16384), y(16384);
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] = static_cast<float>(i % 101);
    y[i] = static_cast<float>(i % 37) - 50.0f;
  }
  program.contents[0] = bytes_of(x);
  program.contents[1] = bytes_of(y);
  program.contents[8] = bytes_of(std::vector<float>(1024, 0.5f));
  for (int64_t at : {0, 1000, 16384}) {
    program.values = {{0, Scalar(0.25)}, {at, Scalar(0.0)}, {0, Scalar(0.0)},
                      {77, Scalar(0.0)}, {0, Scalar(0.0)},  {at / 2, Scalar(0.0)}};
    const auto executable = compile(program.graph);
    EXPECT_EQ(executable->statistics().steps, 2);
    const Contents expected = run_nodes(program.graph, program);
    const std::vector<char> got = run_compiled(*executable, program)[9];
    EXPECT_TRUE(std::equal(got.begin(), got.end(), expected[9].begin())) << at;
  }
}

constexpr const char* kPieceInPlace =
    "graph cpu slots 2\nbuffer %0 external 65536 #0\nbuffer %1 external 131072 #1\n"
    "buffer %2 internal 131072 #2\n"
    "copy<32768>(f32@0) -> %2:f32[32768]{1}\n"
    "copy(%0:f32[16384]{1}) -> %2:f32[16384]{1}@1\n"
    "add(%2:f32[32768]{1}, %1:f32[32768]{1}) -> %1:f32[32768]{1}\n";

TEST(Run, AddsAPieceInPlace) {
  Program program{parse(kPieceInPlace), {{0, Scalar(0.5)}, {100, Scalar(0.0)}}, Contents(3)};
  program.contents[0] = bytes_of(std::vector<float>(16384, 1.0f));
  program.contents[1] = bytes_of(std::vector<float>(32768, 2.0f));
  const Contents expected = run_nodes(program.graph, program);
  const std::vector<char> got = run_compiled(*compile(program.graph), program)[1];
  EXPECT_TRUE(std::equal(got.begin(), got.end(), expected[1].begin()));
}

TEST(Run, DeadOpsRaiseNothing) {
  std::string text = kSelect;
  text.replace(text.find("buffer %2 output"), 16, "buffer %2 internal");
  Program program{parse(text), {}, Contents(4)};
  program.contents[0] = bytes_of<float>({1, 2, 3, 4, 5, 6});
  program.contents[1] = bytes_of<int64_t>({7, 3});
  program.contents[3] = bytes_of<float>({0, 0, 0, 0, 0, 0});
  bool refused = true;
  const Contents got = run_compiled(*compile(program.graph), program, &refused);
  EXPECT_FALSE(refused);
  EXPECT_EQ(values_of<float>(got[3]), std::vector<float>(6, 1.0f));
}

TEST(Run, IndicesMadeInsideAreCheckedAtTheirStep) {
  const Graph graph = parse(
      "graph cpu slots 0\nbuffer %0 external 24 #0\nbuffer %1 external 16 #1\nbuffer %2 output 16 #2\n"
      "buffer %3 internal 16 #3\nbuffer %4 external 24 #4\nbuffer %5 external 24 #5\n"
      "add(%4:f32[6]{1}, f32=1.0) -> %4:f32[6]{1}\n"
      "add(%1:i64[2]{1}, i64=1) -> %3:i64[2]{1}\n"
      "index_select<0>(%0:f32[3,2]{2,1}, %3:i64[2]{1}) -> %2:f32[2,2]{2,1}\n"
      "add(%5:f32[6]{1}, f32=1.0) -> %5:f32[6]{1}\n");
  Program program{graph, {}, Contents(6)};
  program.contents[0] = bytes_of<float>({1, 2, 3, 4, 5, 6});
  program.contents[1] = bytes_of<int64_t>({1, 2});
  const Ref<Storage> before = Storage::allocate(Device::cpu(), 24),
                     after = Storage::allocate(Device::cpu(), 24);
  const Ref<Storage> data = Storage::allocate(Device::cpu(), 24),
                     index = Storage::allocate(Device::cpu(), 16);
  const Ref<Storage> output = Storage::deferred(Device::cpu(), 16),
                     inner = Storage::deferred(Device::cpu(), 16);
  std::memset(before->raw_data(), 0, 24);
  std::memset(after->raw_data(), 0, 24);
  std::memcpy(index->raw_data(), program.contents[1].data(), 16);
  std::memcpy(data->raw_data(), program.contents[0].data(), 24);
  Storage* storages[] = {data.get(), index.get(), output.get(), inner.get(), before.get(), after.get()};
  Path path;
  EXPECT_THROW(compile(graph)->run(Segment{path, {}, storages, outputs_of(graph)}), IndexError);
  EXPECT_EQ(static_cast<float*>(before->raw_data())[0], 1.0f) << "written before the error";
  EXPECT_EQ(static_cast<float*>(after->raw_data())[0], 0.0f) << "not written after it";
  EXPECT_FALSE(output->has_bytes());
}

TEST(Run, OutOfMemoryLeavesEverythingAsItWas) {
  const Graph graph = parse(
      "graph cpu slots 0\nbuffer %0 external 4096 #0\nbuffer %1 output 67108864 #1\nbuffer %2 internal 4 #2\n"
      "add(%0:f32[1024]{1}, f32=1.0) -> %0:f32[1024]{1}\n"
      "copy(%0:f32[16384,1024]{0,1}) -> %1:f32[16384,1024]{1024,1}\n");
  Program program{graph, {}, Contents(3)};
  program.contents[0] = bytes_of(std::vector<float>(1024, 2.0f));
  const auto executable = compile(graph);
  Ref<Storage> external = Storage::allocate(Device::cpu(), 4096),
               output = Storage::deferred(Device::cpu(), 67108864);
  std::memcpy(external->raw_data(), program.contents[0].data(), 4096);
  Storage* storages[] = {external.get(), output.get(), nullptr};
  Path path;
  const int64_t before = memory_stats().allocated;
  set_memory_limit(before + (1 << 20));
  EXPECT_THROW(executable->run(Segment{path, {}, storages, outputs_of(graph)}), OutOfMemoryError);
  set_memory_limit(0);
  EXPECT_EQ(std::memcmp(external->raw_data(), program.contents[0].data(), 4096), 0);
  EXPECT_EQ(memory_stats().allocated, before);
  EXPECT_TRUE(executable->run(Segment{path, {}, storages, outputs_of(graph)}));
  EXPECT_EQ(static_cast<float*>(output->raw_data())[5], 3.0f);
}

/// x[a:a+4] = neg(x[b:b+4]) + 1 with offsets that the path leaves open.
TEST(Run, WindowsThatMoveApartGiveTheSameOrAreRefused) {
  const Graph graph = parse(
      "graph cpu slots 2\nbuffer %0 external 32 #0\nbuffer %1 internal 16 #1\nbuffer %2 external 16 #2\n"
      "neg(%0:f32[4]{1}@0) -> %1:f32[4]{1}\n"
      "add(%1:f32[4]{1}, %2:f32[4]{1}) -> %0:f32[4]{1}@1\n");
  const auto executable = compile(graph);
  for (auto [from, to] : {std::pair(0, 0), std::pair(0, 1), std::pair(3, 1), std::pair(4, 0)}) {
    Program program{graph, {{from, {}}, {to, {}}}, Contents(3)};
    program.contents[0] = bytes_of<float>({1, 2, 3, 4, 5, 6, 7, 8});
    program.contents[2] = bytes_of<float>({1, 1, 1, 1});
    bool refused = false;
    const Contents got = run_compiled(*executable, program, &refused);
    if (refused)
      EXPECT_EQ(got[0], program.contents[0]) << "nothing done";
    else
      EXPECT_EQ(difference(graph, run_nodes(graph, program), got), "") << from << " to " << to;
    EXPECT_FALSE(refused && from == to);
  }
}

TEST(Run, ServesSmallerLiveSets) {
  const Graph graph = parse(
      "graph cpu slots 0\nbuffer %0 external 16 #0\nbuffer %1 output 16 #1\nbuffer %2 output 16 #2\n"
      "neg(%0:f32[4]{1}) -> %1:f32[4]{1}\nexp(%1:f32[4]{1}) -> %2:f32[4]{1}\n");
  Program program{graph, {}, Contents(3)};
  program.contents[0] = bytes_of<float>({0, 0, 0, 0});
  const Contents got = run_compiled(*compile(graph), program, nullptr, {false, false, true});
  EXPECT_TRUE(got[1].empty());
  EXPECT_EQ(values_of<float>(got[2]), std::vector<float>(4, 1.0f));
}

TEST(Run, ManyThreadsShareOneExecutable) {
  const Program program = random_program(3, {.nodes = 30});
  const Contents expected = run_nodes(program.graph, program);
  const auto executable = compile(program.graph);
  std::vector<std::string> differences(4);
  std::vector<std::thread> threads;
  for (std::string& text : differences)
    threads.emplace_back([&] {
      for (int i = 0; i < 20 && text.empty(); ++i)
        text = difference(program.graph, expected, run_compiled(*executable, program));
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::string& text : differences) EXPECT_EQ(text, "");
}

TEST(Run, ReportsItsFigures) {
  ConfigGuard guard;
  config().log_level = 3;
  const Program program = random_program(5, {.nodes = 30});
  const auto executable = compile(program.graph);
  run_compiled(*executable, program);
  const auto& statistics = executable->statistics();
  EXPECT_GE(statistics.arena_bytes, statistics.lower_bound_bytes);
  EXPECT_GT(statistics.compile_ms, 0);
  EXPECT_FALSE(executable->step_times().empty());
  for (const jit::StepTime& time : executable->step_times()) {
    EXPECT_GT(time.runs, 0) << time.kind;
    EXPECT_DOUBLE_EQ(time.call_ms, time.ms) << time.kind;  // one call
  }
  const auto json = nlohmann::json::parse(executable->report_json());
  EXPECT_EQ(json["steps"], statistics.steps);
  EXPECT_EQ(json["kernels"].size(), statistics.kernels.size());
  EXPECT_NE(executable->report().find("steps"), std::string::npos);
}

TEST(Run, TimesStepsOnlyWhenAsked) {
  ConfigGuard guard;
  config().log_level = 0;
  const Program program = random_program(5, {.nodes = 30});
  const auto executable = compile(program.graph);
  run_compiled(*executable, program);
  for (const jit::StepTime& time : executable->step_times()) EXPECT_EQ(time.runs, 0);
  config().log_level = 3;
  for (int call = 0; call < 40; ++call) run_compiled(*executable, program);
  double all = 0, one = 0;
  for (const jit::StepTime& time : executable->step_times()) {
    EXPECT_EQ(time.runs % 40, 0);
    all += time.ms;
    one += time.call_ms;
  }
  EXPECT_GT(one, 0);
  EXPECT_LT(one, all);
}

}  // namespace
}  // namespace etch::test
