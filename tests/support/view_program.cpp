// Random programs of views and in-place writes under the tape.
#include "tests/support/view_program.h"

#include <random>

namespace etch::testing {

namespace {

class Program {
 public:
  Program(uint64_t seed, const Tensor& x, const Tensor& w) : random_(seed), x_(x), w_(w) {}

  Tensor run() {
    alive_ = {x_ * 1.25, zeros({4, 3}, {.dtype = x_.dtype()})};
    const int steps = 4 + pick(8);
    for (int i = 0; i < steps; ++i) {
      const int kind = pick(10);
      if (kind < 4) {
        alive_.push_back(view_of(any()));
      } else if (kind < 9) {
        write();
      } else {
        alive_.push_back(any() * 0.75 + w_);
      }
      if (alive_.size() > 8) alive_.erase(alive_.begin() + pick(static_cast<int>(alive_.size())));
    }
    Tensor sum = x_.sum() * 0.125 + w_;  // on the tape, whatever was overwritten
    double weight = 0.3;
    for (const Tensor& tensor : alive_)
      if (tensor.numel() > 0) sum = sum + (tensor.sin() * (weight += 0.17)).sum();
    return sum;
  }

 private:
  int pick(int below) { return static_cast<int>(random_() % static_cast<uint64_t>(below)); }
  Tensor& any() { return alive_[static_cast<size_t>(pick(static_cast<int>(alive_.size())))]; }

  Tensor view_of(const Tensor& t) {
    const int axis = t.ndim() ? pick(t.ndim()) : 0;
    const int64_t size = t.ndim() ? t.sizes()[axis] : 1;
    switch (pick(6)) {
      case 0:
        if (t.ndim() == 0) break;
        return t.slice(axis, pick(static_cast<int>(size) + 1), size);
      case 1:
        if (t.ndim() == 0) break;
        return t.slice(axis, 0, size, 1 + pick(2));
      case 2:
        if (t.ndim() == 0 || size == 0) break;
        return t.select(axis, pick(static_cast<int>(size)));
      case 3:
        return t.transpose(0, axis);
      case 4:
        if (!t.is_contiguous()) break;
        return t.view(-1);
      default:
        break;
    }
    return t.ndim() < 4 ? t.unsqueeze(axis) : t.transpose(0, axis);
  }

  // A fresh value that broadcasts to `sizes`: what writes read is never overwritten.
  Tensor source(const Dims& sizes) {
    const Tensor& other = any();
    const bool fits = other.ndim() <= static_cast<int>(sizes.size()) && broadcasts(other.sizes(), sizes);
    return fits ? other * 0.5 + w_ : w_ * 0.5;
  }
  static bool broadcasts(const Dims& from, const Dims& to) {
    for (int i = 0; i < from.size(); ++i) {
      const int64_t size = from[from.size() - 1 - i];
      if (size != 1 && size != to[to.size() - 1 - i]) return false;
    }
    return true;
  }

  void write() {
    Tensor target = any();
    const Tensor value = source(target.sizes());
    switch (pick(7)) {
      case 0:
        target.add_(value);
        break;
      case 1:
        target.sub_(value);
        break;
      case 2:
        target.mul_(value);
        break;
      case 3:
        target.div_(value * 0.125 + 2);
        break;
      case 4:
        target.fill_(0.625);
        break;
      case 5:
        target.mul_(1.5);
        break;
      default:
        target.copy_(value);
    }
  }

  std::mt19937_64 random_;
  Tensor x_, w_;
  std::vector<Tensor> alive_;
};

}  // namespace

Tensor run_view_program(uint64_t seed, const Tensor& x, const Tensor& w) { return Program(seed, x, w).run(); }

}  // namespace etch::testing
