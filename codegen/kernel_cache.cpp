// The disk cache of kernels.
#include "codegen/kernel_cache.h"

#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <charconv>
#include <cstdlib>
#include <filesystem>

#include "codegen/build_host.h"
#include "runtime/config.h"
#include "runtime/error.h"

namespace etch::codegen {
namespace {

constexpr std::string_view kMagic = "etch-kernel 1 ";

std::string default_folder() {
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache && *cache == '/')
    return join_text({cache, "/etch"});
  const char* home = std::getenv("HOME");
  if (!home || !*home) {
    const passwd* user = getpwuid(geteuid());
    home = user ? user->pw_dir : nullptr;
  }
  return home && *home ? join_text({home, "/.cache/etch"}) : "";
}

bool usable(const std::string& folder) {
  struct stat status;
  return lstat(folder.c_str(), &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == geteuid() &&
         (status.st_mode & (S_IWGRP | S_IWOTH)) == 0 && access(folder.c_str(), R_OK | W_OK | X_OK) == 0;
}

std::string library_name(const Hash128& content, uint64_t size) {
  return join_text({content.hex(), "-", size, ".so"});
}

}  // namespace

std::optional<KernelCache> KernelCache::open() {
  std::string folder = config().cache_dir.empty() ? default_folder() : config().cache_dir;
  if (folder.empty()) return std::nullopt;
  if (access(folder.c_str(), F_OK) != 0) {
    std::error_code ignored;
    std::filesystem::create_directories(std::filesystem::path(folder).parent_path(), ignored);
    mkdir(folder.c_str(), 0700);
  }
  if (!usable(folder)) return std::nullopt;
  return KernelCache(std::move(folder));
}

std::optional<std::string> KernelCache::find(const Hash128& key) const {
  std::string entry, content;
  if (!read_file(join_text({folder_, "/", key.hex(), ".kernel"}), &entry)) return std::nullopt;
  // The entry is the magic, the key and the library's name: content hash, '-', size, ".so", newline.
  const std::string head = join_text({kMagic, key.hex(), " "});
  if (!entry.starts_with(head) || !entry.ends_with(".so\n")) return std::nullopt;
  const std::string name = entry.substr(head.size(), entry.size() - head.size() - 1);
  if (name.find('/') != std::string::npos) return std::nullopt;
  const std::string path = join_text({folder_, "/", name});
  if (!read_file(path, &content) || library_name(Hash128::of(content), content.size()) != name)
    return std::nullopt;
  return path;
}

std::optional<std::string> KernelCache::add_library(const std::string& library) const {
  std::string content;
  if (!read_file(library, &content)) return std::nullopt;
  const std::string path = join_text({folder_, "/", library_name(Hash128::of(content), content.size())});
  if (std::rename(library.c_str(), path.c_str()) != 0) return std::nullopt;
  return path;
}

void KernelCache::add_kernel(const Hash128& key, const std::string& library) const {
  static std::atomic<int64_t> count{0};
  const std::string path = join_text({folder_, "/", key.hex(), ".kernel"});
  const std::string beside = join_text({path, ".", static_cast<int64_t>(getpid()), ".", count++});
  const std::string name = library.substr(library.rfind('/') + 1);
  if (!write_file(beside, join_text({kMagic, key.hex(), " ", name, "\n"})) ||
      std::rename(beside.c_str(), path.c_str()) != 0)
    unlink(beside.c_str());
}

}  // namespace etch::codegen
