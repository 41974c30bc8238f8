// Large blocks of the caching allocator: best fit in segments of device memory, with splitting and merging.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"
#include "runtime/allocator.h"

namespace etch {

inline constexpr size_t kLargeGranule = 512;

/// A part of a segment, free or in use. Neighbours by address are linked.
struct Block {
  char* data = nullptr;
  size_t bytes = 0;
  Block* previous = nullptr;
  Block* next = nullptr;
  bool medium = false;  ///< lies in a segment for medium blocks
  bool free = true;
  MemoryCategory category = MemoryCategory::Other;
};

/// The blocks of one device. Not synchronised: the caller holds the pool's mutex.
class Blocks {
 public:
  struct Segment {
    void* data;
    size_t bytes;
  };

  /// Medium blocks have segments of their own, so that they do not pin the memory of large ones.
  static bool is_medium(size_t bytes) { return bytes < (size_t{1} << 20); }
  /// The size of a new segment for a block of `bytes`.
  static size_t segment_bytes(size_t bytes);

  /// The smallest free block of the kind that holds `bytes` (a multiple of the granule), cut to that size;
  /// null when there is none.
  Block* take(size_t bytes, bool medium);
  /// The live block at `data`, or null.
  Block* find(const void* data) const;
  /// Frees a live block and merges it with its free neighbours.
  void give_back(Block* block);

  void add_segment(Segment segment, bool medium);
  /// Forgets the segments without a live block and returns them.
  std::vector<Segment> remove_free_segments();

 private:
  struct BestFit {
    bool operator()(const Block* a, const Block* b) const {
      return a->bytes != b->bytes ? a->bytes < b->bytes : a->data < b->data;
    }
  };
  using FreeSet = absl::btree_set<Block*, BestFit>;

  FreeSet& free_set(bool medium) { return free_[medium]; }
  /// Appends the block after `block` to it.
  void absorb_next(Block* block);

  FreeSet free_[2];
  absl::flat_hash_map<const void*, Block*> live_;
};

}  // namespace etch
