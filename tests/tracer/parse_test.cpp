// Graphs print and parse back; malformed text is refused with its line.
#include <gtest/gtest.h>

#include <random>
#include <string>

#include "runtime/error.h"
#include "tracer/graph.h"

namespace etch {
namespace {

constexpr const char* kGraph = R"(graph cpu slots 5
buffer %0 external 24 #0
buffer %1 internal 24
buffer %2 output 12
buffer %3 output 6 #1
mul(%0:f32[2,3]{3,1}@0, f32=2.5) -> %1:f32[2,3]{3,1}
add(%1:f32[2,3]{3,1}, f32@2) -> %1:f32[2,3]{3,1}
fused(%1:f32[2,3]{3,1}, f32=-0.0, f32=nan, f32=-inf) -> %2:f32[3]{1} {
  clamp(%1:f32[2,3]{3,1}, f32=-0.0, f32=nan) -> %1:f32[2,3]{3,1}
  sum<1,0>(%1:f32[2,3]{3,1}) -> %2:f32[3]{1}
}
copy(bool=true) -> %3:bool[]{}+5
conv2d<1,1,0,0,1,1,1,0,0>(%0:f32[1,1,1,1]{1,1,1,1}, %0:f32[1,1,1,1]{1,1,1,1}+1@3, _) -> %1:f32[1,1,1,1]{1,1,1,1}
)";

TEST(GraphText, PrintsAndParsesBack) { EXPECT_EQ(print(parse(kGraph)), kGraph); }

constexpr const char* kTiled = R"(graph cpu slots 2
buffer %0 external 24 #0
buffer %1 internal 16
buffer %2 internal 16
buffer %3 output 24 #1
buffer %4 internal 16
tiled(%0:f32[2,3]{3,1}, %0:f32[3,2]{1,3}, f32@1) -> %3:f32[2,3]{3,1} {
  matmul(%0:f32[2,3]{3,1}, %0:f32[3,2]{1,3}) -> %1:f32[2,2]{2,1}
  fused(%1:f32[2,2]{2,1}, f32@1) -> %2:f32[2,2]{2,1} {
    exp(%1:f32[2,2]{2,1}) -> %4:f32[2,2]{2,1}
    mul(%4:f32[2,2]{2,1}, f32@1) -> %2:f32[2,2]{2,1}
  }
  matmul(%2:f32[2,2]{2,1}, %0:f32[2,3]{3,1}) -> %3:f32[2,3]{3,1}
}
)";

TEST(GraphText, TilesHoldGroups) {
  EXPECT_EQ(print(parse(kTiled)), kTiled);
  EXPECT_NO_THROW(verify(parse(kTiled), "test"));
  const Graph graph = parse(kTiled);
  ASSERT_EQ(graph.nodes.size(), 1u);
  ASSERT_EQ(graph.nodes[0].group->body.size(), 3u);
  EXPECT_EQ(graph.nodes[0].group->body[1].group->body.size(), 2u);
  EXPECT_NE(print_dot(graph).find("tiled\\nmatmul\\nfused"), std::string::npos) << print_dot(graph);
}

TEST(GraphText, BlankLinesAndSpacesDoNotMatter) {
  EXPECT_EQ(
      print(parse("\n  graph   cpu slots 1\n\nbuffer %0 external 4\n  neg( %0:f32[]{} )->%0:f32[]{}\n")),
      "graph cpu slots 1\nbuffer %0 external 4\nneg(%0:f32[]{}) -> %0:f32[]{}\n");
}

TEST(GraphText, ScalarsKeepKindAndBits) {
  const auto round_trip = [](const std::string& scalar) {
    const std::string text =
        "graph cpu slots 0\nbuffer %0 output 8\ncopy(f64=" + scalar + ") -> %0:f64[]{}\n";
    return print(parse(text)) == text;
  };
  for (const char* scalar : {"1", "-7", "1.0", "0.1", "1e-05", "1.7976931348623157e+308", "true", "false",
                             "nan", "inf", "-0.0", "9223372036854775807"})
    EXPECT_TRUE(round_trip(scalar)) << scalar;
}

void expect_refused(const std::string& text, std::string_view part) {
  try {
    parse(text);
    FAIL() << text;
  } catch (const ValueError& error) {
    EXPECT_NE(std::string_view(error.what()).find(part), std::string_view::npos) << error.what();
  }
}

TEST(GraphText, RefusesWhatIsMalformed) {
  const std::string head = "graph cpu slots 1\nbuffer %0 external 4\n";
  expect_refused("", "parse: line 0: expected \"graph\", got an empty text");
  expect_refused("grph", "parse: line 1: expected \"graph\" at \"grph\"");
  expect_refused("graph tpu slots 1", "expected cpu or cuda");
  expect_refused("graph cpu slots 99999999999", "expected a number in range");
  expect_refused(head + "buffer %2 external 4", "parse: line 3: expected buffers in order");
  expect_refused(head + "buffer %1 extern 4", "expected external, output or internal, got extern");
  expect_refused(head + "foo() -> ", "expected the name of an op, got \"foo\"");
  expect_refused(head + "neg(%1:f32[]{}) -> %0:f32[]{}", "expected a buffer below %1, got %1");
  expect_refused(head + "neg(%0:f33[]{}) -> %0:f32[]{}", "got \"f33\"");
  expect_refused(head + "neg(%0:f32[1]{}) -> %0:f32[]{}", "expected as many strides as sizes");
  expect_refused(head + "neg(%0:f32[1,1,1,1,1,1,1,1,1]{}) -> %0:f32[]{}", "expected at most 8 dimensions");
  expect_refused(head + "neg(%0:f32[-1]{1}) -> %0:f32[]{}", "expected a number in range at \"-1]{1}");
  expect_refused(head + "neg(f32=1e999) -> %0:f32[]{}", "expected a scalar");
  expect_refused(head + "neg(f32) -> %0:f32[]{}", "expected \"=\" or \"@\"");
  expect_refused(head + "neg<1,2,3,4,5,6,7,8,9,1,2,3,4,5,6,7,8>(_) -> ", "expected at most 16 attributes");
  expect_refused(head + "neg(_) -> _ {", "expected a group on fused and tiled nodes only");
  expect_refused(head + "fused(_) -> _", "expected a group on fused and tiled nodes only");
  expect_refused(head + "fused(_) -> _ {\nneg(_) -> _", "expected \"}\" before the end");
  const std::string nested = "expected no group inside another but fused ones inside tiled ones";
  expect_refused(head + "fused(_) -> _ {\nfused(_) -> _ {", nested);
  expect_refused(head + "fused(_) -> _ {\ntiled(_) -> _ {", nested);
  expect_refused(head + "tiled(_) -> _ {\ntiled(_) -> _ {", nested);
  expect_refused(head + "tiled(_) -> _ {\nfused(_) -> _ {\nneg(_) -> _\n}", "expected \"}\" before the end");
  expect_refused(head + "tiled(_) -> _", "expected a group on fused and tiled nodes only");
  expect_refused(head + "}", "got \"}\" without a group");
  expect_refused(head + "neg(_) -> _ junk", "expected the end of the line at \"junk\"");
}

TEST(GraphText, SurvivesMutations) {
  std::mt19937 random(7);
  const std::string original = kGraph;
  const std::string alphabet = "%@+-=<>(){}[],:#0123456789 \nfub_";
  for (int round = 0; round < 20000; ++round) {
    std::string text = original;
    for (int edit = 0; edit < 1 + static_cast<int>(random() % 3); ++edit) {
      const size_t at = random() % text.size();
      switch (random() % 3) {
        case 0:
          text[at] = alphabet[random() % alphabet.size()];
          break;
        case 1:
          text.erase(at, 1 + random() % 4);
          break;
        default:
          text.insert(at, 1, alphabet[random() % alphabet.size()]);
      }
    }
    try {
      const Graph graph = parse(text);
      EXPECT_EQ(print(parse(print(graph))), print(graph));
      print_dot(graph);
      verify(graph, "fuzz");
    } catch (const ValueError&) {
    } catch (const InternalError&) {
    }
  }
}

TEST(GraphDot, NamesNodesAndEdges) {
  const std::string dot = print_dot(parse(kGraph));
  EXPECT_NE(dot.find("fused\\nclamp\\nsum<1,0>"), std::string::npos);
  EXPECT_NE(dot.find("n0 -> n1"), std::string::npos);
}

}  // namespace
}  // namespace etch
