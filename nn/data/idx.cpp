// The IDX format of MNIST and its kin.
#include "nn/data/idx.h"

#include <algorithm>
#include <filesystem>

#include "nn/data/file.h"
#include "runtime/error.h"

namespace etch::data {

IdxArray read_idx(const std::string& path, int dimensions) {
  const int64_t size = file_size(path), header_size = 4 + 4 * dimensions;
  ETCH_CHECK(size >= header_size, IoError, "idx: ", path, ": expected a header of ", header_size,
             " bytes, got ", size, " bytes: the file is truncated");
  std::vector<uint8_t> header;
  append_file(path, 0, header_size, header);
  ETCH_CHECK(header[0] == 0 && header[1] == 0 && header[2] == 8 && header[3] == dimensions, IoError,
             "idx: ", path, ": expected magic bytes 0 0 8 ", dimensions, ", got ", int{header[0]}, " ",
             int{header[1]}, " ", int{header[2]}, " ", int{header[3]});

  IdxArray array;
  int64_t count = 1;
  std::string text;
  for (int axis = 0; axis < dimensions; ++axis) {
    const uint8_t* at = header.data() + 4 + 4 * axis;
    const int64_t extent = int64_t{at[0]} << 24 | at[1] << 16 | at[2] << 8 | at[3];
    array.extents.push_back(extent);
    text += (axis ? "x" : "") + std::to_string(extent);
    // Saturates: no file has that many bytes.
    count = extent && count > (int64_t{1} << 60) / extent ? int64_t{1} << 60 : count * extent;
  }
  ETCH_CHECK(count > 0, IoError, "idx: ", path, ": expected extents above 0, got ", text);
  ETCH_CHECK(size == header_size + count, IoError, "idx: ", path, ": expected ", header_size + count,
             " bytes for extents ", text, ", got ", size, ": the file is ",
             size < header_size + count ? "truncated" : "oversized", ", or its header wrong");
  append_file(path, header_size, count, array.bytes);
  return array;
}

Dataset load_idx(const std::string& directory, Split split) {
  namespace fs = std::filesystem;
  std::string prefix = split == Split::Train ? "train" : "test";
  std::error_code ignored;
  if (split == Split::Test && !fs::exists(fs::path(directory) / "test-images-idx3-ubyte", ignored) &&
      fs::exists(fs::path(directory) / "t10k-images-idx3-ubyte", ignored))
    prefix = "t10k";
  const std::string image_path = fs::path(directory) / (prefix + "-images-idx3-ubyte");
  const std::string label_path = fs::path(directory) / (prefix + "-labels-idx1-ubyte");
  IdxArray images = read_idx(image_path, 3);
  const IdxArray labels = read_idx(label_path, 1);
  ETCH_CHECK(images.extents[0] == labels.extents[0], IoError, "idx: expected as many labels as the ",
             images.extents[0], " pictures of ", image_path, ", got ", labels.extents[0], " in ", label_path);

  Dataset dataset;
  dataset.channels = 1;
  dataset.height = images.extents[1];
  dataset.width = images.extents[2];
  dataset.images = std::move(images.bytes);
  dataset.labels.assign(labels.bytes.begin(), labels.bytes.end());
  for (int digit = 0; digit < 10; ++digit) dataset.classes.push_back(std::to_string(digit));
  check(dataset, "idx: " + label_path);
  return dataset;
}

}  // namespace etch::data
