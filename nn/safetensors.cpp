// The safetensors format: 8 bytes with the header's length, a header in JSON, then the bytes of all tensors.
#include "nn/safetensors.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

namespace etch::nn {

namespace {

static_assert(std::endian::native == std::endian::little);

using Json = nlohmann::ordered_json;

constexpr uint64_t kMaxHeader = 100'000'000;
constexpr const char* kMetadata = "__metadata__";
constexpr const char* kDTypeNames[kNumDTypes] = {"BOOL", "U8", "I32", "I64", "F16", "BF16", "F32", "F64"};

std::string reason() { return std::strerror(errno); }

class File {
 public:
  File(const std::string& path, int flags) : fd_(::open(path.c_str(), flags | O_CLOEXEC, 0666)) {}
  ~File() {
    if (fd_ >= 0) ::close(fd_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  bool is_open() const { return fd_ >= 0; }
  int64_t size() const {
    struct stat status;
    return ::fstat(fd_, &status) == 0 && S_ISREG(status.st_mode) ? status.st_size : -1;
  }
  bool read(void* to, size_t count, int64_t from) const {
    for (char* at = static_cast<char*>(to); count > 0;) {
      const ssize_t got = ::pread(fd_, at, count, from);
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) return false;
      at += got;
      from += got;
      count -= static_cast<size_t>(got);
    }
    return true;
  }
  bool write(const void* from, size_t count) const {
    for (const char* at = static_cast<const char*>(from); count > 0;) {
      const ssize_t done = ::write(fd_, at, count);
      if (done < 0 && errno == EINTR) continue;
      if (done <= 0) return false;
      at += done;
      count -= static_cast<size_t>(done);
    }
    return true;
  }
  bool sync() const { return ::fsync(fd_) == 0; }

 private:
  int fd_;
};

size_t byte_count(const Tensor& tensor) {
  return static_cast<size_t>(tensor.numel()) * item_size(tensor.dtype());
}

// Wider dtypes first, so that every tensor lies aligned in the file.
std::vector<const NamedTensors::value_type*> in_file_order(const NamedTensors& tensors) {
  std::vector<const NamedTensors::value_type*> order;
  for (const auto& entry : tensors) order.push_back(&entry);
  std::stable_sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    return item_size(a->second.dtype()) > item_size(b->second.dtype());
  });
  return order;
}

std::string make_header(const std::vector<const NamedTensors::value_type*>& order, const Metadata& metadata) {
  Json header = Json::object();
  if (!metadata.empty()) header[kMetadata] = metadata;
  size_t offset = 0;
  for (const auto* entry : order) {
    const Tensor& tensor = entry->second;
    Json shape = Json::array();
    for (int64_t size : tensor.sizes()) shape.push_back(size);
    const size_t end = offset + byte_count(tensor);
    header[entry->first] = {{"dtype", kDTypeNames[static_cast<int>(tensor.dtype())]},
                            {"shape", shape},
                            {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const Json::exception&) {
    fail<ValueError>("save_safetensors: expected names and metadata in UTF-8, got other bytes");
  }
  text.resize((text.size() + 7) / 8 * 8, ' ');
  ETCH_CHECK(text.size() <= kMaxHeader, ValueError, "save_safetensors: expected a header of at most ",
             kMaxHeader, " bytes, got ", text.size());
  return text;
}

struct Entry {
  std::string name;
  DType dtype;
  Dims sizes;
  uint64_t begin, end;
};

// Reads and checks the header; everything it claims fits the file afterwards.
class Header {
 public:
  Header(const std::string& path, const File& file) : path_(path) {
    const int64_t size = file.size();
    require(size >= 0, "expected a regular file");
    require(size >= 8, "expected 8 bytes with the header's length, got a file of ", size, " bytes");
    uint64_t length = 0;
    require(file.read(&length, 8, 0), "cannot be read: ", reason());
    require(length <= kMaxHeader, "expected a header of at most ", kMaxHeader, " bytes, got ", length);
    require(length <= static_cast<uint64_t>(size) - 8, "expected a header of ", length,
            " bytes, got a file that ends after ", size - 8, " of them");
    std::string text(length, '\0');
    require(file.read(text.data(), length, 8), "cannot be read: ", reason());
    start_ = 8 + length;
    parse(text);
    check_cover(static_cast<uint64_t>(size) - start_);
  }

  const std::vector<Entry>& entries() const { return entries_; }
  const Metadata& metadata() const { return metadata_; }
  uint64_t start() const { return start_; }

 private:
  template <class... Pieces>
  void require(bool condition, const Pieces&... pieces) const {
    if (!condition) fail<IoError>("load_safetensors: ", path_, ": ", pieces...);
  }

  void parse(const std::string& text) {
    require(text.starts_with('{'), "expected a header that starts with {, got another file");
    std::vector<std::set<std::string>> keys;
    const auto check = [&](int depth, Json::parse_event_t event, Json& value) {
      require(depth <= 3, "expected a header of three levels, got a deeper one");
      if (event == Json::parse_event_t::object_start) keys.emplace_back();
      if (event == Json::parse_event_t::object_end) keys.pop_back();
      if (event == Json::parse_event_t::key) {
        const auto key = value.get<std::string>();
        require(keys.back().insert(key).second, "expected distinct keys in the header, got \"", key,
                "\" twice");
      }
      return true;
    };
    Json header;
    try {
      header = Json::parse(text, check);
    } catch (const Json::exception& error) {
      require(false, "expected a header in JSON, got an error: ", error.what());
    }
    for (const auto& [name, value] : header.items()) {
      if (name == kMetadata) {
        read_metadata(value);
      } else {
        read_entry(name, value);
      }
    }
  }

  void read_metadata(const Json& value) {
    require(value.is_object(), "expected texts by name as ", kMetadata, ", got ", value.type_name());
    for (const auto& [key, text] : value.items()) {
      require(text.is_string(), "expected a text as ", kMetadata, " \"", key, "\", got ", text.type_name());
      metadata_[key] = text.get<std::string>();
    }
  }

  void read_entry(const std::string& name, const Json& value) {
    require(value.is_object() && value.size() == 3 && value.contains("dtype") && value.contains("shape") &&
                value.contains("data_offsets"),
            "expected dtype, shape and data_offsets for \"", name, "\", got ", brief(value));
    const Json &dtype = value["dtype"], &shape = value["shape"], &offsets = value["data_offsets"];
    const std::string type = dtype.is_string() ? dtype.get<std::string>() : std::string();
    const auto known = std::find(std::begin(kDTypeNames), std::end(kDTypeNames), type);
    require(known != std::end(kDTypeNames),
            "expected one of BOOL, U8, I32, I64, F16, BF16, F32, F64 as dtype of \"", name, "\", got ",
            brief(dtype));
    Entry entry{name, static_cast<DType>(known - kDTypeNames), {}, 0, 0};
    require(is_list_of_sizes(shape) && shape.size() <= kMaxDims, "expected at most ", kMaxDims,
            " sizes of 0 or more as shape of \"", name, "\", got ", brief(shape));
    require(is_list_of_sizes(offsets) && offsets.size() == 2 && offsets[0] <= offsets[1],
            "expected begin and end as data_offsets of \"", name, "\", got ", brief(offsets));
    uint64_t count = item_size(entry.dtype);
    bool overflow = false;
    for (const Json& size : shape) {
      entry.sizes.push_back(size.get<int64_t>());
      overflow |= __builtin_mul_overflow(count, size.get<uint64_t>(), &count);
    }
    // No overflow, even of sizes beside one of 0.
    uint64_t span = 1;
    for (int64_t size : entry.sizes)
      overflow |= __builtin_mul_overflow(span, size ? static_cast<uint64_t>(size) : 1, &span) || span >> 56;
    entry.begin = offsets[0].get<uint64_t>();
    entry.end = offsets[1].get<uint64_t>();
    require(!overflow && entry.end - entry.begin == count, "expected data_offsets of ",
            overflow ? std::string("fewer than 2^56 elements") : std::to_string(count) + " bytes", " for \"",
            name, "\" of shape ", brief(shape), ", got ", brief(offsets));
    entries_.push_back(std::move(entry));
  }

  static bool is_list_of_sizes(const Json& value) {
    return value.is_array() && std::all_of(value.begin(), value.end(), [](const Json& size) {
             return size.is_number_unsigned() && size.get<uint64_t>() <= INT64_MAX;
           });
  }

  static std::string brief(const Json& value) {
    const std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
    return text.size() <= 80 ? text : text.substr(0, 77) + "...";
  }

  // The tensors' bytes follow each other without gaps or overlaps, from the first to the last of the file.
  void check_cover(uint64_t available) {
    std::stable_sort(entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) {
      return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
    });
    uint64_t at = 0;
    const Entry* before = nullptr;
    for (const Entry& entry : entries_) {
      require(entry.begin == at, "expected the bytes of \"", entry.name, "\" to begin at ", at,
              before ? " after those of \"" + before->name + "\"" : std::string(), ", got ", entry.begin,
              entry.begin < at ? ": they overlap" : ": a gap");
      require(entry.end <= available, "expected ", entry.end, " bytes of tensors (\"", entry.name,
              "\"), got a file with ", available, " of them");
      at = entry.end;
      before = &entry;
    }
    require(at == available, "expected ", at, " bytes of tensors, got a file with ", available, " of them");
  }

  std::string path_;
  std::vector<Entry> entries_;
  Metadata metadata_;
  uint64_t start_ = 0;
};

}  // namespace

void save_safetensors(const std::string& path, const NamedTensors& tensors, const Metadata& metadata) {
  std::set<std::string> names;
  for (const auto& [name, tensor] : tensors) {
    ETCH_CHECK(tensor.defined(), ValueError, "save_safetensors: expected a tensor for \"", name,
               "\", got an undefined one");
    ETCH_CHECK(name != kMetadata, ValueError, "save_safetensors: expected another name than ", kMetadata);
    ETCH_CHECK(names.insert(name).second, ValueError, "save_safetensors: expected distinct names, got \"",
               name, "\" twice");
  }
  const auto order = in_file_order(tensors);
  const std::string header = make_header(order, metadata);

  static std::atomic<int> count{0};
  const std::string beside = join_text({path, ".", static_cast<int64_t>(getpid()), ".", count++, ".tmp"});
  const auto require = [&](bool condition) {
    if (condition) return;
    const std::string why = reason();
    ::unlink(beside.c_str());
    fail<IoError>("save_safetensors: ", path, ": cannot be written: ", why);
  };
  try {
    const File file(beside, O_WRONLY | O_CREAT | O_EXCL);
    require(file.is_open());
    const uint64_t length = header.size();
    require(file.write(&length, 8) && file.write(header.data(), header.size()));
    NoGrad guard;
    for (const auto* entry : order) {
      const Tensor dense = entry->second.contiguous();
      const char* bytes = static_cast<const char*>(dense.storage().data_for_read()) +
                          dense.storage_offset() * static_cast<int64_t>(item_size(dense.dtype()));
      require(file.write(bytes, byte_count(dense)));
    }
    require(file.sync());
  } catch (...) {
    ::unlink(beside.c_str());
    throw;
  }
  require(::rename(beside.c_str(), path.c_str()) == 0);
}

NamedTensors load_safetensors(const std::string& path, Metadata* metadata) {
  const File file(path, O_RDONLY);
  ETCH_CHECK(file.is_open(), IoError, "load_safetensors: ", path, ": cannot be opened: ", reason());
  const Header header(path, file);
  NamedTensors tensors;
  for (const Entry& entry : header.entries()) {
    Tensor tensor = empty(entry.sizes, {.dtype = entry.dtype});
    char* bytes = static_cast<char*>(tensor.storage().raw_data());
    const size_t count = entry.end - entry.begin;
    ETCH_CHECK(file.read(bytes, count, static_cast<int64_t>(header.start() + entry.begin)), IoError,
               "load_safetensors: ", path, ": expected ", count, " bytes of \"", entry.name,
               "\", got a file that shrank or cannot be read");
    ETCH_CHECK(entry.dtype != DType::Bool ||
                   std::all_of(bytes, bytes + count, [](char c) { return c == 0 || c == 1; }),
               IoError, "load_safetensors: ", path, ": expected bytes of 0 and 1 in \"", entry.name,
               "\" of dtype BOOL, got others");
    tensors.emplace_back(entry.name, std::move(tensor));
  }
  if (metadata) *metadata = header.metadata();
  return tensors;
}

}  // namespace etch::nn
