// Kernels by source: from this process, from the disk cache, or from the compiler.
#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <mutex>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "codegen/build_host.h"
#include "codegen/kernel.h"
#include "codegen/kernel_cache.h"
#include "runtime/config.h"
#include "runtime/error.h"
#include "runtime/parallel.h"

namespace etch::codegen {
namespace {

/// What this process has loaded. Never destroyed; libraries are never closed.
struct Loaded {
  std::mutex mutex;
  absl::flat_hash_map<Hash128, LoadedKernel> kernels;
  absl::flat_hash_set<std::string> warnings;
};

Loaded& loaded() {
  static Loaded* const table = new Loaded;
  return *table;
}

void warn_once(std::string_view text) {
  {
    std::lock_guard lock(loaded().mutex);
    if (!loaded().warnings.emplace(text).second) return;
  }
  log(0, text);
}

/// All that decides the machine code but the kernel's own text.
std::string context_of(const HostCompiler& compiler) {
  std::string text =
      join_text({compiler.path, "\n", compiler.version, "\n", compiler.cpu, "\n", host_prelude(), "\n"});
  for (const std::string& flag : compiler.flags) text += flag + "\n";
  return Hash128::of(text).hex();
}

struct Wanted {
  const LoweredKernel* kernel;
  Hash128 key;
  LoadedKernel result;
};

/// Fills the kernel's functions from a library; false if one is missing.
bool take(void* library, Wanted& wanted) {
  std::vector<HostFunction> phases;
  for (size_t i = 0; i < wanted.kernel->phases.size(); ++i) {
    void* symbol = dlsym(library, join_text({wanted.kernel->name, "_", static_cast<int>(i)}).c_str());
    if (!symbol) return false;
    phases.push_back(reinterpret_cast<HostFunction>(symbol));
  }
  wanted.result.phases = std::move(phases);
  return true;
}

void* open_library(const std::string& path) { return dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL); }

/// Kernels dealt to units of about equal length of text.
std::vector<std::vector<Wanted*>> deal(std::vector<Wanted*> wanted) {
  const size_t count = std::min<size_t>(static_cast<size_t>(num_threads()), wanted.size());
  std::vector<std::vector<Wanted*>> units(count);
  std::vector<size_t> lengths(count);
  std::stable_sort(wanted.begin(), wanted.end(), [](const Wanted* a, const Wanted* b) {
    return a->kernel->host_source.size() > b->kernel->host_source.size();
  });
  for (Wanted* kernel : wanted) {
    const size_t unit =
        static_cast<size_t>(std::min_element(lengths.begin(), lengths.end()) - lengths.begin());
    units[unit].push_back(kernel);
    lengths[unit] += kernel->kernel->host_source.size();
  }
  return units;
}

void dump(const BuildUnit& unit) {
  const std::string& folder = config().dump_dir;
  if (folder.empty()) return;
  std::error_code ignored;
  std::filesystem::create_directories(folder, ignored);
  const std::string base = join_text({folder, "/kernels_", Hash128::of(unit.source).hex()});
  write_file(base + ".cpp", unit.source);
  if (!unit.library.empty())
    std::filesystem::copy_file(unit.library, base + ".so", std::filesystem::copy_options::overwrite_existing,
                               ignored);
}

void compile(const HostCompiler& compiler, const std::optional<KernelCache>& cache,
             const std::vector<Wanted*>& wanted) {
  const TemporaryFolder folder(cache ? cache->folder() : temporary_root());
  if (folder.path().empty())
    return warn_once(
        "kernels: expected a folder for temporary files that can be written; ops run one by one");
  const std::vector<std::vector<Wanted*>> dealt = deal(wanted);
  std::vector<BuildUnit> units;
  for (const std::vector<Wanted*>& kernels : dealt) {
    BuildUnit& unit = units.emplace_back(BuildUnit{host_prelude(), "", ""});
    for (const Wanted* kernel : kernels) unit.source += "\n" + kernel->kernel->host_source;
  }
  build_units(compiler, folder.path(), units);
  for (size_t i = 0; i < units.size(); ++i) {
    dump(units[i]);
    if (units[i].library.empty()) {
      log(0, join_text({"kernels: ", compiler.path, " failed, so these run op by op:\n", units[i].errors}));
      continue;
    }
    // From the cache's path if there is one: the folder goes away.
    std::optional<std::string> path;
    if (cache) path = cache->add_library(units[i].library);
    void* library = open_library(path ? *path : units[i].library);
    if (!library) {
      log(0, join_text({"kernels: dlopen failed, so these run op by op: ", dlerror()}));
      continue;
    }
    for (Wanted* kernel : dealt[i])
      if (take(library, *kernel) && path) cache->add_kernel(kernel->key, *path);
  }
}

}  // namespace

void forget_loaded_kernels() {
  std::lock_guard lock(loaded().mutex);
  loaded().kernels.clear();
  loaded().warnings.clear();
}

std::vector<LoadedKernel> load_host_kernels(std::span<const LoweredKernel* const> kernels,
                                            LoadStatistics* statistics) {
  std::vector<LoadedKernel> results(kernels.size());
  LoadStatistics counts;
  counts.kernels = static_cast<int>(kernels.size());
  const HostCompiler* compiler = host_compiler();
  if (!compiler) {
    warn_once("kernels: no C++ compiler (ETCH_CXX), so fused ops run one by one");
    if (statistics) *statistics = counts;
    return results;
  }
  const std::string context = context_of(*compiler);
  absl::flat_hash_map<Hash128, size_t> index;
  std::vector<Wanted> wanted;
  std::vector<size_t> which;
  for (const LoweredKernel* kernel : kernels) {
    const Hash128 key = Hash128::of(context + kernel->host_source);
    const auto [entry, fresh] = index.emplace(key, wanted.size());
    if (fresh) wanted.push_back({kernel, key, {}});
    which.push_back(entry->second);
    if (fresh) log(4, join_text({"kernel ", kernel->name, ":\n", kernel->host_source}));
  }

  std::vector<Wanted*> missing;
  {
    std::lock_guard lock(loaded().mutex);
    for (Wanted& kernel : wanted) {
      const auto found = loaded().kernels.find(kernel.key);
      if (found != loaded().kernels.end())
        kernel.result = found->second;
      else
        missing.push_back(&kernel);
    }
  }
  if (!missing.empty()) {
    const std::optional<KernelCache> cache = KernelCache::open();
    if (!cache)
      warn_once(
          "kernels: no cache folder of this user's own (ETCH_CACHE_DIR), so kernels are compiled in every "
          "process");
    std::vector<Wanted*> uncompiled;
    for (Wanted* kernel : missing) {
      const std::optional<std::string> path = cache ? cache->find(kernel->key) : std::nullopt;
      void* library = path ? open_library(*path) : nullptr;
      if (library && take(library, *kernel))
        ++counts.from_cache;
      else
        uncompiled.push_back(kernel);
    }
    if (!uncompiled.empty()) {
      const auto start = std::chrono::steady_clock::now();
      compile(*compiler, cache, uncompiled);
      counts.compile_ms =
          std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
      counts.compiled = static_cast<int>(uncompiled.size());
      log(2, join_text({"kernels: compiled ", counts.compiled, " in ", counts.compile_ms, " ms"}));
    }
    std::lock_guard lock(loaded().mutex);
    for (const Wanted* kernel : missing)
      if (!kernel->result.phases.empty()) loaded().kernels.emplace(kernel->key, kernel->result);
  }
  for (size_t i = 0; i < results.size(); ++i) results[i] = wanted[which[i]].result;
  if (statistics) *statistics = counts;
  return results;
}

}  // namespace etch::codegen
