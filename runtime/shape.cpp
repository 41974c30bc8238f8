// Strides, broadcasting and the overlap of windows.
#include "runtime/shape.h"

#include <algorithm>
#include <ostream>

namespace etch {
namespace {

/// Dimensions whose stride places elements (size above 1), by stride from small to large; of equal strides
/// the last dimension first.
Dims dims_by_stride(const Dims& sizes, const Dims& strides) {
  Dims order;
  for (int i = sizes.size() - 1; i >= 0; --i)
    if (sizes[i] > 1) order.push_back(i);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return strides[a] < strides[b]; });
  return order;
}

/// Whether the strides are those of the memory order `inner_first`, packed.
bool packed_in_order(const Geometry& geometry, const Dims& inner_first) {
  int64_t expected = 1;
  for (int64_t dim : inner_first) {
    if (geometry.sizes[dim] == 1) continue;
    if (geometry.strides[dim] != expected) return false;
    expected *= geometry.sizes[dim];
  }
  return true;
}

}  // namespace

std::string to_string(const Dims& dims) {
  std::string text = "[";
  for (int i = 0; i < dims.size(); ++i) {
    if (i) text += ", ";
    text += std::to_string(dims[i]);
  }
  return text + "]";
}

std::ostream& operator<<(std::ostream& out, const Dims& dims) { return out << to_string(dims); }

Dims contiguous_strides(const Dims& sizes) {
  Dims strides = Dims::filled(sizes.size(), 1);
  for (int i = sizes.size() - 2; i >= 0; --i)
    strides[i] = strides[i + 1] * std::max<int64_t>(sizes[i + 1], 1);
  return strides;
}

Dims packed_strides_like(const Dims& sizes, const Dims& strides) {
  if (num_elements(sizes) == 0) return contiguous_strides(sizes);
  Dims inner_first;
  for (int64_t dim : dims_by_stride(sizes, strides))
    if (strides[dim] != 0) inner_first.push_back(dim);
  // Dimensions without a place of their own (broadcast or of size 1) go just outside the next dimension.
  for (int dim = sizes.size() - 1; dim >= 0; --dim) {
    if (sizes[dim] != 1 && strides[dim] != 0) continue;
    int at = inner_first.size();
    while (at > 0 && inner_first[at - 1] < dim) --at;
    inner_first.insert(at, dim);
  }
  Dims packed = Dims::filled(sizes.size(), 1);
  int64_t stride = 1;
  for (int64_t dim : inner_first) {
    packed[dim] = stride;
    stride *= sizes[dim];
  }
  return packed;
}

Dims channels_last_strides(const Dims& sizes) {
  ETCH_CHECK(sizes.size() == 4, ShapeError, "channels_last_strides: expected 4 dimensions, got ",
             to_string(sizes));
  const auto size = [&](int i) { return std::max<int64_t>(sizes[i], 1); };
  return {size(1) * size(2) * size(3), 1, size(1) * size(3), size(1)};
}

Geometry contiguous(const Dims& sizes) { return {sizes, contiguous_strides(sizes)}; }

bool is_contiguous(const Geometry& geometry) {
  if (geometry.numel() == 0) return true;
  int64_t expected = 1;
  for (int i = geometry.ndim() - 1; i >= 0; --i) {
    if (geometry.sizes[i] == 1) continue;
    if (geometry.strides[i] != expected) return false;
    expected *= geometry.sizes[i];
  }
  return true;
}

bool is_dense(const Geometry& geometry) {
  return geometry.numel() == 0 || packed_in_order(geometry, dims_by_stride(geometry.sizes, geometry.strides));
}

bool is_channels_last(const Geometry& geometry) {
  return geometry.ndim() == 4 && (geometry.numel() == 0 || packed_in_order(geometry, {1, 3, 2, 0}));
}

int64_t extent(const Geometry& geometry) {
  if (geometry.numel() == 0) return 0;
  int64_t last = 0;
  for (int i = 0; i < geometry.ndim(); ++i) last += (geometry.sizes[i] - 1) * geometry.strides[i];
  return last + 1;
}

bool may_self_overlap(const Geometry& geometry) {
  if (geometry.numel() == 0) return false;
  int64_t reach = 0;  // the furthest element that the smaller strides touch
  for (int64_t dim : dims_by_stride(geometry.sizes, geometry.strides)) {
    if (geometry.strides[dim] <= reach) return true;
    reach += (geometry.sizes[dim] - 1) * geometry.strides[dim];
  }
  return false;
}

Dims broadcast_sizes(std::string_view op, const Dims& a, const Dims& b) {
  Dims sizes = Dims::filled(std::max(a.size(), b.size()), 1);
  for (int i = 1; i <= sizes.size(); ++i) {
    const int64_t x = i <= a.size() ? a[a.size() - i] : 1;
    const int64_t y = i <= b.size() ? b[b.size() - i] : 1;
    ETCH_CHECK(x == y || x == 1 || y == 1, ShapeError, op, ": expected shapes that broadcast, got ",
               to_string(a), " and ", to_string(b));
    sizes[sizes.size() - i] = x == 1 ? y : x;
  }
  return sizes;
}

bool can_broadcast_to(const Dims& from, const Dims& to) {
  if (from.size() > to.size()) return false;
  for (int i = 1; i <= from.size(); ++i) {
    const int64_t size = from[from.size() - i];
    if (size != 1 && size != to[to.size() - i]) return false;
  }
  return true;
}

Geometry broadcast_to(const Geometry& geometry, const Dims& sizes) {
  Geometry result{sizes, Dims::filled(sizes.size(), 0)};
  const int added = sizes.size() - geometry.ndim();
  for (int i = 0; i < geometry.ndim(); ++i)
    if (geometry.sizes[i] == sizes[i + added]) result.strides[i + added] = geometry.strides[i];
  return result;
}

int normalize_axis(std::string_view op, int64_t axis, int ndim) {
  const int64_t count = std::max(ndim, 1);
  ETCH_CHECK(axis >= -count && axis < count, IndexError, op, ": expected an axis from ", -count, " to ",
             count - 1, " for ", ndim, " dimensions, got ", axis);
  return static_cast<int>(axis < 0 ? axis + count : axis);
}

}  // namespace etch
