// Every row of the op table: compiled against eager, bit for bit.
#include "tests/support/op_samples.h"

#include <gtest/gtest.h>

#include "jit/compile.h"
#include "runtime/config.h"

namespace etch::testing {
namespace {

// Calls the sample traced several times and compares each call with eager's.
void compare(const OpSample& sample) {
  const std::vector<Tensor> eager = SampleCall(sample).run();
  auto traced = compile([](SampleCall& call) { return call.run(); });
  for (int round = 0; round < 3; ++round) {
    SampleCall call(sample);
    const std::vector<Tensor> outputs = traced(call);
    ASSERT_EQ(outputs.size(), eager.size());
    for (size_t i = 0; i < outputs.size(); ++i)
      EXPECT_TRUE(same_bits(outputs[i], eager[i])) << "output " << i << " of call " << round;
  }
  EXPECT_GE(traced.compiled_calls(), 1) << traced.explain();
}

TEST(OpSamplesCompiled, GiveEagersBits) {
  for (const OpSample& sample : op_samples()) {
    SCOPED_TRACE(name(sample.op));
    compare(sample);
  }
}

TEST(OpSamplesCompiled, GiveEagersBitsWithoutFusion) {
  config().skip_passes = "fuse";
  for (const OpSample& sample : op_samples()) {
    SCOPED_TRACE(name(sample.op));
    compare(sample);
  }
  config().skip_passes.clear();
}

}  // namespace
}  // namespace etch::testing
