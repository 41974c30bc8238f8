// Every row of the op table: eager kernels against the reference interpreter.
#include <gtest/gtest.h>

#include "tests/support/interpreted.h"

namespace etch::testing {
namespace {

TEST(OpSamples, AreWhatTheInterpreterSays) {
  for (const OpSample& sample : op_samples()) {
    SCOPED_TRACE(name(sample.op));
    const std::vector<Values> reference = interpret_sample(sample);
    const std::vector<Tensor> outputs = SampleCall(sample).run();
    ASSERT_EQ(outputs.size(), reference.size());
    for (size_t i = 0; i < outputs.size(); ++i) {
      EXPECT_VALUES(outputs[i], reference[i], sample.tolerance);
    }
  }
}

}  // namespace
}  // namespace etch::testing
