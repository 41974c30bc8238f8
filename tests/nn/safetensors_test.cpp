// Files of tensors: round trips, what other writers may produce, and everything a bad file may hold.
#include "nn/safetensors.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "nn/layers.h"
#include "nn/optim.h"
#include "tests/runtime/expect_error.h"

namespace etch::nn {
namespace {

namespace fs = std::filesystem;

class Safetensors : public ::testing::Test {
 protected:
  Safetensors() { fs::create_directories(folder_); }
  ~Safetensors() override { fs::remove_all(folder_); }

  std::string path(const std::string& name = "file.safetensors") const { return folder_ / name; }
  static std::string bytes_of(const std::string& file) {
    std::stringstream bytes;
    bytes << std::ifstream(file, std::ios::binary).rdbuf();
    return bytes.str();
  }
  void write(const std::string& bytes) const { std::ofstream(path(), std::ios::binary) << bytes; }
  // A file with this header and `data` bytes of zeros.
  NamedTensors load(const std::string& header, size_t data) const {
    const uint64_t length = header.size();
    std::string bytes(8, '\0');
    std::memcpy(bytes.data(), &length, 8);
    write(bytes + header + std::string(data, '\0'));
    return load_safetensors(path());
  }

  const fs::path folder_ = fs::temp_directory_path() / join_text({"etch-safetensors-", getpid()});
};

void expect_equal(const Tensor& a, const Tensor& b) {
  EXPECT_EQ(a.dtype(), b.dtype());
  EXPECT_EQ(to_string(a.sizes()), to_string(b.sizes()));
  EXPECT_EQ(a.to_vector<double>(), b.to_vector<double>());
}

TEST_F(Safetensors, AModelsParametersComeBack) {
  const auto make = [] { return Sequential(Linear(3, 4), BatchNorm2d(4), Linear(4, 2)); };
  Sequential a = make(), b = make();
  save_safetensors(path(), a.state_dict());
  b.load_state_dict(load_safetensors(path()));
  const NamedTensors expected = a.state_dict(), got = b.state_dict();
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) expect_equal(got[i].second, expected[i].second);
}

TEST_F(Safetensors, AllDTypesLayoutsAndSizes) {
  NamedTensors tensors;
  const Tensor values = from_vector(std::vector<float>{0, 1, 2, 3, 4, 200}, {2, 3});
  for (int d = 0; d < kNumDTypes; ++d) {
    const DType dtype = static_cast<DType>(d);
    tensors.emplace_back(std::string(name(dtype)), values.to(dtype));
    tensors.emplace_back(std::string(name(dtype)) + " transposed", values.to(dtype).t());
    tensors.emplace_back(std::string(name(dtype)) + " window", values.to(dtype).slice(1, 1, 3));
  }
  tensors.emplace_back("0-d", scalar_tensor(7.5));
  tensors.emplace_back("empty", zeros({3, 0, 2}));
  tensors.emplace_back("wide", scalar_tensor(2).expand(2, 2));
  tensors.emplace_back("grad", ones({2}).requires_grad_());
  tensors.emplace_back("\xc3\xa9 \"quoted\"\n", ones({1}));
  save_safetensors(path(), tensors);
  const NamedTensors got = load_safetensors(path());
  ASSERT_EQ(got.size(), tensors.size());
  for (const auto& wanted : tensors) {
    const auto found =
        std::find_if(got.begin(), got.end(), [&](const auto& entry) { return entry.first == wanted.first; });
    ASSERT_NE(found, got.end()) << wanted.first;
    SCOPED_TRACE(wanted.first);
    expect_equal(found->second, wanted.second.detach());
  }
}

TEST_F(Safetensors, TheBytesAreTheFormats) {
  save_safetensors(
      path(), {{"a", from_vector(std::vector<uint8_t>{1, 2})}, {"b", from_vector(std::vector<float>{1})}},
      {{"by", "etch"}});
  const std::string header =
      R"({"__metadata__":{"by":"etch"},"b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
      R"("a":{"dtype":"U8","shape":[2],"data_offsets":[4,6]}})";
  const std::string bytes = bytes_of(path());
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), 8);
  EXPECT_EQ(length % 8, 0u);
  EXPECT_EQ(bytes.substr(8, header.size()), header);
  EXPECT_EQ(bytes.substr(8 + length), std::string("\x00\x00\x80\x3f\x01\x02", 6));
  Metadata metadata;
  load_safetensors(path(), &metadata);
  EXPECT_EQ(metadata, (Metadata{{"by", "etch"}}));
}

TEST_F(Safetensors, AFileOfAnotherWriter) {  // other key order, no padding, tensors in any order
  const NamedTensors got = load(
      R"({"b":{"shape":[],"data_offsets":[8,16],"dtype":"I64"},"a":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]}})",
      16);
  ASSERT_EQ(got.size(), 2u);
  EXPECT_EQ(got[0].first, "a");
  EXPECT_EQ(got[1].second.item<int64_t>(), 0);
  EXPECT_EQ(load("{}", 0).size(), 0u);
}

TEST_F(Safetensors, AnOptimisersStateComesBack) {
  Linear a(2, 2), b(2, 2);
  optim::Adam first(a.parameters(), {.lr = 0.25}), second(b.parameters(), {.lr = 0.5});
  a(ones({1, 2})).sum().backward();
  first.step();
  save_safetensors(path(), first.state_dict());
  second.load_state_dict(load_safetensors(path()));
  EXPECT_EQ(second.lr(), 0.25);
  const NamedTensors expected = first.state_dict(), got = second.state_dict();
  for (size_t i = 0; i < got.size(); ++i) expect_equal(got[i].second, expected[i].second);
}

TEST_F(Safetensors, SavingReplacesTheFileInOneStep) {
  save_safetensors(path(), {{"a", ones({2})}});
  save_safetensors(path(), {{"a", zeros({3})}});
  EXPECT_EQ(load_safetensors(path())[0].second.numel(), 3);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 1);
}

TEST_F(Safetensors, AFailureToSaveLeavesTheOldFile) {
  save_safetensors(path(), {{"a", ones({2})}});
  EXPECT_ERROR(save_safetensors(path(), {{"a", ones({2})}, {"a", ones({2})}}), ValueError, "got \"a\" twice");
  EXPECT_ERROR(save_safetensors(path(), {{"a", Tensor()}}), ValueError, "expected a tensor for \"a\"");
  EXPECT_ERROR(save_safetensors(path(), {{"__metadata__", ones({2})}}), ValueError, "expected another name");
  EXPECT_ERROR(save_safetensors(path(), {{"\xff", ones({2})}}), ValueError, "in UTF-8");
  EXPECT_ERROR(save_safetensors(path("no folder/file"), {{"a", ones({2})}}), IoError,
               "cannot be written: No such file");
  EXPECT_EQ(load_safetensors(path())[0].second.to_vector<float>(), (std::vector<float>{1, 1}));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 1);
}

TEST_F(Safetensors, MissingFilesAndFolders) {
  EXPECT_ERROR(load_safetensors(path("none")), IoError, "none: cannot be opened: No such file");
  EXPECT_ERROR(load_safetensors(folder_), IoError, "expected a regular file");
}

TEST_F(Safetensors, EveryTruncationIsAnError) {
  save_safetensors(path(), {{"a", ones({2, 2})}, {"b", ones({3}).to(DType::U8)}});
  const std::string bytes = bytes_of(path());
  for (size_t size = 0; size < bytes.size(); ++size) {
    write(bytes.substr(0, size));
    EXPECT_THROW(load_safetensors(path()), IoError) << size;
  }
  write(bytes.substr(0, 4));
  EXPECT_ERROR(load_safetensors(path()), IoError,
               "expected 8 bytes with the header's length, got a file of 4 bytes");
  write(bytes.substr(0, bytes.size() - 1));
  EXPECT_ERROR(load_safetensors(path()), IoError, "got a file with 18 of them");
  write(bytes + "x");
  EXPECT_ERROR(load_safetensors(path()), IoError, "expected 19 bytes of tensors, got a file with 20 of them");
}

TEST_F(Safetensors, EveryFlippedByteIsAnErrorOrOtherValues) {
  save_safetensors(path(), {{"a", ones({2, 2})}, {"b", ones({3}).to(DType::Bool)}});
  const std::string bytes = bytes_of(path());
  for (size_t at = 0; at < bytes.size(); ++at)
    for (const char flip : {'\x01', '\x20', '\x7f'}) {
      std::string changed = bytes;
      changed[at] ^= flip;
      write(changed);
      try {
        load_safetensors(path());
      } catch (const IoError&) {
      }
    }
}

TEST_F(Safetensors, HostileLengths) {
  write(std::string(8, '\xff'));
  EXPECT_ERROR(load_safetensors(path()), IoError, "expected a header of at most 100000000 bytes");
  write(std::string("\x10\x00\x00\x00\x00\x00\x00\x00{}", 10));
  EXPECT_ERROR(load_safetensors(path()), IoError,
               "expected a header of 16 bytes, got a file that ends after 2 of them");
}

TEST_F(Safetensors, HeadersThatAreNotTheFormats) {
  EXPECT_ERROR(load("", 0), IoError, "starts with {");
  EXPECT_ERROR(load("[]", 0), IoError, "starts with {");
  EXPECT_ERROR(load("{\"a\":", 0), IoError, "expected a header in JSON");
  EXPECT_ERROR(load("{\"a\":" + std::string(100000, '['), 0), IoError, "got a deeper one");
  EXPECT_ERROR(load(R"({"a":{"dtype":"F32","shape":[1]}})", 4), IoError,
               "expected dtype, shape and data_offsets for \"a\"");
  EXPECT_ERROR(load(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"more":1}})", 4), IoError,
               "expected dtype, shape and data_offsets for \"a\"");
  EXPECT_ERROR(load(R"({"__metadata__":{"a":1}})", 0), IoError,
               "expected a text as __metadata__ \"a\", got number");
  EXPECT_ERROR(load(R"({"__metadata__":[]})", 0), IoError, "expected texts by name");
  EXPECT_ERROR(
      load(
          R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
          8),
      IoError, "got \"a\" twice");
}

TEST_F(Safetensors, EntriesThatDoNotFit) {
  const auto entry = [&](const char* dtype, const char* shape, const char* offsets, size_t data) {
    return load(
        join_text({"{\"a\":{\"dtype\":", dtype, ",\"shape\":", shape, ",\"data_offsets\":", offsets, "}}"}),
        data);
  };
  EXPECT_ERROR(entry("\"F8\"", "[1]", "[0,1]", 1), IoError, "as dtype of \"a\", got \"F8\"");
  EXPECT_ERROR(entry("7", "[1]", "[0,1]", 1), IoError, "as dtype of \"a\", got 7");
  EXPECT_ERROR(entry("\"U8\"", "[-1]", "[0,1]", 1), IoError, "as shape of \"a\", got [-1]");
  EXPECT_ERROR(entry("\"U8\"", "[1.5]", "[0,1]", 1), IoError, "as shape of \"a\"");
  EXPECT_ERROR(entry("\"U8\"", "[1,1,1,1,1,1,1,1,1]", "[0,1]", 1), IoError, "expected at most 8 sizes");
  EXPECT_ERROR(entry("\"U8\"", "[1]", "[1,0]", 1), IoError, "expected begin and end as data_offsets");
  EXPECT_ERROR(entry("\"U8\"", "[1]", "[0,1,2]", 1), IoError, "expected begin and end as data_offsets");
  EXPECT_ERROR(entry("\"U8\"", "[1]", "[0,-1]", 1), IoError, "expected begin and end as data_offsets");
  EXPECT_ERROR(entry("\"F32\"", "[2]", "[0,4]", 4), IoError,
               "expected data_offsets of 8 bytes for \"a\" of shape [2], got [0,4]");
  EXPECT_ERROR(entry("\"U8\"", "[4294967296,4294967296]", "[0,0]", 0), IoError, "fewer than 2^56 elements");
  EXPECT_ERROR(entry("\"U8\"", "[0,9223372036854775807,9223372036854775807]", "[0,0]", 0), IoError,
               "fewer than 2^56 elements");
  EXPECT_ERROR(entry("\"U8\"", "[1099511627776]", "[0,1099511627776]", 3), IoError,
               "expected 1099511627776 bytes of tensors (\"a\"), got a file with 3 of them");
  EXPECT_ERROR(entry("\"U8\"", "[1]", "[1,2]", 2), IoError, "to begin at 0, got 1: a gap");
  EXPECT_ERROR(
      load(
          R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
          3),
      IoError, "expected the bytes of \"b\" to begin at 2 after those of \"a\", got 1: they overlap");
}

TEST_F(Safetensors, BoolsAreZeroOrOne) {
  save_safetensors(path(), {{"a", ones({2}).to(DType::Bool)}});
  std::string bytes = bytes_of(path());
  bytes.back() = 2;
  write(bytes);
  EXPECT_ERROR(load_safetensors(path()), IoError, "expected bytes of 0 and 1 in \"a\"");
}

TEST_F(Safetensors, ABadFileLeavesTheModelAsItWas) {
  Linear net(2, 3);
  const auto before = net.weight.to_vector<float>();
  const auto refused = [&](NamedTensors tensors, const char* part) {
    save_safetensors(path(), tensors);
    EXPECT_ERROR(net.load_state_dict(load_safetensors(path())), Error, part);
    EXPECT_EQ(net.weight.to_vector<float>(), before);
  };
  refused({{"weight", zeros({3, 2})}}, "missing: bias");
  refused({{"weight", zeros({3, 2})}, {"bias", zeros({4})}}, "bias (expected [3], got [4])");
  refused({{"weight", zeros({3, 2})}, {"bias", zeros({3}).to(DType::I32)}}, "bias (expected f32, got i32)");
  save_safetensors(path(), {{"weight", ones({3, 2}, {.dtype = DType::F16})}, {"bias", zeros({3})}});
  net.load_state_dict(load_safetensors(path()));  // floating dtypes are converted
  EXPECT_EQ(net.weight.to_vector<float>(), std::vector<float>(6, 1));
}

}  // namespace
}  // namespace etch::nn
