// The readers under attack: graph text, IDX, CIFAR-10, kernel-cache entries.
#include "tests/fuzzers/targets.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "codegen/kernel_cache.h"
#include "nn/data/cifar10.h"
#include "nn/data/idx.h"
#ifndef ETCH_FUZZ_WITHOUT_TENSORS
#include "eager/tensor.h"
#include "nn/safetensors.h"
#endif
#include "runtime/config.h"
#include "runtime/error.h"
#include "tracer/graph.h"

namespace etch::fuzz {

namespace {

namespace fs = std::filesystem;

void demand(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "expected: %s\n", what);
  std::abort();
}

/// A folder of this process, gone at its end.
const fs::path& folder() {
  struct Folder {
    Folder() : path(fs::temp_directory_path() / ("etch_fuzz_" + std::to_string(getpid()))) {
      fs::create_directories(path);
      fs::permissions(path, fs::perms::owner_all);
    }
    ~Folder() {
      std::error_code ignored;
      fs::remove_all(path, ignored);
    }
    fs::path path;
  };
  static const Folder all;
  return all.path;
}

void write(const std::string& name, std::string_view bytes) {
  std::error_code ignored;
  fs::remove(folder() / name, ignored);  // file systems may flush a file that is cut and written anew
  std::ofstream(folder() / name, std::ios::binary) << bytes;
}

std::string_view text_of(std::span<const uint8_t> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

void parse_graph(std::span<const uint8_t> bytes) {
  Graph graph;
  try {
    graph = parse(text_of(bytes));
  } catch (const ValueError&) {
    return;
  }
  const std::string printed = print(graph);
  demand(print(parse(printed)) == printed, "what is printed parses to the same");
  try {
    verify(graph, "parse");
  } catch (const InternalError&) {
  }
}

void read_idx_file(std::span<const uint8_t> bytes) {
  if (bytes.empty()) return;
  // The first byte says what is read: a file of so many dimensions, or a data set cut in two at the second.
  const int mode = bytes[0] % 5;
  const std::string_view rest = text_of(bytes.subspan(1));
  try {
    if (mode < 4) {
      write("array", rest);
      const data::IdxArray array = data::read_idx(folder() / "array", mode + 1);
      int64_t count = 1;
      for (int64_t extent : array.extents) count *= extent;
      demand(count == static_cast<int64_t>(array.bytes.size()), "as many bytes as the extents say");
      return;
    }
    const size_t cut = rest.empty() ? 0 : std::min<size_t>(static_cast<uint8_t>(rest[0]), rest.size() - 1);
    write("train-images-idx3-ubyte", rest.substr(rest.empty() ? 0 : 1 + cut));
    write("train-labels-idx1-ubyte", rest.substr(rest.empty() ? 0 : 1, cut));
    check(data::load_idx(folder(), data::Split::Train), "idx");
  } catch (const Error&) {
  }
}

void read_cifar10(std::span<const uint8_t> bytes) {
  if (bytes.empty()) return;
  const std::string_view rest = text_of(bytes.subspan(1));
  const bool is_names = bytes[0] % 2;
  write("batches.meta.txt",
        is_names ? rest : "airplane\nautomobile\nbird\ncat\ndeer\ndog\nfrog\nhorse\nship\ntruck\n");
  write("test_batch.bin", is_names ? std::string(3073, '\1') : rest);
  try {
    const data::Dataset dataset = data::load_cifar10(folder(), data::Split::Test);
    check(dataset, "cifar10");
    demand(dataset.size() > 0 && dataset.classes.size() == 10, "pictures of ten classes");
  } catch (const Error&) {
  }
}

void find_kernel(std::span<const uint8_t> bytes) {
  if (bytes.empty()) return;
  const fs::path cache_folder = folder() / "cache";
  config().cache_dir = cache_folder;
  const auto cache = codegen::KernelCache::open();
  demand(cache.has_value(), "a cache folder");
  const codegen::Hash128 key = codegen::Hash128::of("key");
  const std::string_view rest = text_of(bytes.subspan(1));
  // The first byte: 0, any entry; 1, an entry with the right head; 2, a damaged library behind a right entry.
  const std::string entry = "cache/" + key.hex() + ".kernel";
  if (bytes[0] % 3 < 2) {
    write(entry, (bytes[0] % 3 ? "etch-kernel 1 " + key.hex() + " " : std::string()) + std::string(rest));
  } else {
    const std::string library = "library of a kernel";
    const std::string name =
        codegen::Hash128::of(library).hex() + "-" + std::to_string(library.size()) + ".so";
    write("cache/" + name, rest);
    write(entry, "etch-kernel 1 " + key.hex() + " " + name + "\n");
    demand(cache->find(key).has_value() == (rest == library), "only the whole library is found");
    return;
  }
  if (const auto path = cache->find(key))
    demand(fs::path(*path).parent_path() == cache_folder && fs::is_regular_file(*path),
           "a file of the cache");
}

#ifndef ETCH_FUZZ_WITHOUT_TENSORS
void read_safetensors(std::span<const uint8_t> bytes) {
  write("file", text_of(bytes));
  const std::string path = folder() / "file", copy = folder() / "copy";
  nn::NamedTensors tensors;
  nn::Metadata metadata, again;
  try {
    tensors = nn::load_safetensors(path, &metadata);
  } catch (const IoError&) {
    return;
  }
  nn::save_safetensors(copy, tensors, metadata);
  const nn::NamedTensors loaded = nn::load_safetensors(copy, &again);
  demand(loaded.size() == tensors.size() && again == metadata, "what is saved loads again");
}
#endif

constexpr Target kTargets[] = {
#ifndef ETCH_FUZZ_WITHOUT_TENSORS
    {"safetensors", read_safetensors},
#endif

    {"parse", parse_graph},
    {"idx", read_idx_file},
    {"cifar10", read_cifar10},
    {"kernel_cache", find_kernel}};

}  // namespace

std::span<const Target> targets() { return kTargets; }

const Target* find_target(std::string_view name) {
  for (const Target& target : kTargets)
    if (target.name == name) return &target;
  return nullptr;
}

}  // namespace etch::fuzz
