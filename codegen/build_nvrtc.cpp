// NVRTC through dlopen: its few entry points are declared here, so that no header of it is needed.
#include "codegen/build_nvrtc.h"

#include <dlfcn.h>

#include "runtime/error.h"

namespace etch::codegen {
namespace {

using Program = void*;

struct Nvrtc {
  int (*create)(Program*, const char*, const char*, int, const char* const*, const char* const*) = nullptr;
  int (*destroy)(Program*) = nullptr;
  int (*compile)(Program, int, const char* const*) = nullptr;
  int (*log_size)(Program, size_t*) = nullptr;
  int (*log)(Program, char*) = nullptr;
  int (*cubin_size)(Program, size_t*) = nullptr;
  int (*cubin)(Program, char*) = nullptr;
  int (*ptx_size)(Program, size_t*) = nullptr;
  int (*ptx)(Program, char*) = nullptr;
  bool ok = false;
};

const Nvrtc& nvrtc() {
  static const Nvrtc* const functions = [] {
    auto* table = new Nvrtc;
    void* library = nullptr;
    for (const char* name :
         {"libnvrtc.so", "libnvrtc.so.13", "libnvrtc.so.12", "/usr/local/cuda/lib64/libnvrtc.so"})
      if ((library = dlopen(name, RTLD_NOW | RTLD_LOCAL))) break;
    if (!library) return table;
    table->ok = true;
    const auto load = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(library, name));
      table->ok = table->ok && function;
    };
    load(table->create, "nvrtcCreateProgram");
    load(table->destroy, "nvrtcDestroyProgram");
    load(table->compile, "nvrtcCompileProgram");
    load(table->log_size, "nvrtcGetProgramLogSize");
    load(table->log, "nvrtcGetProgramLog");
    load(table->cubin_size, "nvrtcGetCUBINSize");
    load(table->cubin, "nvrtcGetCUBIN");
    load(table->ptx_size, "nvrtcGetPTXSize");
    load(table->ptx, "nvrtcGetPTX");
    return table;
  }();
  return *functions;
}

std::string fetch(Program program, int (*size)(Program, size_t*), int (*get)(Program, char*)) {
  size_t bytes = 0;
  if (size(program, &bytes) != 0 || bytes == 0) return "";
  std::string text(bytes, '\0');
  return get(program, text.data()) == 0 ? text : "";
}

}  // namespace

bool nvrtc_available() { return nvrtc().ok; }

CudaBinary build_cuda(const std::string& source, std::string_view architecture) {
  if (!nvrtc_available()) return {"", "libnvrtc was not found"};
  const Nvrtc& api = nvrtc();
  Program program = nullptr;
  if (api.create(&program, source.c_str(), "etch_kernels.cu", 0, nullptr, nullptr) != 0)
    return {"", "nvrtcCreateProgram failed"};
  const std::string target = join_text({"--gpu-architecture=", architecture});
  const char* options[] = {target.c_str(), "--std=c++20", "--fmad=false"};
  const int status = api.compile(program, 3, options);
  CudaBinary result;
  result.log = fetch(program, api.log_size, api.log);
  if (status == 0)
    result.image = architecture.starts_with("sm_") ? fetch(program, api.cubin_size, api.cubin)
                                                   : fetch(program, api.ptx_size, api.ptx);
  api.destroy(&program);
  return result;
}

}  // namespace etch::codegen
