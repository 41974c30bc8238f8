// Devices and host memory.
#include "runtime/device.h"

#include <cstring>

#include "runtime/error.h"
#include "tests/runtime/expect_error.h"

namespace etch {
namespace {

TEST(Device, Names) {
  EXPECT_EQ(to_string(Device::cpu()), "cpu");
  EXPECT_EQ(to_string(Device{DeviceType::Cuda, 1}), "cuda:1");
}

TEST(Device, HostMemoryIsAligned) {
  DeviceMemory& memory = device_memory(Device::cpu());
  for (size_t bytes : {size_t{1}, size_t{100000}, size_t{3} << 20}) {
    void* data = memory.allocate(bytes);
    ASSERT_NE(data, nullptr);
    const size_t alignment = bytes >= size_t{2} << 20 ? size_t{2} << 20 : 4096;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % alignment, 0u);
    std::memset(data, 1, bytes);
    memory.release(data, bytes);
  }
}

TEST(Device, HostMemoryEnds) { EXPECT_EQ(device_memory(Device::cpu()).allocate(size_t{1} << 62), nullptr); }

}  // namespace
}  // namespace etch
