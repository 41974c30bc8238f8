// Whole files as bytes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace etch::data {

/// Bytes of the file; throws IoError naming it when it is missing or no regular file.
int64_t file_size(const std::string& path);
/// Appends the bytes [from, from + count) to `bytes`. Throws IoError naming the file when they cannot be
/// read.
void append_file(const std::string& path, int64_t from, int64_t count, std::vector<uint8_t>& bytes);

}  // namespace etch::data
