// The CUDA dialect: one thread an iteration, over a grid of any size.
#include "codegen/kernel.h"
#include "codegen/loop.h"
#include "runtime/error.h"

namespace etch {

extern const char kScalarMathSource[];

namespace codegen {
namespace {

int at_least_one(int count) { return count > 0 ? count : 1; }

std::string open(const std::string& name, const LoopNest& nest, std::string_view count) {
  const std::string arguments = join_text({name, "_arguments"});
  return join_text({"namespace etch::scalar {\nstruct ", arguments, " {\n  char* pointers[",
                    nest.pointers + 1, "];\n  i64 dims[", at_least_one(nest.arguments),
                    "];\n  KernelScalar scalars[", at_least_one(nest.scalars),
                    "];\n};\nextern \"C\" __global__ void ", name, "(const __grid_constant__ ", arguments,
                    " arguments, i64 iterations) {\n  char* const* const pointers = arguments.pointers;\n"
                    "  const i64* const dims = arguments.dims;\n  const KernelScalar* const scalars = "
                    "arguments.scalars;\n",
                    "  #define ETCH_COUNT ", count == "count" ? "iterations" : count, "\n"});
}

}  // namespace

const Dialect& cuda_dialect() {
  static constexpr Dialect kDialect{
      open,
      "for (i64 begin = i64(blockIdx.x) * blockDim.x + threadIdx.x, end = begin + 1; begin < (ETCH_COUNT); "
      "begin += i64(gridDim.x) * blockDim.x, end = begin + 1) {",
      "}\n#undef ETCH_COUNT\n}  // namespace etch::scalar\n",
      "",
      1,
      false,
      false};
  return kDialect;
}

const std::string& cuda_prelude() {
  static const std::string* const text = new std::string(join_text({kScalarMathSource, op_definitions()}));
  return *text;
}

}  // namespace codegen
}  // namespace etch
