// The disk cache of kernels: what it survives, and what it never loads.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "codegen/build_host.h"
#include "codegen/kernel_cache.h"
#include "runtime/config.h"
#include "tests/codegen/group.h"

namespace etch::testing {
namespace {

using codegen::LoadedKernel;
using codegen::LoadStatistics;
using codegen::LoweredKernel;

class Cache : public ::testing::Test {
 protected:
  void SetUp() override {
    saved_ = config();
    config().cache_dir = folder();
    codegen::forget_loaded_kernels();
  }
  void TearDown() override {
    config() = saved_;
    codegen::forget_loaded_kernels();
  }
  std::string folder() const { return root_.path() + "/cache"; }

  /// Loads `count` kernels of different structure and fails the test unless all compute.
  LoadStatistics load(int count = 2) {
    std::vector<LoweredKernel> kernels;
    for (int i = 0; i < count; ++i) {
      Group g;
      GraphOperand x = g.input(DType::F32, {64});
      for (int k = 0; k <= i; ++k) x = g.op(Op::neg, {x});
      g.keep(x);
      kernels.push_back(g.lower());
    }
    std::vector<const LoweredKernel*> pointers;
    for (const LoweredKernel& kernel : kernels) pointers.push_back(&kernel);
    LoadStatistics statistics;
    const std::vector<LoadedKernel> loaded = codegen::load_host_kernels(pointers, &statistics);
    for (int i = 0; i < count; ++i) {
      if (loaded[i].phases.empty()) {
        ADD_FAILURE() << "kernel " << i << " is missing";
        continue;
      }
      float x[64] = {3}, y[64] = {};
      char* windows[] = {reinterpret_cast<char*>(x), reinterpret_cast<char*>(y), nullptr};
      loaded[i].phases[0](windows, kernels[i].dims.data(), nullptr, 0, 64);
      EXPECT_EQ(y[0], i % 2 ? 3.0f : -3.0f);
    }
    return statistics;
  }
  /// Loads again as a new process would.
  LoadStatistics load_afresh(int count = 2) {
    codegen::forget_loaded_kernels();
    return load(count);
  }
  std::vector<std::string> files(const std::string& extension) const {
    std::vector<std::string> found;
    for (const auto& entry : std::filesystem::directory_iterator(folder()))
      if (entry.path().extension() == extension) found.push_back(entry.path());
    return found;
  }

  /// By a new file: this process has the old one mapped.
  static void replace(const std::string& file, const std::string& text) {
    std::filesystem::remove(file);
    ASSERT_TRUE(codegen::write_file(file, text));
  }

  codegen::TemporaryFolder root_{codegen::temporary_root()};
  Config saved_;
};

TEST_F(Cache, SecondProcessCompilesNothing) {
  EXPECT_EQ(load().compiled, 2);
  const LoadStatistics again = load_afresh();
  EXPECT_EQ(again.compiled, 0);
  EXPECT_EQ(again.from_cache, 2);
}

TEST_F(Cache, SameProcessLooksNowhere) {
  load();
  std::filesystem::remove_all(folder());
  const LoadStatistics again = load();
  EXPECT_EQ(again.compiled + again.from_cache, 0);
}

TEST_F(Cache, LeavesNoTemporaryFiles) {
  load();
  EXPECT_EQ(files(".kernel").size(), 2u);
  size_t all = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder())) ++all;
  EXPECT_EQ(all, files(".kernel").size() + files(".so").size());
}

TEST_F(Cache, FolderIsPrivate) {
  load(1);
  struct stat status;
  ASSERT_EQ(stat(folder().c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0700u);
}

TEST_F(Cache, RebuildsTruncatedLibraries) {
  load();
  for (double part : {0.0, 0.1, 0.5, 0.99}) {
    for (const std::string& file : files(".so")) {
      std::string text;
      ASSERT_TRUE(codegen::read_file(file, &text));
      replace(file, text.substr(0, static_cast<size_t>(static_cast<double>(text.size()) * part)));
    }
    EXPECT_EQ(load_afresh().compiled, 2) << part;
    EXPECT_EQ(load_afresh().compiled, 0) << part;
  }
}

TEST_F(Cache, RebuildsCorruptedLibraries) {
  load();
  for (const std::string& file : files(".so")) {
    std::string text;
    ASSERT_TRUE(codegen::read_file(file, &text));
    text[text.size() / 2] = static_cast<char>(text[text.size() / 2] ^ 1);
    replace(file, text);
  }
  EXPECT_EQ(load_afresh().compiled, 2);
}

TEST_F(Cache, RebuildsForeignEntries) {
  load();
  for (const char* text :
       {"", "hello\n", "etch-kernel 1 ", "etch-kernel 1 00000000000000000000000000000000 ../x.so\n"}) {
    for (const std::string& file : files(".kernel")) ASSERT_TRUE(codegen::write_file(file, text));
    EXPECT_EQ(load_afresh().compiled, 2) << text;
  }
}

TEST_F(Cache, RebuildsAnEntryThatNamesAnotherKernelsLibrary) {
  load();
  const std::vector<std::string> entries = files(".kernel");
  std::string first;
  ASSERT_TRUE(codegen::read_file(entries[0], &first));
  ASSERT_TRUE(codegen::write_file(entries[1], first));
  EXPECT_EQ(load_afresh().compiled, 1);
}

TEST_F(Cache, AFolderThatOthersCanWriteIsNotUsed) {
  std::filesystem::create_directories(folder());
  chmod(folder().c_str(), 0777);
  EXPECT_EQ(load().compiled, 2);
  EXPECT_TRUE(std::filesystem::is_empty(folder()));
}

TEST_F(Cache, AFileInPlaceOfTheFolderIsNotUsed) {
  ASSERT_TRUE(codegen::write_file(folder(), "x"));
  EXPECT_EQ(load().compiled, 2);
}

TEST_F(Cache, OtherFlagsAreOtherKernels) {
  load();
  if (access("/usr/bin/clang++", X_OK) != 0) GTEST_SKIP() << "no second compiler";
  config().cxx = "/usr/bin/clang++";
  EXPECT_EQ(load_afresh().compiled, 2);
}

TEST_F(Cache, WithoutACompilerKernelsAreEmpty) {
  Group g;
  g.keep(g.op(Op::neg, {g.input(DType::F32, {64})}));
  const LoweredKernel kernel = g.lower();
  const LoweredKernel* const kernels[] = {&kernel};
  for (const char* compiler : {"none", "/nonexistent/c++"}) {
    config().cxx = compiler;
    ::testing::internal::CaptureStderr();
    codegen::forget_loaded_kernels();
    EXPECT_TRUE(codegen::load_host_kernels(kernels)[0].phases.empty());
    EXPECT_TRUE(codegen::load_host_kernels(kernels)[0].phases.empty());
    const std::string text = ::testing::internal::GetCapturedStderr();
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1) << text;
    EXPECT_NE(text.find("no C++ compiler"), std::string::npos) << text;
  }
}

TEST_F(Cache, ReportsWhatTheCompilerSays) {
  Group g;
  g.keep(g.op(Op::neg, {g.input(DType::F32, {64})}));
  LoweredKernel kernel = g.lower();
  kernel.host_source += "int broken = nonsense;\n";
  const LoweredKernel* const kernels[] = {&kernel};
  ::testing::internal::CaptureStderr();
  EXPECT_TRUE(codegen::load_host_kernels(kernels)[0].phases.empty());
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("nonsense"), std::string::npos);
}

TEST_F(Cache, ProcessesMayRace) {
  std::vector<pid_t> children;
  for (int i = 0; i < 4; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      load(3);
      load_afresh(3);
      _exit(HasFailure() ? 1 : 0);
    }
    children.push_back(child);
  }
  for (pid_t child : children) {
    int status = 1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(load_afresh(3).compiled, 0);
}

TEST_F(Cache, DumpsSourceAndLibrary) {
  config().dump_dir = root_.path() + "/dump";
  load(1);
  std::vector<std::string> extensions;
  for (const auto& entry : std::filesystem::directory_iterator(config().dump_dir))
    extensions.push_back(entry.path().extension());
  std::sort(extensions.begin(), extensions.end());
  EXPECT_EQ(extensions, (std::vector<std::string>{".cpp", ".so"}));
}

}  // namespace
}  // namespace etch::testing
