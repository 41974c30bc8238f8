// The verifier's rules, each broken once.
#include <gtest/gtest.h>

#include <string>

#include "runtime/error.h"
#include "tracer/graph.h"

namespace etch {
namespace {

const std::string kHead =
    "graph cpu slots 2\nbuffer %0 external 24\nbuffer %1 internal 24\nbuffer %2 internal 12\nbuffer %3 "
    "output "
    "24\n";
const std::string kWriteOutput = "neg(%0:f32[6]{1}) -> %3:f32[6]{1}\n";

void expect_broken(const std::string& nodes, std::string_view part) {
  try {
    verify(parse(kHead + nodes), "test");
    FAIL() << nodes;
  } catch (const InternalError& error) {
    EXPECT_NE(std::string_view(error.what()).find(part), std::string_view::npos) << error.what();
  }
}

TEST(Verify, AcceptsWhatIsRight) {
  EXPECT_NO_THROW(verify(parse(kHead + kWriteOutput), "test"));
  EXPECT_NO_THROW(verify(parse(kHead + "add(%0:f32[2,3]{3,1}@0, f32@1) -> %3:f32[2,3]{1,2}\n"), "test"));
  EXPECT_NO_THROW(verify(parse(kHead + "lt(%0:i64[3]{1}, i64@1) -> %1:bool[3]{1}\n" + kWriteOutput), "test"));
  EXPECT_NO_THROW(verify(parse(kHead + "fused(%0:f32[2,3]{3,1}, f32=1.0) -> %3:f32[3]{1} {\n"
                                       "add(%0:f32[2,3]{3,1}, f32=1.0) -> %1:f32[2,3]{3,1}\n"
                                       "sum<1,0>(%1:f32[2,3]{3,1}) -> %3:f32[3]{1}\n}\n"),
                         "test"));
}

TEST(Verify, PrefixesTheStageAndNamesTheNode) {
  expect_broken(kWriteOutput + "neg(%0:f32[7]{1}) -> %1:f32[6]{1}\n",
                "test: node 1 (neg): expected a window within the 24 bytes of %0");
}

TEST(Verify, WindowsAndSlots) {
  expect_broken("neg(%0:f32[6]{1}+1) -> %3:f32[6]{1}\n", "within the 24 bytes of %0");
  expect_broken("neg(%0:f32[6]{1}@2) -> %3:f32[6]{1}\n", "expected a slot below 2, got 2");
  expect_broken("neg(%0:f32[2]{9223372036854775807}) -> %3:f32[2]{1}\n", "within the 24 bytes");
  expect_broken("neg(%0:f32[6]{1}) -> %3:f32[6]{0}\n", "an output that does not overlap itself");
  expect_broken("neg(%0:f32[6]{1}) -> f32=1.0\n", "a tensor as output");
}

TEST(Verify, ShapeRules) {
  expect_broken("add(%0:f32[6]{1}) -> %3:f32[6]{1}\n", "expected 2 operands");
  expect_broken("add(%0:f32[6]{1}, %0:f32[5]{1}) -> %3:f32[6]{1}\n",
                "a call that fits: add: expected shapes that broadcast, got [6] and [5]");
  expect_broken("neg(%0:f32[6]{1}) -> %3:f32[5]{1}\n", "output 0 as f32[6], got f32[5]");
  expect_broken("neg(%0:f32[6]{1}) -> %3:i32[6]{1}\n", "output 0 as f32[6], got i32[6]");
  expect_broken("sgd_plain_step(%0:f32[6]{1}, %0:f32[6]{1}, f64=0.1, f64=0.0) -> %3:f32[6]{1}\n",
                "output 0 in the buffer of operand 0");
}

TEST(Verify, Order) {
  expect_broken("neg(%1:f32[6]{1}) -> %3:f32[6]{1}\n", "%1 to be written before it is read");
  expect_broken("neg(%0:f32[6]{1}) -> %1:f32[6]{1}\n", "the graph: expected output %3 to be written");
}

TEST(Verify, GroupsAreClosed) {
  expect_broken("fused() -> %3:f32[6]{1} {\nneg(%0:f32[6]{1}) -> %3:f32[6]{1}\n}\n",
                "%0, which neg reads, among the inputs");
  expect_broken("fused(%0:f32[6]{1}) -> %3:f32[6]{1} {\nadd(%0:f32[6]{1}, f32=1.0) -> %3:f32[6]{1}\n}\n",
                "every scalar among the inputs");
  expect_broken("fused(%0:f32[6]{1}) -> %1:f32[6]{1} {\nneg(%0:f32[6]{1}) -> %3:f32[6]{1}\n}\n",
                "%3, which neg writes, among the outputs");
  expect_broken("fused(%0:f32[6]{1}) -> %3:f32[6]{1}, %1:f32[6]{1} {\nneg(%0:f32[6]{1}) -> %3:f32[6]{1}\n}\n",
                "output %1 to be written by the body");
  expect_broken(
      "fused(%0:f32[6]{1}) -> %3:f32[6]{1} {\nneg(%0:f32[6]{1}) -> %1:f32[6]{1}\nneg(%1:f32[6]{1}) -> "
      "%3:f32[6]{1}\n}\nneg(%0:f32[6]{1}) -> %1:f32[6]{1}\n",
      "no use of %1, which lives inside node 0");
  expect_broken(
      "fused(%0:f32[2,3]{3,1}) -> %3:f32[2,2]{2,1} {\nmatmul(%0:f32[2,3]{3,1}, %0:f32[3,2]{2,1}) -> "
      "%3:f32[2,2]{2,1}\n}\n",
      "pointwise, generator and reduction nodes inside, got matmul");
}

TEST(Verify, TilesHoldProductsAndGroups) {
  const std::string head =
      "graph cpu slots 0\nbuffer %0 external 16\nbuffer %1 internal 16\nbuffer %2 output 16\n"
      "buffer %3 output 16\nbuffer %4 internal 16\n";
  const std::string m = ":f32[2,2]{2,1}", a = "%0" + m, square = "matmul(" + a + ", " + a + ") -> ";
  const auto broken = [&](const std::string& body, const std::string& after, std::string_view part) {
    const std::string text = head + "tiled(" + a + ") -> %2" + m + " {\n" + body + "}\n" + after + "neg(" +
                             a + ") -> %3" + m + "\n";
    try {
      verify(parse(text), "test");
      EXPECT_EQ(part, "");
    } catch (const InternalError& error) {
      EXPECT_TRUE(!part.empty() && std::string_view(error.what()).find(part) != std::string_view::npos)
          << error.what();
    }
  };
  const std::string inner = square + "%1" + m + "\n";
  const auto group = [&](const std::string& body) {
    return "fused(%1" + m + ") -> %2" + m + " {\n" + body + "}\n";
  };
  const std::string exp = "exp(%1" + m + ") -> %2" + m + "\n";
  broken(inner + group(exp), "", "");
  broken(inner + exp, "", "products and fused nodes inside, got exp");
  broken(inner + group(square + "%2" + m + "\n"), "",
         "pointwise, generator and reduction nodes inside, got matmul");
  broken(inner + group("exp(" + a + ") -> %2" + m + "\n"), "", "%0, which exp reads, among the inputs");
  broken(group(exp), "", "%1, which fused reads, among the inputs or written before");
  broken(inner + square + "%3" + m + "\n" + group(exp), "", "%3, which matmul writes, among the outputs");
  broken(inner, "", "output %2 to be written by the body");
  broken(inner + group(exp), "neg(" + a + ") -> %1" + m + "\n", "no use of %1, which lives inside node 0");
  broken("matmul(" + a + ", " + a + ") -> %1:f32[4]{1}\n" + group(exp), "", "output 0 as f32[2, 2]");
}

TEST(Verify, AGroupInsideATileKeepsItsOwn) {
  const std::string m = ":f32[2,2]{2,1}";
  const std::string text =
      "graph cpu slots 0\nbuffer %0 external 16\nbuffer %1 internal 16\nbuffer %2 output 16\nbuffer %3 "
      "internal 16\nbuffer %4 internal 16\ntiled(%0" +
      m + ") -> %2" + m + " {\nmatmul(%0" + m + ", %0" + m + ") -> %1" + m + "\nfused(%1" + m + ") -> %3" +
      m + " {\nexp(%1" + m + ") -> %4" + m + "\nneg(%4" + m + ") -> %3" + m + "\n}\nmatmul(%4" + m + ", %3" +
      m + ") -> %2" + m + "\n}\n";
  try {
    verify(parse(text), "test");
    FAIL() << text;
  } catch (const InternalError& error) {
    EXPECT_NE(
        std::string_view(error.what()).find("%4, which matmul reads, among the inputs or written before"),
        std::string_view::npos)
        << error.what();
  }
}

TEST(Graph, CoversBuffer) {
  const Graph graph = parse(kHead + "neg(%0:f32[2,3]{1,2}@0) -> %1:f32[5]{1}\n" + kWriteOutput);
  EXPECT_TRUE(covers_buffer(graph, graph.nodes[0].inputs[0]));
  EXPECT_FALSE(covers_buffer(graph, graph.nodes[0].outputs[0]));
}

}  // namespace
}  // namespace etch
