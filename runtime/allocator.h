// The caching allocator that all tensor and scratch memory comes from, with categories, statistics and a
// limit.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/device.h"

namespace etch {

/// What a block is used for.
enum class MemoryCategory : uint8_t {
  Parameter,
  Gradient,
  OptimizerState,
  Activation,
  Temporary,
  Arena,
  Other
};
inline constexpr int kNumMemoryCategories = 7;
/// "parameters", "gradients", "optimizer_state", "activations", "temporaries", "arena", "other".
std::string_view name(MemoryCategory category);

using BytesByCategory = std::array<int64_t, kNumMemoryCategories>;

struct MemoryStats {
  int64_t allocated = 0;             ///< bytes in use, as requested and rounded up to the allocator's granule
  int64_t reserved = 0;              ///< bytes taken from the device, in use or cached
  int64_t limit = 0;                 ///< 0: none
  int64_t peak_allocated = 0;        ///< highest `allocated` since reset_peak_memory()
  BytesByCategory by_category = {};  ///< `allocated`, split
  BytesByCategory at_peak = {};      ///< the split when the peak was reached
  int64_t allocations = 0;           ///< calls served
  int64_t device_allocations = 0;    ///< calls that had to ask the device
};

/// A block of at least `bytes` (64-byte aligned; a unique non-null pointer for 0 bytes). Throws
/// OutOfMemoryError with the memory summary when the limit or the device is exhausted even after the cache
/// was emptied. Thread-safe.
void* allocate(Device device, size_t bytes, MemoryCategory category);
/// Returns a block to the cache.
void deallocate(Device device, void* data) noexcept;
/// Moves a live block to another category.
void set_category(Device device, void* data, MemoryCategory category);

MemoryStats memory_stats(Device device = Device::cpu());
/// The peak becomes what is allocated now.
void reset_peak_memory(Device device = Device::cpu());
/// At most `bytes` may be allocated from now on; 0 removes the limit.
void set_memory_limit(int64_t bytes, Device device = Device::cpu());
/// Gives cached blocks back to the device.
void empty_cache(Device device = Device::cpu());
/// "512 B", "1.50 KiB", "12.00 MiB".
std::string print_bytes(int64_t bytes);
/// A table of where the bytes are now and were at the peak.
std::string memory_summary(Device device = Device::cpu());

/// Scratch memory for one call, from the caching allocator.
class ScratchBuffer {
 public:
  ScratchBuffer(Device device, size_t bytes, MemoryCategory category = MemoryCategory::Temporary)
      : device_(device), data_(bytes ? allocate(device, bytes, category) : nullptr) {}
  ~ScratchBuffer() {
    if (data_) deallocate(device_, data_);
  }
  ScratchBuffer(const ScratchBuffer&) = delete;
  ScratchBuffer& operator=(const ScratchBuffer&) = delete;
  void* data() const { return data_; }

 private:
  Device device_;
  void* data_;
};

}  // namespace etch
