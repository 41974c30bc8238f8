// Small blocks of the caching allocator: 64 KiB chunks, each cut into blocks of one size. All bookkeeping is
// host memory, so the blocks may lie on any device.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace etch {

inline constexpr size_t kSmallUnit = 64;
inline constexpr size_t kSmallMax = 4096;
inline constexpr int kSmallClasses = kSmallMax / kSmallUnit;
inline constexpr size_t kChunkBytes = size_t{64} << 10;

/// A chunk in use for blocks of `units` * 64 bytes.
struct Slab {
  static constexpr uint8_t kFree = 0xFF;  ///< in `categories`

  char* base = nullptr;
  const void* owner = nullptr;  ///< the Slabs it belongs to
  uint32_t units = 0;
  uint32_t reciprocal = 0;  ///< ceil(2^16 / units)
  uint32_t count = 0;
  uint32_t free_count = 0;
  Slab* previous = nullptr;  ///< among the slabs of its class that have free blocks
  Slab* next = nullptr;
  std::unique_ptr<uint16_t[]> free_blocks;  ///< a stack
  std::unique_ptr<uint8_t[]> categories;    ///< of each block

  size_t block_bytes() const { return units * kSmallUnit; }
  /// Exact: the offset in units is below 1024 and units at most 64.
  uint32_t index_of(const void* data) const {
    const auto offset = static_cast<uint32_t>(static_cast<const char*>(data) - base) / kSmallUnit;
    return static_cast<uint32_t>(offset * reciprocal) >> 16;
  }
};

/// The slab around an address, or null: reads two tables without a lock.
Slab* find_slab(const void* data);

/// Slabs of one device. Not synchronised: the caller holds the pool's lock.
class Slabs {
 public:
  struct Region {
    void* data;
    size_t bytes;
  };
  static constexpr size_t kRegionBytes = size_t{2} << 20;

  /// A block of `units` * 64 bytes, or null when the class has none free.
  void* take(uint32_t units, uint8_t category) {
    Slab* slab = partial_[units - 1];
    if (!slab) [[unlikely]]
      return nullptr;
    const uint16_t index = slab->free_blocks[--slab->free_count];
    slab->categories[index] = category;
    if (slab->free_count == 0) unlink(slab);
    return slab->base + static_cast<size_t>(index) * slab->block_bytes();
  }
  void give_back(Slab* slab, uint32_t index) {
    slab->categories[index] = Slab::kFree;
    slab->free_blocks[slab->free_count] = static_cast<uint16_t>(index);
    if (slab->free_count++ == 0) link(slab);
  }

  /// Opens a slab for the class from a free chunk or from a slab of another class that has become empty;
  /// false when there is none.
  bool open_slab(uint32_t units);
  void add_region(Region region);
  /// Forgets the regions without a live block and returns them.
  std::vector<Region> remove_free_regions();

 private:
  void link(Slab* slab);
  void unlink(Slab* slab);
  void close(Slab* slab);
  Slab* find_empty() const;

  std::array<Slab*, kSmallClasses> partial_{};
  std::vector<Region> regions_;
  std::vector<char*> free_chunks_;
};

}  // namespace etch
