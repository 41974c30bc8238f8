// Names of devices, and the host's memory.
#include "runtime/device.h"

#include <sys/mman.h>

#include <algorithm>

#include "runtime/error.h"

namespace etch {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kHugePage = size_t{2} << 20;

constexpr size_t round_up(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

/// Pages from the system; those of 2 MiB and more are aligned for huge pages.
class HostMemory final : public DeviceMemory {
 public:
  void* allocate(size_t bytes) override {
    if (bytes > PTRDIFF_MAX - kHugePage) return nullptr;
    const size_t size = round_up(bytes, kPage);
    const size_t slack = size >= kHugePage ? kHugePage - kPage : 0;
    void* mapped = ::mmap(nullptr, size + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) return nullptr;
    if (slack == 0) return mapped;
    const auto start = reinterpret_cast<uintptr_t>(mapped);
    const uintptr_t aligned = round_up(start, kHugePage);
    if (aligned > start) ::munmap(mapped, aligned - start);
    const uintptr_t end = start + size + slack;
    if (end > aligned + size) ::munmap(reinterpret_cast<void*>(aligned + size), end - aligned - size);
    auto* data = reinterpret_cast<void*>(aligned);
    ::madvise(data, size, MADV_HUGEPAGE);  // advice only: refused, the memory works as well
    return data;
  }
  void release(void* data, size_t bytes) override { ::munmap(data, round_up(bytes, kPage)); }
};

[[noreturn]] void fail_without_cuda() {
  fail<DeviceError>(
      "cuda: expected a CUDA device, got none (no driver library was found); use Device::cpu()");
}

}  // namespace

Device Device::cuda(int) { fail_without_cuda(); }

std::string to_string(Device device) {
  return device.type == DeviceType::Cpu ? "cpu" : "cuda:" + std::to_string(device.index);
}

DeviceMemory& device_memory(Device device) {
  static HostMemory* const host = new HostMemory;
  if (device.type != DeviceType::Cpu) fail_without_cuda();
  return *host;
}

}  // namespace etch
