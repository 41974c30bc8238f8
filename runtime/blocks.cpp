// Best fit, splitting and merging.
#include "runtime/blocks.h"

#include "runtime/object_pool.h"

namespace etch {
namespace {

Block* new_block(const Block& values) { return new (ObjectPool<Block>::allocate()) Block(values); }
void delete_block(Block* block) { ObjectPool<Block>::release(block); }

}  // namespace

size_t Blocks::segment_bytes(size_t bytes) {
  constexpr size_t kMiB = size_t{1} << 20;
  if (is_medium(bytes)) return 2 * kMiB;
  if (bytes <= 4 * kMiB) return 16 * kMiB;
  return (bytes + 2 * kMiB - 1) / (2 * kMiB) * (2 * kMiB);
}

Block* Blocks::take(size_t bytes, bool medium) {
  FreeSet& free = free_set(medium);
  Block probe;
  probe.bytes = bytes;
  const auto found = free.lower_bound(&probe);
  if (found == free.end()) return nullptr;
  Block* block = *found;
  live_.emplace(block->data, block);
  free.erase(found);
  block->free = false;
  if (block->bytes > bytes) {
    Block* rest = new_block({.data = block->data + bytes,
                             .bytes = block->bytes - bytes,
                             .previous = block,
                             .next = block->next,
                             .medium = medium});
    if (rest->next) rest->next->previous = rest;
    block->next = rest;
    block->bytes = bytes;
    free.insert(rest);
  }
  return block;
}

Block* Blocks::find(const void* data) const {
  const auto found = live_.find(data);
  return found == live_.end() ? nullptr : found->second;
}

void Blocks::absorb_next(Block* block) {
  Block* next = block->next;
  block->bytes += next->bytes;
  block->next = next->next;
  if (block->next) block->next->previous = block;
  delete_block(next);
}

void Blocks::give_back(Block* block) {
  FreeSet& free = free_set(block->medium);
  live_.erase(block->data);
  block->free = true;
  if (block->next && block->next->free) {
    free.erase(block->next);
    absorb_next(block);
  }
  if (block->previous && block->previous->free) {
    block = block->previous;
    free.erase(block);
    absorb_next(block);
  }
  free.insert(block);
}

void Blocks::add_segment(Segment segment, bool medium) {
  free_set(medium).insert(
      new_block({.data = static_cast<char*>(segment.data), .bytes = segment.bytes, .medium = medium}));
}

std::vector<Blocks::Segment> Blocks::remove_free_segments() {
  std::vector<Segment> removed;
  for (FreeSet& free : free_)
    for (auto at = free.begin(); at != free.end();) {
      Block* block = *at;
      if (block->previous || block->next) {
        ++at;
        continue;
      }
      removed.push_back({block->data, block->bytes});
      at = free.erase(at);
      delete_block(block);
    }
  return removed;
}

}  // namespace etch
