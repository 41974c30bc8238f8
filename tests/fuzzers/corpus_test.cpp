// The corpus of the fuzzers, and all its beginnings, through the same readers in every run of the tests.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include "runtime/config.h"
#include "tests/fuzzers/targets.h"

namespace etch::fuzz {
namespace {

namespace fs = std::filesystem;

std::vector<std::vector<uint8_t>> corpus_of(const Target& target) {
  std::vector<std::vector<uint8_t>> all;
  for (const auto& entry : fs::directory_iterator(fs::path(ETCH_SOURCE_DIR "/tests/corpus") / target.name)) {
    std::ifstream file(entry.path(), std::ios::binary);
    all.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  return all;
}

class Corpus : public testing::Test {
 protected:
  ~Corpus() override { config() = old_; }
  const Config old_ = config();
};

TEST_F(Corpus, IsReadOrRefused) {
  for (const Target& target : targets()) {
    const auto corpus = corpus_of(target);
    EXPECT_GE(corpus.size(), 3u) << target.name;
    for (const auto& bytes : corpus) target.run(bytes);
  }
}

TEST_F(Corpus, IsReadOrRefusedWhenCutShort) {
  for (const Target& target : targets())
    for (const auto& bytes : corpus_of(target)) {
      const size_t step = bytes.size() / 16 + 1;
      for (size_t length = 0; length < bytes.size(); length += step)
        target.run(std::span<const uint8_t>(bytes).first(length));
    }
}

}  // namespace
}  // namespace etch::fuzz
