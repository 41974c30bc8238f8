// Compiled kernels on disk, shared by processes.
#pragma once

#include <optional>
#include <string>

#include "codegen/hash.h"

namespace etch::codegen {

/// A folder of shared objects named by their content and of one small entry a kernel that names the object it
/// is in. Whatever is missing, damaged or foreign reads as absent. Files appear by rename, so processes may
/// share the folder.
class KernelCache {
 public:
  /// The folder of config().cache_dir, made if need be. Nothing unless it belongs to this user, others cannot
  /// write to it, and this process can.
  static std::optional<KernelCache> open();

  /// Path of a verified shared object with that kernel.
  std::optional<std::string> find(const Hash128& key) const;
  /// Moves `library`, which lies in folder(), into the cache; its path there, or nothing on failure.
  std::optional<std::string> add_library(const std::string& library) const;
  /// Says that the kernel is in a library that add_library() gave.
  void add_kernel(const Hash128& key, const std::string& library) const;

  const std::string& folder() const { return folder_; }

 private:
  explicit KernelCache(std::string folder) : folder_(std::move(folder)) {}
  std::string folder_;
};

/// For tests: forgets what this process has loaded, so that the disk is looked at again.
void forget_loaded_kernels();

}  // namespace etch::codegen
