// Whole files as bytes.
#include "nn/data/file.h"

#include <filesystem>
#include <fstream>

#include "runtime/error.h"

namespace etch::data {

int64_t file_size(const std::string& path) {
  std::error_code error;
  ETCH_CHECK(std::filesystem::exists(path, error), IoError, "data: expected a file ", path, ", got none");
  ETCH_CHECK(std::filesystem::is_regular_file(path, error), IoError, "data: expected a regular file, got ",
             path);
  const auto size = std::filesystem::file_size(path, error);
  ETCH_CHECK(!error, IoError, "data: ", path, ": ", error.message());
  return static_cast<int64_t>(size);
}

void append_file(const std::string& path, int64_t from, int64_t count, std::vector<uint8_t>& bytes) {
  std::ifstream file(path, std::ios::binary);
  ETCH_CHECK(file.is_open(), IoError, "data: expected a readable file, got ", path);
  const size_t old = bytes.size();
  bytes.resize(old + static_cast<size_t>(count));
  file.seekg(from);
  file.read(reinterpret_cast<char*>(bytes.data() + old), count);
  ETCH_CHECK(file.gcount() == count, IoError, "data: expected ", count, " bytes from ", path, ", got ",
             static_cast<int64_t>(file.gcount()));
}

}  // namespace etch::data
