// Opening and closing of slabs, and the table from addresses to slabs.
#include "runtime/slabs.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>

#include "runtime/error.h"

namespace etch {
namespace {

constexpr int kChunkBits = 16, kLeafBits = 16, kAddressBits = 48;
static_assert(kChunkBytes == size_t{1} << kChunkBits);

/// Slabs of 4 GiB of addresses. Mapped on demand, so only touched pages cost memory.
struct Leaf {
  std::atomic<Slab*> slabs[1 << kLeafBits];
};
constinit std::atomic<Leaf*> leaves[size_t{1} << (kAddressBits - kChunkBits - kLeafBits)];

/// Callers hold their pool's lock, but pools of different devices may meet here.
void register_slab(const void* base, Slab* slab) {
  const uintptr_t chunk = reinterpret_cast<uintptr_t>(base) >> kChunkBits;
  ETCH_INVARIANT(chunk >> kLeafBits < std::size(leaves));
  std::atomic<Leaf*>& place = leaves[chunk >> kLeafBits];
  Leaf* leaf = place.load(std::memory_order_acquire);
  if (!leaf) {
    void* fresh = ::mmap(nullptr, sizeof(Leaf), PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (fresh == MAP_FAILED) throw std::bad_alloc();
    if (place.compare_exchange_strong(leaf, static_cast<Leaf*>(fresh), std::memory_order_acq_rel))
      leaf = static_cast<Leaf*>(fresh);
    else
      ::munmap(fresh, sizeof(Leaf));
  }
  leaf->slabs[chunk & ((1 << kLeafBits) - 1)].store(slab, std::memory_order_release);
}

}  // namespace

Slab* find_slab(const void* data) {
  const uintptr_t chunk = reinterpret_cast<uintptr_t>(data) >> kChunkBits;
  if (chunk >> kLeafBits >= std::size(leaves)) return nullptr;
  const Leaf* leaf = leaves[chunk >> kLeafBits].load(std::memory_order_acquire);
  return leaf ? leaf->slabs[chunk & ((1 << kLeafBits) - 1)].load(std::memory_order_acquire) : nullptr;
}

void Slabs::link(Slab* slab) {
  Slab*& first = partial_[slab->units - 1];
  slab->previous = nullptr;
  slab->next = first;
  if (first) first->previous = slab;
  first = slab;
}

void Slabs::unlink(Slab* slab) {
  (slab->previous ? slab->previous->next : partial_[slab->units - 1]) = slab->next;
  if (slab->next) slab->next->previous = slab->previous;
}

bool Slabs::open_slab(uint32_t units) {
  if (free_chunks_.empty()) {
    Slab* empty = find_empty();
    if (!empty) return false;
    close(empty);
  }
  auto slab = std::make_unique<Slab>();
  slab->base = free_chunks_.back();
  slab->owner = this;
  slab->units = units;
  slab->reciprocal = ((1u << 16) + units - 1) / units;
  slab->count = slab->free_count = static_cast<uint32_t>(kChunkBytes / slab->block_bytes());
  slab->free_blocks = std::make_unique<uint16_t[]>(slab->count);
  slab->categories = std::make_unique<uint8_t[]>(slab->count);
  std::fill_n(slab->categories.get(), slab->count, Slab::kFree);
  for (uint32_t i = 0; i < slab->count; ++i)
    slab->free_blocks[i] = static_cast<uint16_t>(slab->count - 1 - i);  // low addresses first
  register_slab(slab->base, slab.get());
  free_chunks_.pop_back();
  link(slab.release());
  return true;
}

void Slabs::close(Slab* slab) {
  unlink(slab);
  register_slab(slab->base, nullptr);
  free_chunks_.push_back(slab->base);
  delete slab;
}

Slab* Slabs::find_empty() const {
  for (Slab* slab : partial_)
    for (; slab; slab = slab->next)
      if (slab->free_count == slab->count) return slab;
  return nullptr;
}

void Slabs::add_region(Region region) {
  regions_.reserve(regions_.size() + 1);
  const auto start = reinterpret_cast<uintptr_t>(region.data);
  const uintptr_t first = (start + kChunkBytes - 1) / kChunkBytes * kChunkBytes;
  const uintptr_t end = start + region.bytes;
  free_chunks_.reserve(free_chunks_.size() + region.bytes / kChunkBytes);
  regions_.push_back(region);
  for (uintptr_t chunk = end / kChunkBytes * kChunkBytes; chunk > first;)
    free_chunks_.push_back(reinterpret_cast<char*>(chunk -= kChunkBytes));
}

std::vector<Slabs::Region> Slabs::remove_free_regions() {
  while (Slab* empty = find_empty()) close(empty);
  const auto inside = [](const Region& region, const char* chunk) {
    const auto* data = static_cast<const char*>(region.data);
    return chunk >= data && chunk < data + region.bytes;
  };
  std::vector<Region> removed;
  std::erase_if(regions_, [&](const Region& region) {
    const auto start = reinterpret_cast<uintptr_t>(region.data);
    const auto chunks = (start + region.bytes) / kChunkBytes - (start + kChunkBytes - 1) / kChunkBytes;
    const auto in_region = [&](const char* chunk) { return inside(region, chunk); };
    if (static_cast<size_t>(std::count_if(free_chunks_.begin(), free_chunks_.end(), in_region)) != chunks)
      return false;
    std::erase_if(free_chunks_, in_region);
    removed.push_back(region);
    return true;
  });
  return removed;
}

}  // namespace etch
