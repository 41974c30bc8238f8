// Every pass on small graphs: the files in golden/ hold the graph before and after.
#include "jit/passes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "eager/cpu/tile_product.h"
#include "jit/pipeline.h"
#include "runtime/error.h"
#include "runtime/parallel.h"

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

class OneThread {
 public:
  OneThread() { set_num_threads(1); }
  ~OneThread() { set_num_threads(old_); }

 private:
  int old_ = num_threads();
};

/// PASS-CASE.txt: the graph before, "=>", the graph after. ETCH_UPDATE_GOLDEN=1 writes the latter anew.
TEST(Passes, GiveTheGoldenGraphs) {
  const OneThread one_thread;  // tiles want a batch for each
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
    if (pass.name == "tile" && !cpu::has_tile_product(64)) continue;
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

TEST(Passes, HaveNamesOfTheirOwn) {
  for (const jit::Pass& pass : jit::passes()) EXPECT_EQ(&find_pass(pass.name), &pass) << pass.name;
}

}  // namespace
}  // namespace etch::test
