// What composites expand to.
#include "tracer/composites.h"

#include <gtest/gtest.h>

#include <string>

namespace etch {
namespace {

std::string expanded(const std::string& text) {
  const Graph graph = expand_composites(parse(text));
  verify(graph, "expanded");
  const std::string printed = print(graph);
  return printed.substr(printed.find('\n', printed.rfind("buffer ")) + 1);
}

TEST(Composites, SoftmaxIsFivePrimitives) {
  EXPECT_EQ(expanded("graph cpu slots 0\nbuffer %0 external 24\nbuffer %1 output 24\n"
                     "softmax<1>(%0:f32[2,3]{3,1}) -> %1:f32[2,3]{3,1}\n"),
            R"(amax<2,1>(%0:f32[2,3]{3,1}) -> %2:f32[2,1]{1,1}
sub(%0:f32[2,3]{3,1}, %2:f32[2,1]{1,1}) -> %3:f32[2,3]{3,1}
exp(%3:f32[2,3]{3,1}) -> %4:f32[2,3]{3,1}
sum<2,1>(%4:f32[2,3]{3,1}) -> %5:f32[2,1]{1,1}
div(%4:f32[2,3]{3,1}, %5:f32[2,1]{1,1}) -> %1:f32[2,3]{3,1}
)");
}

TEST(Composites, HalvesAreCastOnceAtEachEnd) {
  EXPECT_EQ(expanded("graph cpu slots 0\nbuffer %0 external 8\nbuffer %1 external 8\nbuffer %2 output 8\n"
                     "softmax_grad<0>(%0:bf16[4]{1}, %1:bf16[4]{1}) -> %2:bf16[4]{1}\n"),
            R"(copy(%0:bf16[4]{1}) -> %3:f32[4]{1}
copy(%1:bf16[4]{1}) -> %4:f32[4]{1}
mul(%3:f32[4]{1}, %4:f32[4]{1}) -> %5:f32[4]{1}
sum<1,1>(%5:f32[4]{1}) -> %6:f32[1]{1}
sub(%3:f32[4]{1}, %6:f32[1]{1}) -> %7:f32[4]{1}
mul(%4:f32[4]{1}, %7:f32[4]{1}) -> %8:f32[4]{1}
copy(%8:f32[4]{1}) -> %2:bf16[4]{1}
)");
}

TEST(Composites, CrossEntropyNeedsNoGather) {
  EXPECT_EQ(expanded("graph cpu slots 0\nbuffer %0 external 24\nbuffer %1 external 16\nbuffer %2 output 8\n"
                     "buffer %3 output 8\ncross_entropy<-100>(%0:f32[2,3]{3,1}, %1:i64[2]{1}) -> "
                     "%2:f32[2]{1}, %3:f32[2]{1}\n"),
            R"(amax<2,1>(%0:f32[2,3]{3,1}) -> %4:f32[2,1]{1,1}
sub(%0:f32[2,3]{3,1}, %4:f32[2,1]{1,1}) -> %5:f32[2,3]{3,1}
exp(%5:f32[2,3]{3,1}) -> %6:f32[2,3]{3,1}
sum<2,1>(%6:f32[2,3]{3,1}) -> %7:f32[2,1]{1,1}
log(%7:f32[2,1]{1,1}) -> %8:f32[2,1]{1,1}
add(%8:f32[2,1]{1,1}, %4:f32[2,1]{1,1}) -> %3:f32[2,1]{1,1}
arange<3>(i64=0, i64=1) -> %9:i64[3]{1}
eq(%9:i64[3]{1}, %1:i64[2,1]{1,1}) -> %10:bool[2,3]{3,1}
where(%10:bool[2,3]{3,1}, %0:f32[2,3]{3,1}, f32=0.0) -> %11:f32[2,3]{3,1}
sum<2,1>(%11:f32[2,3]{3,1}) -> %12:f32[2,1]{1,1}
sub(%3:f32[2,1]{1,1}, %12:f32[2,1]{1,1}) -> %13:f32[2,1]{1,1}
eq(%1:i64[2,1]{1,1}, i64=-100) -> %14:bool[2,1]{1,1}
where(%14:bool[2,1]{1,1}, f32=0.0, %13:f32[2,1]{1,1}) -> %2:f32[2,1]{1,1}
)");
}

TEST(Composites, SgdWritesItsBufferAndThenTheParameter) {
  EXPECT_EQ(
      expanded("graph cpu slots 1\nbuffer %0 external 8\nbuffer %1 external 8\nbuffer %2 external 8\n"
               "sgd_step<0>(%0:f32[2]{1}, %1:f32[2]{1}, %2:f32[2]{1}, f64@0, f64=0.5, f64=1.0, f64=0.25) "
               "-> %0:f32[2]{1}, %2:f32[2]{1}\n"),
      R"(mul(%0:f32[2]{1}, f32=0.25) -> %3:f32[2]{1}
add(%1:f32[2]{1}, %3:f32[2]{1}) -> %4:f32[2]{1}
mul(%2:f32[2]{1}, f32=0.5) -> %5:f32[2]{1}
mul(%4:f32[2]{1}, f32=1.0) -> %6:f32[2]{1}
add(%5:f32[2]{1}, %6:f32[2]{1}) -> %2:f32[2]{1}
mul(%2:f32[2]{1}, f32@0) -> %7:f32[2]{1}
sub(%0:f32[2]{1}, %7:f32[2]{1}) -> %0:f32[2]{1}
)");
}

TEST(Composites, EmptyOutputsNeedNothing) {
  EXPECT_EQ(expanded("graph cpu slots 0\nbuffer %0 external 0\nbuffer %1 output 0\n"
                     "softmax<1>(%0:f32[2,0]{1,1}) -> %1:f32[2,0]{1,1}\n"),
            "");
}

}  // namespace
}  // namespace etch
