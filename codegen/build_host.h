// Running the C++ compiler on generated source.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace etch::codegen {

/// A working compiler with all that decides what it makes of a source.
struct HostCompiler {
  std::string path;
  std::string version;  ///< what --version prints
  std::vector<std::string> flags;
  std::string cpu;  ///< model and features of this machine: what -march=native stands for
};

/// The compiler that config().cxx or the build names; null if it is "none" or does not run. Never destroyed.
const HostCompiler* host_compiler();

/// A folder that is removed with all that is in it at the end of the scope.
class TemporaryFolder {
 public:
  /// Makes a private folder in `parent`; path() is empty if that failed.
  explicit TemporaryFolder(const std::string& parent);
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};
/// $TMPDIR or /tmp.
std::string temporary_root();

struct BuildUnit {
  std::string source;
  std::string library;  ///< path of the shared object, once built
  std::string errors;   ///< what the compiler said, if it failed
};
/// Compiles every unit into `folder`, each in a process of its own, all at once.
void build_units(const HostCompiler& compiler, const std::string& folder, std::vector<BuildUnit>& units);

/// Whole file; false if it cannot be read.
bool read_file(const std::string& path, std::string* text);
bool write_file(const std::string& path, std::string_view text);

}  // namespace etch::codegen
