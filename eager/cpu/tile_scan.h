// Questions about small matrices that lie in cache, asked to leave work out. Strides are from line to line,
// in elements; the elements of a line are neighbours.
#pragma once

#include <cstdint>

namespace etch::cpu {

/// The largest magnitude; infinite or NaN if any is.
float largest_magnitude(const float* line, int64_t lines, int64_t length, int64_t stride);
/// All zeros, of either sign.
bool is_zero(const float* line, int64_t lines, int64_t length, int64_t stride);
bool has_negative_zero(const float* line, int64_t lines, int64_t length, int64_t stride);
/// All elements of a Bool matrix are `value`.
bool all_are(bool value, const uint8_t* line, int64_t lines, int64_t length, int64_t stride);

}  // namespace etch::cpu
