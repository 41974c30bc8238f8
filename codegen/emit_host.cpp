// The host dialect: functions over a range of iterations, for the C++ compiler.
#include "codegen/kernel.h"
#include "codegen/loop.h"
#include "runtime/error.h"

namespace etch {

extern const char kScalarMathSource[];

namespace codegen {
namespace {

constexpr std::string_view kSupport = R"text(
#if defined(__clang__)
#define ETCH_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#define ETCH_LANE_LOOP ETCH_INDEPENDENT
#else
#define ETCH_INDEPENDENT _Pragma("GCC ivdep")
#define ETCH_LANE_LOOP _Pragma("GCC unroll 1") _Pragma("GCC ivdep")
#endif
// In a loop over rows: or g++ runs two at a time, and then may not vectorise them.
#define ETCH_ROW_BY_ROW asm volatile("");
namespace etch::scalar {
// A part of a long loop is computed while a later one comes from memory.
constexpr i64 kPart = 512, kFetchFrom = 64 * kPart;
template <class T>
ETCH_FN void fetch(const T* from, i64 count) {
  for (i64 i = 0; i < count * static_cast<i64>(sizeof(T)); i += 64)
    __builtin_prefetch(reinterpret_cast<const char*>(from) + i);
}
// For writing: what both threads have read is taken from the other one at once.
template <class T>
ETCH_FN void fetch_to_write(const T* from, i64 count) {
  for (i64 i = 0; i < count * static_cast<i64>(sizeof(T)); i += 64)
    __builtin_prefetch(reinterpret_cast<const char*>(from) + i, 1);
}
}  // namespace etch::scalar
)text";

std::string open(const std::string& name, const LoopNest&, std::string_view) {
  return join_text(
      {"namespace etch::scalar {\nextern \"C\" void ", name,
       "(char* const* pointers, const i64* dims, const KernelScalar* scalars, i64 begin, i64 end) {\n"});
}

}  // namespace

const Dialect& host_dialect() {
  // Loops are promised to be independent rather than pointers to be distinct: windows may be the same one,
  // with an element read and then written by one iteration.
  static constexpr Dialect kDialect{
      open, "if (begin < end) {", "}\n}  // namespace etch::scalar\n", "ETCH_INDEPENDENT", kColumnTile, true,
      true};
  return kDialect;
}

const std::string& host_prelude() {
  static const std::string* const text =
      new std::string(join_text({kScalarMathSource, kSupport, op_definitions()}));
  return *text;
}

}  // namespace codegen
}  // namespace etch
