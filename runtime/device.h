// Devices, and the interface that each kind of device implements.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace etch {

enum class DeviceType : uint8_t { Cpu, Cuda };

struct Device {
  DeviceType type = DeviceType::Cpu;
  int8_t index = 0;

  static constexpr Device cpu() { return {}; }
  /// Throws DeviceError where no CUDA device can be used.
  static Device cuda(int index = 0);
  bool operator==(const Device& other) const = default;
};
std::string to_string(Device device);

/// Raw memory of a device, below the caching allocator.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
  /// At least `bytes`, aligned to 64 or more; nullptr when there is no more.
  virtual void* allocate(size_t bytes) = 0;
  virtual void release(void* data, size_t bytes) = 0;
};
/// The memory of `device`; throws DeviceError where the backend is missing.
DeviceMemory& device_memory(Device device);

}  // namespace etch
