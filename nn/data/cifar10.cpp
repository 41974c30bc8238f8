// CIFAR-10's binary format.
#include "nn/data/cifar10.h"

#include <filesystem>
#include <sstream>

#include "nn/data/file.h"
#include "runtime/error.h"

namespace etch::data {

namespace {

constexpr int64_t kChannels = 3, kExtent = 32, kImageSize = kChannels * kExtent * kExtent;
constexpr int64_t kRecordSize = 1 + kImageSize, kMostRecords = 10000, kClasses = 10;

std::vector<std::string> read_classes(const std::string& path) {
  constexpr int64_t kMostBytes = 4096;
  const int64_t size = file_size(path);
  ETCH_CHECK(size <= kMostBytes, IoError, "cifar10: ", path, ": expected at most ", kMostBytes,
             " bytes, got ", size);
  std::vector<uint8_t> bytes;
  append_file(path, 0, size, bytes);
  std::istringstream text(std::string(bytes.begin(), bytes.end()));
  std::vector<std::string> classes;
  for (std::string line; std::getline(text, line);) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (!line.empty()) classes.push_back(line);
  }
  ETCH_CHECK(static_cast<int64_t>(classes.size()) == kClasses, IoError, "cifar10: ", path, ": expected ",
             kClasses, " class names, got ", classes.size());
  return classes;
}

void append_records(const std::string& path, Dataset& dataset) {
  const int64_t size = file_size(path), records = size / kRecordSize;
  ETCH_CHECK(size > 0 && size % kRecordSize == 0, IoError, "cifar10: ", path, ": expected records of ",
             kRecordSize, " bytes, got ", size, " bytes: ", records, " records and ", size % kRecordSize,
             " bytes; the file is truncated");
  ETCH_CHECK(records <= kMostRecords, IoError, "cifar10: ", path, ": expected at most ",
             kMostRecords * kRecordSize, " bytes (", kMostRecords, " records), got ", size,
             ": the file is oversized");
  std::vector<uint8_t> bytes;
  append_file(path, 0, size, bytes);
  for (int64_t i = 0; i < records; ++i) {
    const uint8_t* record = bytes.data() + i * kRecordSize;
    ETCH_CHECK(record[0] < dataset.classes.size(), IndexError, "cifar10: ", path, ": expected labels in [0, ",
               dataset.classes.size(), "), got ", int{record[0]}, " in record ", i);
    dataset.labels.push_back(record[0]);
    dataset.images.insert(dataset.images.end(), record + 1, record + kRecordSize);
  }
}

}  // namespace

Dataset load_cifar10(const std::string& directory, Split split) {
  namespace fs = std::filesystem;
  Dataset dataset;
  dataset.channels = kChannels;
  dataset.height = dataset.width = kExtent;
  dataset.classes = read_classes(fs::path(directory) / "batches.meta.txt");
  if (split == Split::Test) {
    append_records(fs::path(directory) / "test_batch.bin", dataset);
    return dataset;
  }
  for (int i = 1; i <= 5; ++i) {
    const fs::path path = fs::path(directory) / ("data_batch_" + std::to_string(i) + ".bin");
    std::error_code ignored;
    if (i == 1 || fs::exists(path, ignored)) append_records(path, dataset);
  }
  return dataset;
}

}  // namespace etch::data
