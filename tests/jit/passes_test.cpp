// Every pass on small graphs: the files in golden/ hold the graph before and after.
#include "jit/passes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "jit/pipeline.h"
#include "runtime/error.h"

namespace etch::test {
namespace {

namespace fs = std::filesystem;
constexpr std::string_view kSeparator = "=>\n";

std::string read(const fs::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

const jit::Pass& find_pass(std::string_view name) {
  for (const jit::Pass& pass : jit::passes())
    if (pass.name == name) return pass;
  fail<ValueError>("golden: expected the name of a pass before the first '-', got ", name);
}

std::vector<fs::path> golden_files() {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(fs::path(ETCH_SOURCE_DIR) / "tests/jit/golden"))
    if (entry.path().extension() == ".txt") files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

/// PASS-CASE.txt: the graph before, "=>", the graph after. ETCH_UPDATE_GOLDEN=1 writes the latter anew.
TEST(Passes, GiveTheGoldenGraphs) {
  const bool update = std::getenv("ETCH_UPDATE_GOLDEN") != nullptr;
  const std::vector<fs::path> files = golden_files();
  ASSERT_GE(files.size(), 10u);
  for (const fs::path& path : files) {
    SCOPED_TRACE(path.filename().string());
    const std::string text = read(path);
    const size_t middle = std::min(text.find(kSeparator), text.size());
    const std::string before = text.substr(0, middle);
    const std::string stem = path.stem().string();
    const jit::Pass& pass = find_pass(stem.substr(0, stem.find('-')));
    Graph graph = parse(before);
    verify(graph, "golden");
    const Graph result = pass.run(std::move(graph), {});
    verify(result, pass.name);
    const std::string after = print(result);
    if (update)
      std::ofstream(path) << before << kSeparator << after;
    else
      EXPECT_EQ(after, text.substr(std::min(middle + kSeparator.size(), text.size())));
  }
}

#if defined(__AVX512F__) || (defined(__AVX2__) && defined(__FMA__))
// Not a golden file: the library's products stay where they are, and without vectors there are no others.
constexpr const char* kHeads =
    "graph cpu slots 1\n"
    "buffer %0 external 1048576\n"
    "buffer %1 external 131072\n"
    "buffer %2 internal 131072\n"
    "buffer %3 internal 131072\n"
    "buffer %4 internal 131072\n"
    "buffer %5 internal 131072\n"
    "buffer %6 output 131072\n"
    "matmul(%0:f32[4,4,128,128]{65536,16384,128,1}, %1:f32[4,4,128,16]{8192,16,64,1}) -> "
    "%2:f32[4,4,128,16]{8192,2048,16,1}\n"
    "copy(%2:f32[4,128,4,16]{8192,16,2048,1}) -> %3:f32[4,128,4,16]{8192,64,16,1}\n"
    "matmul(%0:f32[4,4,128,128]{65536,16384,128,1}, %1:f32[4,4,128,16]{8192,2048,16,1}) -> "
    "%4:f32[4,4,128,16]{8192,2048,16,1}\n"
    "copy(%4:f32[4,128,4,16]{8192,16,2048,1}) -> %5:f32[4,128,4,16]{8192,64,16,1}\n"
    "add(%3:f32[4,128,4,16]{8192,64,16,1}, %5:f32[4,128,4,16]{8192,64,16,1}) -> "
    "%6:f32[4,128,4,16]{8192,64,16,1}\n";

TEST(Passes, MakeHeadsInTheirPlaceWhereTheBitsAllowIt) {
  const Graph graph = find_pass("place_products").run(parse(kHeads), {});
  verify(graph, "place_products");
  ASSERT_EQ(graph.nodes.size(), 4u) << print(graph);
  EXPECT_EQ(graph.nodes[0].outputs[0].buffer, 3);
  EXPECT_EQ(to_string(graph.nodes[0].outputs[0].geometry.strides), "[8192, 16, 64, 1]");
  EXPECT_EQ(graph.nodes[1].outputs[0].buffer, 4);
  EXPECT_EQ(graph.nodes[2].op, Op::copy);
}
#endif

TEST(Passes, HaveNamesOfTheirOwn) {
  for (const jit::Pass& pass : jit::passes()) EXPECT_EQ(&find_pass(pass.name), &pass) << pass.name;
}

}  // namespace
}  // namespace etch::test
