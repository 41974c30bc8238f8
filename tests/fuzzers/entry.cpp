// libFuzzer's way in; ETCH_FUZZ_TARGET names the target of this program.
#include "tests/fuzzers/targets.h"

#ifdef ETCH_FUZZ_TARGET
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const etch::fuzz::Target* const target = etch::fuzz::find_target(ETCH_FUZZ_TARGET);
  target->run({data, size});
  return 0;
}
#endif
