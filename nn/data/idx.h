// The IDX format of MNIST and its kin.
#pragma once

#include <string>
#include <vector>

#include "nn/data/dataset.h"

namespace etch::data {

/// A u8 IDX file: magic 0, 0, 8, number of dimensions; the extents as big-endian 32-bit numbers; the bytes.
struct IdxArray {
  std::vector<int64_t> extents;
  std::vector<uint8_t> bytes;
};

/// Reads a file of that many dimensions. Throws IoError, naming the file with expected and found bytes, for a
/// missing, truncated or oversized one, another magic number, or an extent of 0.
IdxArray read_idx(const std::string& path, int dimensions);

/// train-images-idx3-ubyte and train-labels-idx1-ubyte, or test-... (t10k-... as well), with labels 0 to 9.
/// Throws as read_idx() does, IoError when the files differ in their counts, and IndexError for a label above
/// 9.
Dataset load_idx(const std::string& directory, Split split);

}  // namespace etch::data
