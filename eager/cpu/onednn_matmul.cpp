// Matrix products: the geometry is simplified; batches of small ones go to tile_product(), tiny ones to
// loops, the others to oneDNN, in the first layout with a fast kernel.
#include <algorithm>
#include <array>
#include <optional>

#include "eager/cpu/matmul_batched.h"
#include "eager/cpu/matmul_plain.h"
#include "eager/cpu/onednn_prepare.h"
#include "eager/cpu/onednn_program.h"
#include "runtime/error.h"

namespace etch::onednn {
namespace {

using dnnl::memory;

/// Multiplications up to which a loop beats the library's call (0.3 to 0.4 microseconds on one thread).
constexpr int64_t kTinyWork = 1024;

/// Strides of dimensions of size 1 carry no meaning: 0 lets later comparisons ignore them.
void drop_idle_strides(int64_t (&strides)[4], int64_t b0, int64_t b1, int64_t rows, int64_t columns) {
  const int64_t sizes[4] = {b0, b1, rows, columns};
  for (int d = 0; d < 4; ++d)
    if (sizes[d] == 1) strides[d] = 0;
}

/// The same product with as few batch dimensions as the strides allow, the remaining one second.
MatmulGeometry simplify(MatmulGeometry g) {
  drop_idle_strides(g.a_strides, g.batch[0], g.batch[1], g.m, g.k);
  drop_idle_strides(g.b_strides, g.batch[0], g.batch[1], g.k, g.n);
  drop_idle_strides(g.c_strides, g.batch[0], g.batch[1], g.m, g.n);
  auto all = [&](auto&& f) { return f(g.a_strides) && f(g.b_strides) && f(g.c_strides); };
  if (g.batch[1] == 1 || (g.batch[0] > 1 && all([&](auto& s) { return s[0] == s[1] * g.batch[1]; }))) {
    const bool inner = g.batch[1] == 1;
    g.batch[1] *= g.batch[0];
    g.batch[0] = 1;
    for (auto* s : {g.a_strides, g.b_strides, g.c_strides}) {
      if (inner) s[1] = s[0];
      s[0] = 0;
    }
  }
  // Rows of all batches against one matrix are one product.
  auto rows_follow = [&](const int64_t(&s)[4]) { return g.m == 1 || s[1] == s[2] * g.m; };
  if (g.batch[0] == 1 && g.batch[1] > 1 && g.b_strides[1] == 0 && rows_follow(g.a_strides) &&
      rows_follow(g.c_strides)) {
    for (auto* s : {g.a_strides, g.c_strides}) {
      if (g.m == 1) s[2] = s[1];
      s[1] = 0;
    }
    g.m *= g.batch[1];
    g.batch[1] = 1;
  }
  return g;
}

/// Column-major results are computed as c^T = b^T a^T.
MatmulGeometry transpose(const MatmulGeometry& g) {
  MatmulGeometry t = g;
  std::swap(t.m, t.n);
  std::swap(t.a, t.b);
  for (int d = 0; d < 2; ++d) {
    t.a_strides[d] = g.b_strides[d];
    t.b_strides[d] = g.a_strides[d];
    t.a_strides[2 + d] = g.b_strides[3 - d];
    t.b_strides[2 + d] = g.a_strides[3 - d];
    t.c_strides[2 + d] = g.c_strides[3 - d];
  }
  return t;
}

/// The product as it is computed.
struct Arranged {
  MatmulGeometry geometry;
  bool transposed;  // operands swapped

  explicit Arranged(const MatmulGeometry& given) : geometry(simplify(given)) {
    const MatmulGeometry& g = geometry;
    transposed = g.c_strides[3] != 1 && g.n > 1 && (g.c_strides[2] == 1 || g.m == 1) && !g.bias;
    if (transposed) geometry = transpose(g);
  }
};

bool is_tiny(const MatmulGeometry& g) {
  return g.a == DType::F32 && g.b == DType::F32 && g.c == DType::F32 &&
         g.batch[0] * g.batch[1] * g.m * g.n * g.k <= kTinyWork;
}

/// `strides` are those of drop_idle_strides(); batches of stride 0 get size 1, unless `repeated` names them:
/// the library wants one operand to have them all.
Operand operand(Base base, DType dtype, const MatmulGeometry& g, const int64_t (&strides)[4], int64_t rows,
                int64_t columns, std::array<bool, 2> repeated = {}) {
  Operand o{base, dtype, {}, {}, {}};
  const int first = g.batch[0] > 1 ? 0 : g.batch[1] > 1 ? 1 : 2;
  const int64_t sizes[4] = {g.batch[0], g.batch[1], rows, columns};
  for (int d = first; d < 4; ++d) {
    o.sizes.push_back(d < 2 && strides[d] == 0 && !repeated[d] ? 1 : sizes[d]);
    o.strides.push_back(strides[d]);
  }
  const size_t rank = o.sizes.size();
  o.dense_strides.assign(rank, 1);
  for (size_t d = rank - 1; d-- > 0;) o.dense_strides[d] = o.dense_strides[d + 1] * o.sizes[d + 1];
  // Any value will do for size 1; the library wants one that looks like a matrix with unit stride somewhere.
  // One row with gaps does not: oneDNN 3.7 computes wrong products of it, so it is copied.
  int64_t &row = o.strides[rank - 2], &column = o.strides[rank - 1];
  if (columns == 1 && rows == 1) {
    row = column = 1;
  } else if (columns == 1) {
    if (row == 1)
      column = rows;
    else
      column = 1;
  } else if (rows == 1) {
    row = column * columns;
  }
  int64_t extent = std::max(row * rows, column * columns);
  for (size_t d = rank - 2; d-- > 0;) {
    if (o.sizes[d] == 1) o.strides[d] = extent;
    extent = std::max(extent, o.strides[d] * o.sizes[d]);
  }
  return o;
}

bool is_matrix(const Operand& o) {
  const size_t rank = o.sizes.size();
  return o.strides[rank - 1] == 1 || o.strides[rank - 2] == 1;
}

dnnl::matmul::primitive_desc describe_primitive(const memory::desc& a, const memory::desc& b,
                                                const std::optional<memory::desc>& bias,
                                                const memory::desc& c) {
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
#if DNNL_VERSION_MAJOR >= 3
  if (bias) return {engine(), a, b, *bias, c, attr};
  return {engine(), a, b, c, attr};
#else
  if (bias) return {{a, b, *bias, c}, attr, engine()};
  return {{a, b, c}, attr, engine()};
#endif
}

std::shared_ptr<const Contraction> build_library(const MatmulGeometry& g, bool transposed,
                                                 const std::string& description) {
  const Operand a = operand(transposed ? Base::Second : Base::First, g.a, g, g.a_strides, g.m, g.k,
                            {g.b_strides[0] == 0, g.b_strides[1] == 0});
  const Operand b = operand(transposed ? Base::First : Base::Second, g.b, g, g.b_strides, g.k, g.n);
  const Operand c = operand(Base::Out, g.c, g, g.c_strides, g.m, g.n);
  Operand bias{Base::Bias, g.c, c.sizes, c.sizes, c.sizes};
  for (size_t d = 0; d < bias.sizes.size(); ++d) {
    if (d + 1 < bias.sizes.size()) bias.sizes[d] = 1;
    bias.strides[d] = bias.dense_strides[d] = d + 1 < bias.sizes.size() ? g.n : 1;
  }

  const DType wanted = arithmetic(description, g.a, g.b, g.c);
  struct Choice {
    dnnl::matmul::primitive_desc pd;
    memory::desc a, b, bias, c;
    DType in, out;
  };
  std::optional<Choice> choice;
  auto consider = [&](DType in, bool direct) {
    if (choice && !is_reference(choice->pd.impl_info_str())) return;
    const DType out = in == DType::BF16 && g.c == DType::BF16 ? DType::BF16 : DType::F32;
    auto layout = [&](const Operand& o, DType as) {
      memory::desc user;
      return direct && o.dtype == as && is_matrix(o) && o.describable(&user) ? user : o.dense(as);
    };
    try {
      Choice next{{}, layout(a, in), layout(b, in), bias.dense(out), layout(c, out), in, out};
      next.pd = describe_primitive(next.a, next.b, g.bias ? std::optional(next.bias) : std::nullopt, next.c);
      if (!choice || !is_reference(next.pd.impl_info_str())) choice = next;
    } catch (const dnnl::error&) {
      // The library has no kernel for this layout or dtype: the next one may have.
    }
  };
  for (DType in : {wanted, DType::F32}) {
    consider(in, true);
    consider(in, false);
  }
  ETCH_CHECK(choice, Error, description, ": oneDNN has no kernel for it");

  auto program = std::make_shared<Program>(description);
  program->set_implementation(choice->pd.impl_info_str());
  std::vector<std::pair<int, int>> arguments = {{DNNL_ARG_SRC, program->input(a, choice->a, choice->in)},
                                                {DNNL_ARG_WEIGHTS, program->input(b, choice->b, choice->in)},
                                                {DNNL_ARG_DST, program->output(c, choice->c, choice->out)}};
  if (g.bias) arguments.emplace_back(DNNL_ARG_BIAS, program->input(bias, choice->bias, choice->out));
  program->add_primitive(dnnl::matmul(choice->pd), std::move(arguments), choice->pd.scratchpad_desc());
  program->finish_output();
  return program;
}

/// Products over no terms: zeros, or the bias.
std::shared_ptr<const Contraction> build_empty(const MatmulGeometry& g, const std::string& description) {
  auto program = std::make_shared<Program>(description);
  program->set_implementation("plain");
  StridedCopy copy;
  const int64_t sizes[4] = {g.batch[0], g.batch[1], g.m, g.n};
  std::copy_n(sizes, 4, copy.sizes.begin());
  std::copy_n(g.c_strides, 4, copy.to_strides.begin());
  copy.from_strides[3] = 1;
  copy.from = copy.to = g.c;
  program->add_copy(copy, {g.bias ? Base::Bias : Base::Zero}, {Base::Out});
  return program;
}

}  // namespace

std::string describe(const MatmulGeometry& g) {
  return join_text({"matmul [", g.batch[0], ", ", g.batch[1], ", ", g.m, ", ", g.k, "] x [", g.k, ", ", g.n,
                    "] ", name(g.a), " ", name(g.b), " -> ", name(g.c)});
}

std::shared_ptr<const Contraction> build_matmul(const MatmulGeometry& geometry) {
  const std::string description = describe(geometry);
  const MatmulGeometry& given = geometry;
  ETCH_CHECK(std::min({given.batch[0], given.batch[1], given.m, given.n, given.k}) >= 0, ShapeError,
             description, ": expected sizes of at least 0");
  for (auto* strides : {given.a_strides, given.b_strides, given.c_strides})
    ETCH_CHECK(*std::min_element(strides, strides + 4) >= 0, ShapeError, description,
               ": expected strides of at least 0");
  const DType in = arithmetic(description, given.a, given.b, given.c);
  const int64_t results = given.batch[0] * given.batch[1] * given.m * given.n;
  if (results == 0 || given.k == 0) return build_empty(given, description);
  if ((in != DType::F32 && in != DType::BF16) || is_tiny(given)) return make_matmul_plain(given);
  const Arranged arranged(given);
  if (is_small_batch(arranged.geometry)) return make_matmul_batched(arranged.geometry, arranged.transposed);
  return build_library(arranged.geometry, arranged.transposed, description);
}

bool sums_in_order(const MatmulGeometry& geometry) {
  return !is_tiny(geometry) && is_small_batch(Arranged(geometry).geometry);
}

}  // namespace etch::onednn
