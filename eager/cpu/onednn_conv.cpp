// Convolutions by oneDNN: channels-last activations, weights in the layout its kernel asks for.
#include <algorithm>
#include <optional>

#include "eager/cpu/conv_plain.h"
#include "eager/cpu/onednn_prepare.h"
#include "eager/cpu/onednn_program.h"
#include "runtime/error.h"

namespace etch::onednn {
namespace {

using dnnl::memory;
using Tag = memory::format_tag;

/// Channels-last strides; dimensions of size 1 keep theirs, so every layout that is channels-last matches.
Operand activation(Base base, DType dtype, std::initializer_list<int64_t> sizes,
                   const int64_t (&strides)[4]) {
  Operand o{base, dtype, sizes, {strides, strides + 4}, {}};
  const int64_t c = o.sizes[1], h = o.sizes[2], w = o.sizes[3];
  o.dense_strides = {h * w * c, 1, w * c, c};
  for (int d = 0; d < 4; ++d)
    if (o.sizes[d] == 1) o.strides[d] = o.dense_strides[d];
  return o;
}

Operand plain(Base base, DType dtype, memory::dims sizes) {
  memory::dims strides(sizes.size(), 1);
  for (size_t d = sizes.size() - 1; d-- > 0;) strides[d] = strides[d + 1] * sizes[d + 1];
  return {base, dtype, sizes, strides, strides};
}

/// The operands of one op in the roles of the geometry, and where each comes from.
struct Operands {
  Operand x, weight, y, bias;
};

Operands operands(ConvOp op, const ConvGeometry& g) {
  const bool data = op == ConvOp::BackwardData, weights = op == ConvOp::BackwardWeights;
  memory::dims filter = {g.c_out, g.c_in / g.groups, g.kh, g.kw};
  if (g.groups > 1) filter = {g.groups, g.c_out / g.groups, g.c_in / g.groups, g.kh, g.kw};
  return {activation(data ? Base::Out : Base::First, g.x, {g.n, g.c_in, g.h, g.w}, g.x_strides),
          plain(weights ? Base::Out : Base::Second, g.weight, filter),
          activation(data      ? Base::First
                     : weights ? Base::Second
                               : Base::Out,
                     g.y, {g.n, g.c_out, g.h_out, g.w_out}, g.y_strides),
          plain(Base::Bias, g.y, {g.c_out})};
}

struct Layouts {
  memory::desc x, weight, y, bias;
  bool with_bias;
};

/// A primitive with the layouts it settled on.
struct Kernel {
  dnnl::primitive primitive;
  std::string name;
  memory::desc x, weight, y, scratchpad;
};

dnnl::primitive_attr user_scratchpad() {
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attr;
}

#define ETCH_HINT_none
#define ETCH_HINT_forward , forward
#if DNNL_VERSION_MAJOR >= 3
#define ETCH_PRIMITIVE_DESC(type, hint, ...) \
  type::primitive_desc(engine(), __VA_ARGS__ ETCH_HINT_##hint, user_scratchpad())
#else
#define ETCH_PRIMITIVE_DESC(type, hint, ...) \
  type::primitive_desc({__VA_ARGS__}, user_scratchpad(), engine() ETCH_HINT_##hint)
#endif

/// Throws dnnl::error when the library has no kernel for these layouts.
Kernel make_kernel(ConvOp op, const ConvGeometry& g, const Layouts& l) {
  constexpr auto kAlgorithm = dnnl::algorithm::convolution_direct;
  memory::dims stride(g.stride, g.stride + 2), dilation, before(g.padding, g.padding + 2), after;
  const int64_t in[2] = {g.h, g.w}, out[2] = {g.h_out, g.w_out}, taps[2] = {g.kh, g.kw};
  for (int d = 0; d < 2; ++d) {
    dilation.push_back(g.dilation[d] - 1);
    const int64_t reach = (taps[d] - 1) * g.dilation[d] + 1;
    const bool symmetric = (in[d] + 2 * g.padding[d] - reach) / g.stride[d] + 1 == out[d];
    after.push_back(symmetric ? g.padding[d] : (out[d] - 1) * g.stride[d] + reach - in[d] - g.padding[d]);
  }

  auto settle = [](const auto& pd, const dnnl::primitive& primitive, const memory::desc& x,
                   const memory::desc& weight, const memory::desc& y) {
    return Kernel{primitive, pd.impl_info_str(), x, weight, y, pd.scratchpad_desc()};
  };
  if (op == ConvOp::Forward && l.with_bias) {
    const auto pd =
        ETCH_PRIMITIVE_DESC(dnnl::convolution_forward, none, dnnl::prop_kind::forward_training, kAlgorithm,
                            l.x, l.weight, l.bias, l.y, stride, dilation, before, after);
    return settle(pd, dnnl::convolution_forward(pd), pd.src_desc(), pd.weights_desc(), pd.dst_desc());
  }
  // The hint of the backward passes: same layouts, all in the arithmetic's dtype.
  auto hint = [&](const memory::desc& x, const memory::desc& weight, const memory::desc& y) {
    return ETCH_PRIMITIVE_DESC(dnnl::convolution_forward, none, dnnl::prop_kind::forward_training, kAlgorithm,
                               x, weight, y, stride, dilation, before, after);
  };
  const auto forward = hint(l.x, l.weight, l.y);
  if (op == ConvOp::Forward)
    return settle(forward, dnnl::convolution_forward(forward), forward.src_desc(), forward.weights_desc(),
                  forward.dst_desc());
  if (op == ConvOp::BackwardData) {
    const auto pd = ETCH_PRIMITIVE_DESC(dnnl::convolution_backward_data, forward, kAlgorithm, l.x, l.weight,
                                        l.y, stride, dilation, before, after);
    return settle(pd, dnnl::convolution_backward_data(pd), pd.diff_src_desc(), pd.weights_desc(),
                  pd.diff_dst_desc());
  }
  const auto pd = ETCH_PRIMITIVE_DESC(dnnl::convolution_backward_weights, forward, kAlgorithm, l.x, l.weight,
                                      l.y, stride, dilation, before, after);
  return settle(pd, dnnl::convolution_backward_weights(pd), pd.src_desc(), pd.diff_weights_desc(),
                pd.diff_dst_desc());
}

std::shared_ptr<const Contraction> build_library(ConvOp op, const ConvGeometry& g, DType wanted,
                                                 const std::string& description) {
  const Operands o = operands(op, g);
  const DType result = op == ConvOp::Forward ? g.y : op == ConvOp::BackwardData ? g.x : g.weight;
  struct Choice {
    Kernel kernel;
    memory::desc bias;
    DType in, out;
  };
  std::optional<Choice> choice;
  auto consider = [&](DType in, Tag tag) {
    if (choice && !is_reference(choice->kernel.name.c_str())) return;
    const DType out = in == DType::BF16 && result == DType::BF16 ? DType::BF16 : DType::F32;
    auto dtype_of_role = [&](Base base) { return library_dtype(base == Base::Out ? out : in); };
    auto layout = [&](const Operand& a, Tag as) { return memory::desc(a.sizes, dtype_of_role(a.base), as); };
    const Layouts layouts{layout(o.x, tag), layout(o.weight, Tag::any), layout(o.y, tag),
                          memory::desc(o.bias.sizes, library_dtype(out), Tag::x), g.bias};
    try {
      Choice next{make_kernel(op, g, layouts), layouts.bias, in, out};
      if (!choice || !is_reference(next.kernel.name.c_str())) choice = std::move(next);
    } catch (const dnnl::error&) {
      // The library has no kernel for this layout or dtype: the next one may have.
    }
  };
  for (DType in : {wanted, DType::F32})
    for (Tag tag : {Tag::nhwc, Tag::any, Tag::nchw}) consider(in, tag);
  ETCH_CHECK(choice, Error, description, ": oneDNN has no kernel for it");

  const Kernel& kernel = choice->kernel;
  auto program = std::make_shared<Program>(description);
  program->set_implementation(kernel.name.c_str());
  auto bind = [&](const Operand& a, const memory::desc& desc) {
    return a.base == Base::Out ? program->output(a, desc, choice->out) : program->input(a, desc, choice->in);
  };
  const int x = bind(o.x, kernel.x), weight = bind(o.weight, kernel.weight), y = bind(o.y, kernel.y);
  std::vector<std::pair<int, int>> arguments;
  if (op == ConvOp::Forward) arguments = {{DNNL_ARG_SRC, x}, {DNNL_ARG_WEIGHTS, weight}, {DNNL_ARG_DST, y}};
  if (op == ConvOp::BackwardData)
    arguments = {{DNNL_ARG_DIFF_SRC, x}, {DNNL_ARG_WEIGHTS, weight}, {DNNL_ARG_DIFF_DST, y}};
  if (op == ConvOp::BackwardWeights)
    arguments = {{DNNL_ARG_SRC, x}, {DNNL_ARG_DIFF_WEIGHTS, weight}, {DNNL_ARG_DIFF_DST, y}};
  if (g.bias) arguments.emplace_back(DNNL_ARG_BIAS, program->input(o.bias, choice->bias, choice->out));
  program->add_primitive(kernel.primitive, std::move(arguments), kernel.scratchpad);
  program->finish_output();
  return program;
}

/// Sums over no terms: zeros, or the bias.
std::shared_ptr<const Contraction> build_empty(ConvOp op, const ConvGeometry& g,
                                               const std::string& description) {
  auto program = std::make_shared<Program>(description);
  program->set_implementation("plain");
  StridedCopy copy;
  auto target = [&](std::initializer_list<int64_t> sizes, const int64_t(&strides)[4], DType dtype) {
    std::copy(sizes.begin(), sizes.end(), copy.sizes.begin());
    std::copy_n(strides, 4, copy.to_strides.begin());
    copy.from = copy.to = dtype;
  };
  if (op == ConvOp::Forward) target({g.n, g.c_out, g.h_out, g.w_out}, g.y_strides, g.y);
  if (op == ConvOp::BackwardData) target({g.n, g.c_in, g.h, g.w}, g.x_strides, g.x);
  if (op == ConvOp::BackwardWeights)
    target({g.c_out * (g.c_in / g.groups) * g.kh * g.kw}, {1, 1, 1, 1}, g.weight);
  copy.from_strides[1] = 1;
  program->add_copy(copy, {g.bias ? Base::Bias : Base::Zero}, {Base::Out});
  return program;
}

void check_sizes(const ConvGeometry& g, const std::string& description) {
  ETCH_CHECK(std::min({g.n, g.c_in, g.h, g.w, g.c_out, g.h_out, g.w_out}) >= 0, ShapeError, description,
             ": expected sizes of at least 0");
  ETCH_CHECK(std::min({g.kh, g.kw, g.groups, g.stride[0], g.stride[1], g.dilation[0], g.dilation[1]}) >= 1,
             ShapeError, description, ": expected kernel, stride, dilation and groups of at least 1");
  ETCH_CHECK(g.padding[0] >= 0 && g.padding[1] >= 0, ShapeError, description,
             ": expected padding of at least 0");
  ETCH_CHECK(g.c_in % g.groups == 0 && g.c_out % g.groups == 0, ShapeError, description,
             ": expected channels divisible by groups ", g.groups, ", got ", g.c_in, " and ", g.c_out);
  for (auto* strides : {g.x_strides, g.y_strides})
    ETCH_CHECK(*std::min_element(strides, strides + 4) >= 0, ShapeError, description,
               ": expected strides of at least 0");
}

}  // namespace

std::string describe(ConvOp op, const ConvGeometry& g) {
  const char* names[] = {"conv2d", "conv2d backward data", "conv2d backward weights"};
  return join_text({names[static_cast<int>(op)],
                    " x [",
                    g.n,
                    ", ",
                    g.c_in,
                    ", ",
                    g.h,
                    ", ",
                    g.w,
                    "] ",
                    name(g.x),
                    ", weight [",
                    g.c_out,
                    ", ",
                    g.groups == 0 ? 0 : g.c_in / g.groups,
                    ", ",
                    g.kh,
                    ", ",
                    g.kw,
                    "] ",
                    name(g.weight),
                    ", y [",
                    g.n,
                    ", ",
                    g.c_out,
                    ", ",
                    g.h_out,
                    ", ",
                    g.w_out,
                    "] ",
                    name(g.y),
                    ", stride ",
                    g.stride[0],
                    "x",
                    g.stride[1],
                    ", padding ",
                    g.padding[0],
                    "x",
                    g.padding[1],
                    ", dilation ",
                    g.dilation[0],
                    "x",
                    g.dilation[1],
                    ", groups ",
                    g.groups});
}

std::shared_ptr<const Contraction> build_conv(ConvOp op, const ConvGeometry& geometry) {
  ConvGeometry g = geometry;
  g.bias = g.bias && op == ConvOp::Forward;
  const std::string description = describe(op, g);
  check_sizes(g, description);
  const DType first = op == ConvOp::BackwardData ? g.y : g.x;
  const DType second = op == ConvOp::BackwardWeights ? g.y : g.weight;
  const DType out = op == ConvOp::Forward ? g.y : op == ConvOp::BackwardData ? g.x : g.weight;
  const DType in = arithmetic(description, first, second, out);
  if (g.n * g.c_in * g.h * g.w == 0 || g.n * g.c_out * g.h_out * g.w_out == 0)
    return build_empty(op, g, description);
  if (in != DType::F32 && in != DType::BF16) return make_conv_plain(op, g);
  return build_library(op, g, in, description);
}

}  // namespace etch::onednn
