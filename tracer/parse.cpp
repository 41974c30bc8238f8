// Reading the text form of graphs; the grammar stands in print.cpp.
#include <charconv>
#include <cstdlib>
#include <limits>

#include "runtime/error.h"
#include "tracer/graph.h"

namespace etch {
namespace {

bool is_word(char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_'; }

/// A cursor over the text of one line.
class Line {
 public:
  explicit Line(std::string_view text) : text_(text) { skip_spaces(); }

  bool done() const { return text_.empty(); }
  bool peek(char c) const { return !text_.empty() && text_.front() == c; }
  bool take(std::string_view token) {
    if (text_.substr(0, token.size()) != token) return false;
    text_.remove_prefix(token.size());
    skip_spaces();
    return true;
  }
  void expect(std::string_view token) {
    if (!take(token)) expected("\"" + std::string(token) + "\"");
  }
  std::string_view word() {
    size_t length = 0;
    while (length < text_.size() && is_word(text_[length])) ++length;
    if (!length) expected("a word");
    return cut(length);
  }
  int64_t integer(int64_t low = std::numeric_limits<int64_t>::min(),
                  int64_t high = std::numeric_limits<int64_t>::max()) {
    int64_t value = 0;
    const auto [end, error] = std::from_chars(text_.data(), text_.data() + text_.size(), value);
    if (error != std::errc() || value < low || value > high) expected("a number in range");
    cut(end - text_.data());
    return value;
  }
  int index() { return static_cast<int>(integer(0, std::numeric_limits<int>::max())); }
  /// true, 7, 2.5, nan, -inf.
  Scalar scalar() {
    size_t length = 0;
    while (length < text_.size() && std::string_view(",) ").find(text_[length]) == std::string_view::npos)
      ++length;
    const std::string token(cut(length));
    if (token == "true" || token == "false") return token == "true";
    const char* begin = token.data();
    const char* end = begin + token.size();
    int64_t whole = 0;
    if (const auto [stop, error] = std::from_chars(begin, end, whole); error == std::errc() && stop == end)
      return whole;
    double number = 0;
    if (const auto [stop, error] = std::from_chars(begin, end, number); error == std::errc() && stop == end)
      return number;
    expected("a scalar");
  }
  [[noreturn]] void expected(const std::string& what) const {
    fail<ValueError>("expected ", what, " at \"", text_.substr(0, 40), "\"");
  }

 private:
  std::string_view cut(size_t length) {
    const std::string_view head = text_.substr(0, length);
    text_.remove_prefix(length);
    skip_spaces();
    return head;
  }
  void skip_spaces() {
    while (!text_.empty() && (text_.front() == ' ' || text_.front() == '\r')) text_.remove_prefix(1);
  }
  std::string_view text_;
};

Dims parse_dims(Line& line, char close) {
  Dims dims;
  while (!line.peek(close)) {
    if (dims.size()) line.expect(",");
    dims.push_back(line.integer(0));
  }
  line.expect(std::string_view(&close, 1));
  return dims;
}

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Graph run() {
    try {
      header();
      while (next()) statement();
      ETCH_CHECK(open_.empty(), ValueError, "expected \"}\" before the end");
    } catch (const Error& error) {
      fail<ValueError>("parse: line ", number_, ": ", error.what());
    }
    return std::move(graph_);
  }

 private:
  /// The next line that is not blank.
  bool next() {
    while (!text_.empty()) {
      const size_t end = text_.find('\n');
      line_ = Line(text_.substr(0, end));
      text_.remove_prefix(end == std::string_view::npos ? text_.size() : end + 1);
      ++number_;
      if (!line_.done()) return true;
    }
    return false;
  }

  void header() {
    ETCH_CHECK(next(), ValueError, "expected \"graph\", got an empty text");
    line_.expect("graph");
    const std::string_view device = line_.word();
    if (device == "cuda") {
      graph_.device.type = DeviceType::Cuda;
      if (line_.take(":")) graph_.device.index = static_cast<int8_t>(line_.integer(0, 127));
    } else if (device != "cpu") {
      line_.expected("cpu or cuda");
    }
    line_.expect("slots");
    graph_.num_slots = line_.index();
    finish();
  }

  void statement() {
    if (line_.take("buffer ")) return buffer();
    if (line_.take("}")) {
      ETCH_CHECK(!open_.empty(), ValueError, "expected a node, got \"}\" without a group");
      Node closed = std::move(open_.back().node);
      closed.group = std::make_shared<NodeGroup>(std::move(open_.back().group));
      open_.pop_back();
      add(std::move(closed));
      return finish();
    }
    Node parsed = node();
    const bool opens = line_.take("{");
    finish();
    ETCH_CHECK(opens == (info(parsed.op).kind == OpKind::Group), ValueError,
               "expected a group on fused and tiled nodes only");
    ETCH_CHECK(!opens || open_.empty() || (open_.back().node.op == Op::tiled && parsed.op == Op::fused),
               ValueError, "expected no group inside another but fused ones inside tiled ones");
    if (opens)
      open_.push_back({std::move(parsed), {}});
    else
      add(std::move(parsed));
  }

  void add(Node node) { (open_.empty() ? graph_.nodes : open_.back().group.body).push_back(std::move(node)); }

  void buffer() {
    line_.expect("%");
    ETCH_CHECK(line_.index() == static_cast<int>(graph_.buffers.size()), ValueError,
               "expected buffers in order");
    const std::string_view kind = line_.word();
    GraphBuffer buffer;
    if (kind == "external")
      buffer.kind = GraphBuffer::Kind::External;
    else if (kind == "output")
      buffer.kind = GraphBuffer::Kind::Output;
    else
      ETCH_CHECK(kind == "internal", ValueError, "expected external, output or internal, got ", kind);
    buffer.bytes = line_.integer(0);
    if (line_.take("#")) buffer.number = line_.index();
    finish();
    graph_.buffers.push_back(buffer);
  }

  Node node() {
    Node node{parse_op(line_.word()), {}, {}, {}, nullptr};
    if (line_.take("<")) {
      do {
        ETCH_CHECK(node.attrs.count < Attrs::kMax, ValueError, "expected at most ", Attrs::kMax,
                   " attributes");
        node.attrs.values[node.attrs.count++] = line_.integer();
      } while (line_.take(","));
      line_.expect(">");
    }
    line_.expect("(");
    if (!line_.peek(')')) node.inputs = operands();
    line_.expect(")");
    line_.expect("->");
    if (!line_.done() && !line_.peek('{')) node.outputs = operands();
    return node;
  }

  std::vector<GraphOperand> operands() {
    std::vector<GraphOperand> list;
    do list.push_back(operand());
    while (line_.take(","));
    return list;
  }

  GraphOperand operand() {
    GraphOperand operand;
    if (line_.take("%")) return window();
    const std::string_view word = line_.word();
    if (word == "_") return operand;
    operand.kind = GraphOperand::Kind::Scalar;
    operand.dtype = parse_dtype(word);
    if (line_.take("@"))
      operand.slot = line_.index();
    else if (line_.take("="))
      operand.scalar = line_.scalar();
    else
      line_.expected("\"=\" or \"@\"");
    return operand;
  }

  GraphOperand window() {
    GraphOperand operand;
    operand.kind = GraphOperand::Kind::Tensor;
    operand.buffer = line_.index();
    ETCH_CHECK(operand.buffer < static_cast<int>(graph_.buffers.size()), ValueError,
               "expected a buffer below %", static_cast<int64_t>(graph_.buffers.size()), ", got %",
               operand.buffer);
    line_.expect(":");
    operand.dtype = parse_dtype(line_.word());
    line_.expect("[");
    operand.geometry.sizes = parse_dims(line_, ']');
    line_.expect("{");
    operand.geometry.strides = parse_dims(line_, '}');
    ETCH_CHECK(operand.geometry.strides.size() == operand.geometry.ndim(), ValueError,
               "expected as many strides as sizes");
    if (line_.take("+")) operand.offset = line_.integer(0);
    if (line_.take("@")) operand.slot = line_.index();
    return operand;
  }

  void finish() {
    if (!line_.done()) line_.expected("the end of the line");
  }

  std::string_view text_;
  Line line_{""};
  int number_ = 0;
  Graph graph_;
  struct Open {
    Node node;
    NodeGroup group;
  };
  std::vector<Open> open_;  ///< innermost last
};

}  // namespace

Graph parse(std::string_view text) { return Parser(text).run(); }

}  // namespace etch
