// Readers of IDX and CIFAR-10: contents, and the message of each bad input.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "nn/data.h"
#include "runtime/error.h"
#include "tests/runtime/expect_error.h"

namespace etch::data {
namespace {

namespace fs = std::filesystem;

/// A directory of its own for each test.
class DataFiles : public testing::Test {
 protected:
  void SetUp() override {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    directory_ = fs::temp_directory_path() /
                 ("etch_" + std::to_string(getpid()) + "_" + test->test_suite_name() + "_" + test->name());
    fs::create_directories(directory_);
  }
  void TearDown() override { fs::remove_all(directory_); }

  std::string path(const std::string& name) const { return directory_ / name; }
  std::string write(const std::string& name, const std::string& bytes) const {
    std::ofstream(path(name), std::ios::binary) << bytes;
    return path(name);
  }

  fs::path directory_;
};

/// An IDX file of the given extents.
std::string idx(const std::vector<uint32_t>& extents, const std::string& bytes) {
  std::string text = {0, 0, 8, static_cast<char>(extents.size())};
  for (uint32_t extent : extents)
    for (int shift : {24, 16, 8, 0}) text += static_cast<char>(extent >> shift & 255);
  return text + bytes;
}

using Idx = DataFiles;

TEST_F(Idx, ReadsExtentsAndBytes) {
  const IdxArray array = read_idx(write("a", idx({2, 1, 3}, "abcdef")), 3);
  EXPECT_EQ(array.extents, (std::vector<int64_t>{2, 1, 3}));
  EXPECT_EQ(std::string(array.bytes.begin(), array.bytes.end()), "abcdef");
}

TEST_F(Idx, MissingFile) { EXPECT_ERROR(read_idx(path("nothing"), 3), IoError, "nothing, got none"); }

TEST_F(Idx, TruncatedHeader) {
  const std::string file = write("short", std::string("\0\0\x08\x03", 4));
  EXPECT_ERROR(read_idx(file, 3), IoError, "short: expected a header of 16 bytes, got 4");
}

TEST_F(Idx, TruncatedAndOversized) {
  const std::string truncated = write("t", idx({2, 2, 2}, "abcdefg"));
  EXPECT_ERROR(read_idx(truncated, 3), IoError,
               "expected 24 bytes for extents 2x2x2, got 23: the file is truncated");
  const std::string oversized = write("o", idx({2, 2, 2}, "abcdefghi"));
  EXPECT_ERROR(read_idx(oversized, 3), IoError,
               "expected 24 bytes for extents 2x2x2, got 25: the file is oversized");
}

TEST_F(Idx, WrongMagic) {
  EXPECT_ERROR(read_idx(write("m", idx({2}, "ab") + std::string(20, 'x')), 3), IoError,
               "expected magic bytes 0 0 8 3, got 0 0 8 1");
}

TEST_F(Idx, AbsurdExtents) {
  const std::string huge = write("h", idx({0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF}, "abc"));
  EXPECT_ERROR(read_idx(huge, 3), IoError, "for extents 4294967295x4294967295x4294967295, got 19");
  EXPECT_ERROR(read_idx(write("z", idx({2, 0, 3}, "")), 3), IoError, "expected extents above 0, got 2x0x3");
}

TEST_F(Idx, CountsOfPicturesAndLabelsMustAgree) {
  write("train-images-idx3-ubyte", idx({2, 1, 1}, "ab"));
  write("train-labels-idx1-ubyte", idx({3}, std::string(3, '\1')));
  EXPECT_ERROR(load(directory_, Split::Train), IoError, "expected as many labels as the 2 pictures");
}

TEST_F(Idx, LabelsOutOfRange) {
  write("t10k-images-idx3-ubyte", idx({2, 1, 1}, "ab"));
  write("t10k-labels-idx1-ubyte", idx({2}, "\x09\x0a"));
  EXPECT_ERROR(load(directory_, Split::Test), IndexError, "expected labels in [0, 10), got 10 for picture 1");
}

TEST_F(Idx, TheDigits) {
  const Dataset train = load(ETCH_EXAMPLE_DATA "/digits", Split::Train);
  const Dataset test = load(ETCH_EXAMPLE_DATA "/digits", Split::Test);
  EXPECT_EQ(train.size(), 1500);
  EXPECT_EQ(test.size(), 297);
  EXPECT_EQ(train.image_size(), 64);
  EXPECT_EQ(train.classes.size(), 10u);
  EXPECT_EQ(std::vector<int64_t>(train.labels.begin(), train.labels.begin() + 3),
            (std::vector<int64_t>{0, 1, 2}));
}

TEST_F(Idx, DirectoriesOfOtherKinds) {
  EXPECT_ERROR(load(directory_, Split::Train), IoError, "got neither");
  EXPECT_ERROR(load(path("none"), Split::Train), IoError, "expected a directory, got");
}

/// One record: label, then 3,072 bytes that count from `first`.
std::string record(int label, int first) {
  std::string text(1, static_cast<char>(label));
  for (int i = 0; i < 3072; ++i) text += static_cast<char>(first + i);
  return text;
}

class Cifar10 : public DataFiles {
 protected:
  void SetUp() override {
    DataFiles::SetUp();
    write("batches.meta.txt", "a\nb\nc\nd\ne\nf\ng\nh\ni\nj\n\n");
  }
};

TEST_F(Cifar10, ReadsAsManyBatchesAsThereAre) {
  write("data_batch_1.bin", record(3, 0) + record(9, 7));
  write("data_batch_4.bin", record(1, 5));
  const Dataset dataset = load(directory_, Split::Train);
  EXPECT_EQ(dataset.labels, (std::vector<int64_t>{3, 9, 1}));
  EXPECT_EQ(dataset.image_size(), 3072);
  EXPECT_EQ(dataset.image(1)[2], 9);
  EXPECT_EQ(dataset.classes[9], "j");
}

TEST_F(Cifar10, MissingFiles) {
  EXPECT_ERROR(load(directory_, Split::Train), IoError, "data_batch_1.bin, got none");
  EXPECT_ERROR(load(directory_, Split::Test), IoError, "test_batch.bin, got none");
  fs::remove(path("batches.meta.txt"));
  write("test_batch.bin", record(0, 0));
  EXPECT_ERROR(load(directory_, Split::Test), IoError, "batches.meta.txt, got none");
}

TEST_F(Cifar10, TruncatedAndOversized) {
  write("test_batch.bin", record(0, 0) + "x");
  EXPECT_ERROR(load(directory_, Split::Test), IoError,
               "got 3074 bytes: 1 records and 1 bytes; the file is truncated");
  write("test_batch.bin", std::string(3073 * 10001, '\0'));
  EXPECT_ERROR(load(directory_, Split::Test), IoError, "the file is oversized");
  write("test_batch.bin", "");
  EXPECT_ERROR(load(directory_, Split::Test), IoError, "got 0 bytes");
}

TEST_F(Cifar10, LabelsOutOfRange) {
  write("test_batch.bin", record(0, 0) + record(10, 0));
  EXPECT_ERROR(load(directory_, Split::Test), IndexError, "expected labels in [0, 10), got 10 in record 1");
}

TEST_F(Cifar10, WrongClassNames) {
  write("batches.meta.txt", "a\nb\n");
  write("test_batch.bin", record(0, 0));
  EXPECT_ERROR(load(directory_, Split::Test), IoError, "expected 10 class names, got 2");
}

TEST(Dataset, StatisticsByChannel) {
  const Dataset dataset{
      .channels = 2, .height = 1, .width = 2, .images = {0, 255, 51, 51}, .labels = {0}, .classes = {"a"}};
  const Normalization n = channel_statistics(dataset);
  EXPECT_FLOAT_EQ(n.mean[0], 0.5f);
  EXPECT_FLOAT_EQ(n.stddev[0], 0.5f);
  EXPECT_FLOAT_EQ(n.mean[1], 0.2f);
  EXPECT_FLOAT_EQ(n.stddev[1], 1.0f);  // constant
}

TEST(Augment, CropsAndFlipsAreShiftsOfThePicture) {
  const Dataset dataset{
      .channels = 1, .height = 2, .width = 2, .images = {10, 20, 30, 40}, .labels = {0}, .classes = {"a"}};
  const Normalization plain{{0}, {1.0f / 255}};  // leaves the bytes' values
  float out[4];
  prepare_image(dataset, 0, plain, {}, SampleRandom(0, 0, 0), out);
  EXPECT_NEAR(out[0], 10, 1e-4);
  EXPECT_NEAR(out[3], 40, 1e-4);
  bool flipped = false, shifted = false;
  for (uint64_t sample = 0; sample < 64; ++sample) {
    prepare_image(dataset, 0, plain, {.flip = true}, SampleRandom(0, 0, sample), out);
    flipped |= std::abs(out[0] - 20) < 1e-3 && std::abs(out[2] - 40) < 1e-3;
    prepare_image(dataset, 0, plain, {.crop_padding = 1}, SampleRandom(0, 0, sample), out);
    shifted |= out[0] == 0 && out[1] == 0 && std::abs(out[2] - 10) < 1e-3;
  }
  EXPECT_TRUE(flipped);
  EXPECT_TRUE(shifted);
}

}  // namespace
}  // namespace etch::data
