// Finds the C++ compiler and runs it, without a shell and with a private folder for temporary files.
#include "codegen/build_host.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "etch_build_config.h"
#include "runtime/config.h"
#include "runtime/error.h"

extern char** environ;

namespace etch::codegen {
namespace {

std::vector<std::string> words(std::string_view text) {
  std::vector<std::string> found;
  while (!text.empty()) {
    const size_t end = std::min(text.find(' '), text.size());
    if (end) found.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return found;
}

/// Starts a program whose output goes to the file `output`; -1 if it could not start.
pid_t start(const std::vector<std::string>& command, const std::string& output,
            const std::string& temporary) {
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  const std::string variable = "TMPDIR=" + temporary;
  std::vector<char*> environment;
  for (char** entry = environ; *entry; ++entry)
    if (std::strncmp(*entry, "TMPDIR=", 7) != 0) environment.push_back(*entry);
  environment.push_back(const_cast<char*>(variable.c_str()));
  environment.push_back(nullptr);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, output.c_str(), O_WRONLY | O_CREAT | O_TRUNC,
                                   0600);
  posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
  pid_t process = -1;
  const int status =
      posix_spawnp(&process, arguments[0], &actions, nullptr, arguments.data(), environment.data());
  posix_spawn_file_actions_destroy(&actions);
  return status == 0 ? process : -1;
}

/// True if the process ended with status 0.
bool finish(pid_t process) {
  if (process < 0) return false;
  int status = 0;
  while (waitpid(process, &status, 0) < 0)
    if (errno != EINTR) return false;
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

std::string describe_cpu() {
  std::string text, all;
  read_file("/proc/cpuinfo", &all);
  for (std::string_view rest = all; !rest.empty() && rest[0] != '\n';) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view row = rest.substr(0, end);
    for (std::string_view wanted : {"vendor_id", "cpu family", "model", "flags", "Features", "CPU "})
      if (row.starts_with(wanted)) text += join_text({row, "\n"});
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return text;
}

const HostCompiler* probe(const std::string& path) {
  const TemporaryFolder folder(temporary_root());
  const std::string output = folder.path() + "/version";
  auto* compiler = new HostCompiler;
  if (folder.path().empty() || !finish(start({path, "--version"}, output, folder.path())) ||
      !read_file(output, &compiler->version)) {
    delete compiler;
    return nullptr;
  }
  compiler->path = path;
  compiler->cpu = describe_cpu();
  // Windows of one memory may differ in type, hence -fno-strict-aliasing.
  compiler->flags = {"-x",
                     "c++",
                     "-std=c++17",
                     "-O3",
                     "-fPIC",
                     "-w",
                     "-fno-strict-aliasing",
                     "-fno-exceptions",
                     "-fno-rtti",
                     "-fno-asynchronous-unwind-tables"};
  const bool clang = compiler->version.find("clang") != std::string::npos;
  for (std::string& flag : words(ETCH_BUILD_NUMERIC_FLAGS " " ETCH_BUILD_MARCH_FLAGS))
    if (flag != "-fno-thread-jumps") compiler->flags.push_back(std::move(flag));
  if (!clang) compiler->flags.push_back("-fno-thread-jumps");
  return compiler;
}

}  // namespace

const HostCompiler* host_compiler() {
  const std::string& chosen = config().cxx;
  if (chosen == "none") return nullptr;
  static absl::Mutex* const mutex = new absl::Mutex;
  static auto* const known = new absl::flat_hash_map<std::string, const HostCompiler*>;
  const std::string path = chosen.empty() ? ETCH_BUILD_CXX : chosen;
  absl::MutexLock lock(mutex);
  const auto found = known->find(path);
  if (found != known->end()) return found->second;
  return known->emplace(path, probe(path)).first->second;
}

std::string temporary_root() {
  const char* variable = std::getenv("TMPDIR");
  return variable && *variable ? variable : "/tmp";
}

TemporaryFolder::TemporaryFolder(const std::string& parent) : path_(parent + "/etch-XXXXXX") {
  if (!mkdtemp(path_.data())) path_.clear();
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
}

void build_units(const HostCompiler& compiler, const std::string& folder, std::vector<BuildUnit>& units) {
  std::vector<pid_t> processes;
  for (size_t i = 0; i < units.size(); ++i) {
    const std::string base = join_text({folder, "/", static_cast<int>(i)});
    std::vector<std::string> command = {compiler.path};
    command.insert(command.end(), compiler.flags.begin(), compiler.flags.end());
    for (const char* flag : {"-shared", "-nostdlib", "-o"}) command.emplace_back(flag);
    command.push_back(base + ".so");
    command.push_back(base + ".cpp");
    const bool written = write_file(base + ".cpp", units[i].source);
    processes.push_back(written ? start(command, base + ".log", folder) : -1);
  }
  for (size_t i = 0; i < units.size(); ++i) {
    const std::string base = join_text({folder, "/", static_cast<int>(i)});
    if (finish(processes[i]))
      units[i].library = base + ".so";
    else if (!read_file(base + ".log", &units[i].errors) || units[i].errors.empty())
      units[i].errors = "the compiler did not run";
  }
}

bool read_file(const std::string& path, std::string* text) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  text->clear();
  char buffer[1 << 16];
  ssize_t count;
  while ((count = ::read(file, buffer, sizeof(buffer))) > 0) text->append(buffer, static_cast<size_t>(count));
  ::close(file);
  return count == 0;
}

bool write_file(const std::string& path, std::string_view text) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (file < 0) return false;
  while (!text.empty()) {
    const ssize_t count = ::write(file, text.data(), text.size());
    if (count <= 0) break;
    text.remove_prefix(static_cast<size_t>(count));
  }
  return ::close(file) == 0 && text.empty();
}

}  // namespace etch::codegen
