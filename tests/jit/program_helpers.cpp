// The helpers of random programs.
#include "tests/jit/program_helpers.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <typeinfo>

#include "eager/function.h"
#include "nn/optim.h"

namespace etch::fuzz {

namespace {
bool broadcast_together(const Dims& a, const Dims& b) {
  for (int i = 1; i <= std::min(a.size(), b.size()); ++i) {
    const int64_t x = a[a.size() - i], y = b[b.size() - i];
    if (x != y && x != 1 && y != 1) return false;
  }
  return true;
}
int64_t wrap(int64_t number, int64_t count) { return count > 0 ? ((number % count) + count) % count : 0; }
}  // namespace

void note(World& w, const Error& error) {
  double hash = 0;
  const auto add = [&](const char* text) {
    for (; *text; ++text) hash = std::fmod(hash * 31 + *text, 1e9);
  };
  add(typeid(error).name());
  // In others' messages numbers may differ: versions count from other starts.
  if (dynamic_cast<const IndexError*>(&error)) add(error.what());
  w.log.push_back(hash);
  ++totals().errors;
}

bool is_positive(const Tensor& x) {
  try {
    return x.to(DType::F64).sum().item<double>() > 0;
  } catch (const Error&) {
    return false;
  }
}

Tensor fit(const Tensor& x, const Tensor& like) {
  return broadcast_together(x.sizes(), like.sizes()) ? x : x.sum();
}

Tensor into(const Tensor& x, const Tensor& like) {
  static constexpr DType kAll[] = {DType::F32,  DType::F64, DType::I32,  DType::I64,
                                   DType::Bool, DType::F16, DType::BF16, DType::U8};
  const Tensor fitted = can_broadcast_to(x.sizes(), like.sizes()) ? x : x.sum();
  for (int i = 0; i < 8; ++i)
    if (kAll[i] == like.dtype()) return cast(fitted, i);
  return fitted;
}

Tensor floating(const Tensor& x) { return is_floating(x.dtype()) ? x : x.to(DType::F32); }

Tensor cast(const Tensor& x, int64_t number) {
  static constexpr DType kAll[] = {DType::F32,  DType::F64, DType::I32,  DType::I64,
                                   DType::Bool, DType::F16, DType::BF16, DType::U8};
  const DType to = kAll[wrap(number, 8)];
  if (is_floating(x.dtype()) && !is_floating(to) && to != DType::Bool)
    return where(x.isnan(), 0.0, x.clamp(to == DType::U8 ? 0 : -100, 100)).to(to);
  return x.to(to);
}

Tensor without_zeros(const Tensor& x) {
  return x.dtype() == DType::Bool ? logical_or(x, logical_not(x)).to(DType::I32) : where(x == 0, 3, x);
}

double special(int64_t number) {
  static const double kSpecial[] = {std::nan(""), -0.0,  0.0, std::numeric_limits<double>::infinity(),
                                    1e-42,        1e300, -2.0};
  return kSpecial[wrap(number, 7)];
}

int64_t axis(const Tensor& x, int64_t number) { return wrap(number, x.ndim()); }
Tensor target(const Tensor& x) { return x.detach(); }
Tensor param(World& w, int64_t number) {
  return w.params[static_cast<size_t>(wrap(number, static_cast<int64_t>(w.params.size())))];
}
Tensor buffer(World& w, int64_t number) {
  return w.buffers[static_cast<size_t>(wrap(number, static_cast<int64_t>(w.buffers.size())))];
}

Tensor window(const Tensor& x, int64_t number, int64_t shift) {
  if (x.ndim() == 0) return x;
  const int64_t at = axis(x, number), count = x.size(at), length = (count + 1) / 2;
  const int64_t start = wrap(shift, count - length + 1);
  return x.slice(at, start, start + length);
}

Dims and_last(const Tensor& x, int64_t count) {
  Dims sizes = x.sizes();
  sizes.push_back(count);
  return sizes;
}

void shift_add(Tensor x, int64_t number) {
  if (x.ndim() == 0) return;
  const int64_t at = axis(x, number), count = x.size(at);
  Tensor late = x.slice(at, 1, count);
  late.add_(x.slice(at, 0, std::max<int64_t>(count - 1, 0)));
}

Tensor positions(const Tensor& x, int64_t number, int64_t shift) {
  std::vector<int64_t> list;
  const int64_t count = x.ndim() ? x.size(axis(x, number)) : 0;
  for (int64_t i = 0; i < 3 && count > 0; ++i) list.push_back(wrap(i * 5 + shift, count));
  return from_vector(list);
}

Tensor gathered(const Tensor& x, int64_t number, int64_t shift) {
  if (x.numel() == 0 || x.ndim() == 0) return x;
  std::vector<int64_t> list;
  for (int64_t i = 0; i < x.numel(); ++i) list.push_back(wrap(i * 3 + shift, x.size(axis(x, number))));
  return x.gather(axis(x, number), from_vector(list, x.sizes()));
}

Tensor scattered(const Tensor& x, const Tensor& source, int64_t number, int64_t shift) {
  if (x.numel() == 0 || x.ndim() == 0) return x;
  std::vector<int64_t> list;
  for (int64_t i = 0; i < x.numel(); ++i) list.push_back(wrap(i * 3 + shift, x.size(axis(x, number))));
  const Tensor values = into(source, x).expand(x.sizes());
  return x.scatter_add(axis(x, number), from_vector(list, x.sizes()), values);
}

Tensor rows(const Tensor& x) {
  if (x.numel() == 0) return zeros({2, 3});
  const Tensor y = cast(x, 0);
  return y.ndim() == 0 ? y.reshape({1, 1}) : y.reshape({-1, y.size(-1)});
}

// Positions from outside, or made by the body: they are checked at different times.
Tensor positions(const std::vector<int64_t>& list, int64_t number) {
  const Tensor outside = from_vector(list);
  return wrap(number, 4) < 2 ? outside : outside + 0;
}

Tensor labels(const Tensor& rows, int64_t shift) {
  std::vector<int64_t> list;
  for (int64_t i = 0; i < rows.size(0); ++i)
    list.push_back((i + shift) % 5 == 4 ? -100 : wrap(i * 7 + shift, rows.size(1)));
  return positions(list, shift);
}

Tensor normed(const Tensor& x) {
  const Tensor y = rows(x);
  return layer_norm(y, ones({y.size(1)}), full({y.size(1)}, 0.25));
}

Tensor batch_normed(World& w, const Tensor& x, bool training) {
  const Tensor y = rows(x);
  const int64_t width = w.buffers[1].size(0);
  if (y.size(1) != width || y.size(0) < 2) return y;
  return batch_norm(y, w.params[1], w.params[1], w.buffers[1], w.buffers[2], {.training = training});
}

Tensor product(const Tensor& a, const Tensor& b) {
  const Tensor left = rows(a), right = rows(b);
  if (left.size(1) == right.size(0)) return left.matmul(right);
  if (left.size(1) == right.size(1)) return left.matmul(right.t());
  if (left.size(0) == right.size(0)) return left.t().matmul(right);
  return left.matmul(left.t());
}

Tensor convolved(const Tensor& x, const Tensor& weight) {
  const Tensor y = rows(x);
  const Tensor kernel = weight.reshape({-1}).slice(0, 0, 1).reshape({1, 1, 1, 1}).expand({2, 1, 3, 3});
  return conv2d(y.reshape({1, 1, y.size(0), y.size(1)}), kernel.contiguous(), {}, {.padding = {1, 1}});
}

Tensor pooled(const Tensor& x, int64_t kind) {
  const Tensor y = rows(x), image = y.reshape({1, 1, y.size(0), y.size(1)});
  const Pool2dOptions options{.kernel = {2, 2}, .stride = {1, 1}, .padding = {1, 1}};
  return kind % 2 ? max_pool2d(image, options) : avg_pool2d(image, options);
}

void backward(const Tensor& x) {
  if (is_floating(x.dtype()) && x.requires_grad()) x.sum().backward();
}

void backward_twice(const Tensor& x) {
  if (!is_floating(x.dtype()) || !x.requires_grad()) return;
  const Tensor y = x.sum();
  y.backward({}, {.retain_graph = true});
  y.backward();
}

void hook(World& w, const Tensor& x) {
  if (!x.requires_grad() || x.is_leaf()) return;
  Tensor hooked = x;
  hooked.register_hook([&w](const Tensor& g) {
    w.log.push_back(g.to(DType::F64).sum().item<double>());
    return g * 2;
  });
}

Tensor second_gradient(const Tensor& x) {
  Tensor leaf = floating(x).detach().clone().requires_grad_();
  (leaf * leaf.tanh() * leaf).sum().backward({}, {.create_graph = true});
  const Tensor first = leaf.grad();
  leaf.zero_grad();
  first.sum().backward();
  const Tensor second = leaf.grad();
  leaf.zero_grad();
  return second.detach();
}

void sgd(World& w, double rate) {
  NoGrad guard;
  for (size_t i = 0; i < w.params.size(); ++i) {
    if (!w.params[i].grad().defined() || w.momenta[i].sizes() != w.params[i].sizes()) continue;
    if (i % 2) {
      sgd_plain_step(w.params[i], w.params[i].grad(), rate, 0.01);
    } else {
      sgd_step(w.params[i], w.params[i].grad(), w.momenta[i], rate, 0.9, 0, 0.01, i == 2);
    }
  }
}

void adam(World& w, double rate) {
  NoGrad guard;
  ++w.steps;
  for (size_t i = 0; i < w.params.size(); ++i) {
    if (!w.params[i].grad().defined() || w.momenta[i].sizes() != w.params[i].sizes()) continue;
    adam_step(w.params[i], w.params[i].grad(), w.momenta[i], w.second_moments[i], rate, 0.9, 0.999, 1e-8,
              0.01, 1 - std::pow(0.9, w.steps), 1 - std::pow(0.999, w.steps), i % 2);
  }
}

void zero_grads(World& w) {
  for (Tensor& p : w.params) p.zero_grad();
}

void keep(World& w, const Tensor& x) {
  w.kept.push_back(x);
  if (w.kept.size() > 12) w.kept.erase(w.kept.begin());
}

void renew(World& w, int64_t number) {
  const size_t at = static_cast<size_t>(wrap(number, static_cast<int64_t>(w.params.size())));
  Tensor fresh = no_grad([&] { return w.params[at].clone(); });
  w.params[at] = fresh.requires_grad_();
}

void host_write(Tensor x, double value) {
  if (x.numel() == 0) return;
  if (x.ndim() == 0) x.set({}, value);
  if (x.ndim() == 1) x.set({0}, value);
  if (x.ndim() == 2) x.set({0, -1}, value);
}

void poke(Tensor x, double value) {
  if (x.numel() == 0 || x.dtype() != DType::F32) return;
  x.mutable_data<float>()[0] = static_cast<float>(value);
}

Tensor rewritten(const Tensor& x, const Tensor& from, int64_t number, int64_t part) {
  Tensor copy = floating(x) * 1.5;
  if (copy.ndim() == 0) return copy.add_(1);
  Tensor view = copy.slice(axis(copy, number), part % 2, 100, 1 + number % 2);
  if (part == 0) view.copy_(into(from, view));
  if (part == 1) view.mul_(into(from, view));
  if (part == 2) view.add_(view.detach());
  if (part == 3) copy.transpose(0, -1).select(0, 0).fill_(0.5);
  return copy * 2 + copy;
}

namespace {
struct Cubed : Function<Cubed> {
  static Tensor forward(FunctionContext& context, const Tensor& x, double scale) {
    context.save_for_backward({x});
    context.data = scale;
    return x * x * x * scale;
  }
  static std::vector<Tensor> backward(FunctionContext& context, const std::vector<Tensor>& gradients) {
    const Tensor x = context.saved_tensors()[0];
    return {gradients[0] * (x * x) * (3 * std::any_cast<double>(context.data))};
  }
};
}  // namespace

Tensor cubed(const Tensor& x, double scale) { return Cubed::apply(x, scale); }

Tensor traced(const Tensor& x, double value) {
  ETCH_TRACED();
  const Tensor y = x * value;
  return y + y.sigmoid();
}

void optimizer_step(World& w, int64_t number, double rate) {
  const size_t which = static_cast<size_t>(wrap(number, 4));
  std::shared_ptr<optim::Optimizer>& optimizer = w.optimizers[which];
  if (!optimizer) {
    const std::vector<Tensor> all(w.params.begin(), w.params.end() - (number > 3));
    if (which == 0)
      optimizer = std::make_shared<optim::Sgd>(all, optim::SgdOptions{.momentum = 0.9, .dampening = 0.1});
    if (which == 1)
      optimizer = std::make_shared<optim::Sgd>(
          all, optim::SgdOptions{.momentum = 0.8, .weight_decay = 0.01, .nesterov = true});
    if (which == 2) optimizer = std::make_shared<optim::Adam>(all, optim::AdamOptions{.weight_decay = 0.01});
    if (which == 3) optimizer = std::make_shared<optim::AdamW>(all);
  }
  optimizer->set_lr(rate);
  optimizer->step();
  if (number % 2) optimizer->zero_grad(number < 4);
}

void clip(World& w) { w.log.push_back(optim::clip_grad_norm_(w.params, 0.7).item<float>()); }

void recast(World& w, int64_t number, int64_t dtype) {
  static constexpr DType kFloats[] = {DType::F32, DType::F64, DType::BF16, DType::F16};
  const size_t at = static_cast<size_t>(wrap(number, static_cast<int64_t>(w.params.size())));
  Tensor moved = no_grad([&] { return w.params[at].to(kFloats[wrap(dtype, 4)]).clone(); });
  w.params[at] = moved.requires_grad_();
}

void load(World& w, double value) {
  NoGrad guard;
  for (Tensor& p : w.params) p.copy_(cast(full(p.sizes(), value), 0).to(p.dtype()));
  for (size_t i : {1, 2}) w.buffers[i].copy_(full(w.buffers[i].sizes(), 0.5 + value * value));
}

void leaf_hook(World& w, const Tensor& x) {
  if (!x.requires_grad() || !x.is_leaf() || w.log.size() > 500) return;
  Tensor hooked = x;
  hooked.register_hook([&w](const Tensor& g) {
    w.buffers[2].add_(g.to(DType::F32).sum());
    return g * 0.5;
  });
}

Tensor retained(const Tensor& x) {
  Tensor middle = floating(x) * 0.5;
  if (!middle.requires_grad()) return middle;
  middle.retain_grad();
  middle.tanh().sum().backward();
  return middle.grad().detach();
}

Tensor extreme(const Tensor& x, int64_t number) {
  const Tensor ones = logical_not(x.isnan());
  switch (wrap(number, 4)) {
    case 0:
      return ones.to(DType::I64) * std::numeric_limits<int64_t>::max() + x.numel();
    case 1:
      return ones.to(DType::I32) * std::numeric_limits<int32_t>::min() - 1;
    case 2:
      return ones.to(DType::U8) * 200 + 100;
    default:
      return (ones.to(DType::I64) * 3037000500).square().neg();
  }
}

Tensor bad_lookup(const Tensor& x, int64_t number) {
  const Tensor y = rows(x);
  const std::vector<int64_t> list = {0, number % 2 ? y.size(0) : -1, 0};
  if (number % 3 == 0) return y.gather(0, positions(list, number).reshape({3, 1}));
  if (number % 3 == 1) return y.index_add(0, positions(list, number), zeros({3, y.size(1)}));
  return y.index_select(0, positions(list, number));
}

Tensor bad_labels(const Tensor& x, int64_t number) {
  const Tensor y = rows(x);
  std::vector<int64_t> list(static_cast<size_t>(y.size(0)), 0);
  list.back() = number % 2 ? y.size(1) : -7;
  return cross_entropy(y, positions(list, number));
}

Tensor divided_by_zeros(const Tensor& x, int64_t number) {
  const Tensor whole = logical_not(rows(x).isnan()).to(DType::I64);
  return number % 2 ? floor_divide(whole, whole - whole) : remainder(whole + 3, whole * 0);
}

void bad_write(Tensor x, int64_t number) {
  x.add_(into(zeros({}), x));  // what cannot be written at all says so here
  // A storage that already has its bytes keeps them when the write fails.
  flush();
  const Tensor wrong = number % 3 == 0   ? bad_lookup(x, number)
                       : number % 3 == 1 ? bad_labels(x, number)
                                         : divided_by_zeros(x, number);
  x.add_(into(wrong, x));
  flush();
}

}  // namespace etch::fuzz
