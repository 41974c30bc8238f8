// Random groups: any sizes, memory orders, broadcasts, dtypes, levels and stores. ETCH_SEED picks the first
// seed; a failure names its own.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "tests/codegen/group.h"

namespace etch::testing {
namespace {

class Maker {
 public:
  explicit Maker(uint64_t seed) : group_(seed), random_(seed) {}

  /// False if the group that came out is none that can be lowered.
  bool check() {
    const int ndim = below(5);
    for (int i = 0; i < ndim; ++i)
      full_.push_back(std::vector<int64_t>{1, 2, 3, 7, 33, 70}[static_cast<size_t>(below(6))]);
    order_ = permuted(full_);
    if (below(3)) axes_ = static_cast<uint64_t>(below(1 << ndim));
    for (int i = 0; i < ndim; ++i) row_.push_back(axes_ >> i & 1 ? 1 : full_[i]);
    dtype_ = std::vector<DType>{DType::F32, DType::F32, DType::F64, DType::BF16,
                                DType::F16}[static_cast<size_t>(below(5))];
    fulls_.push_back(group_.input(dtype_, full_, order_, below(3)));
    rows_.push_back(group_.input(dtype_, row_));
    for (int i = 2 + below(7); i > 0; --i) add();
    for (const auto* values : {&fulls_, &rows_})
      for (size_t i = 1; i < values->size(); ++i)
        if (below(3) == 0 || i + 1 == values->size()) group_.keep((*values)[i]);
    if (group_.body().empty() || !group_.can_lower()) return false;
    group_.check();
    return true;
  }

 private:
  int below(int bound) { return static_cast<int>(random_() % static_cast<uint64_t>(bound)); }
  const GraphOperand& pick(const std::vector<GraphOperand>& from) {
    return from[static_cast<size_t>(below(static_cast<int>(from.size())))];
  }
  /// Dense strides in a random memory order, at times with gaps.
  Dims permuted(const Dims& sizes) {
    std::vector<int> axes(static_cast<size_t>(sizes.size()));
    for (size_t i = 0; i < axes.size(); ++i) axes[i] = static_cast<int>(i);
    if (below(2)) std::shuffle(axes.begin(), axes.end(), random_);
    Dims strides = Dims::filled(sizes.size(), 1);
    int64_t step = below(4) ? 1 : 2;
    for (size_t i = axes.size(); i-- > 0;) {
      strides[axes[i]] = step;
      step *= sizes[axes[i]];
    }
    return strides;
  }
  GraphOperand broadcast_input() {
    Dims sizes;
    for (int64_t size : full_) sizes.push_back(below(2) ? size : 1);
    return group_.input(dtype_, sizes, permuted(sizes));
  }
  GraphOperand any_operand(bool full) {
    if (below(5) == 0) return group_.scalar(0.5 + below(3), dtype_);
    if (!full) return pick(rows_);
    return below(4) == 0 ? broadcast_input() : below(3) == 0 ? pick(rows_) : pick(fulls_);
  }
  void add() {
    static constexpr Op kUnary[] = {Op::exp, Op::neg, Op::tanh, Op::relu, Op::square};
    static constexpr Op kBinary[] = {Op::add, Op::mul, Op::sub, Op::maximum, Op::div};
    static constexpr Op kReductions[] = {Op::sum, Op::amax, Op::sum, Op::amin};
    const int kind = below(6);
    if (kind == 0 && axes_) {
      rows_.push_back(group_.reduce(kReductions[below(4)], pick(fulls_), axes_));
      return;
    }
    const bool full = kind < 5;
    const Dims& sizes = full ? full_ : row_;
    const Dims strides = full ? order_ : Dims{};
    auto& values = full ? fulls_ : rows_;
    if (kind == 1) {
      const GraphOperand bits = group_.scalar_slot(below(1000), DType::I64);
      values.push_back(group_.op(Op::uniform, {bits, bits}, dtype_, sizes, strides));
    } else if (below(2)) {
      values.push_back(
          group_.op(kUnary[below(5)], {full ? pick(fulls_) : pick(rows_)}, dtype_, sizes, strides));
    } else {
      values.push_back(
          group_.op(kBinary[below(5)], {any_operand(full), any_operand(full)}, dtype_, sizes, strides));
    }
  }

  Group group_;
  std::mt19937_64 random_;
  Dims full_, row_, order_;
  uint64_t axes_ = 0;
  DType dtype_ = DType::F32;
  std::vector<GraphOperand> fulls_, rows_;
};

TEST(Random, GroupsGiveTheReferencesBits) {
  const char* text = std::getenv("ETCH_SEED");
  const char* count = std::getenv("ETCH_RANDOM_GROUPS");
  const uint64_t first = text ? std::strtoull(text, nullptr, 10) : 1;
  const int wanted = count ? std::atoi(count) : 40;
  int lowered = 0, tried = 0;
  for (; lowered < wanted && tried < 20 * wanted; ++tried) {
    SCOPED_TRACE("ETCH_SEED=" + std::to_string(first + static_cast<uint64_t>(tried)));
    lowered += Maker(first + static_cast<uint64_t>(tried)).check();
    ASSERT_FALSE(HasFailure());
  }
  EXPECT_EQ(lowered, wanted);
  EXPECT_GT(4 * lowered, tried) << "too many groups are refused";
}

}  // namespace
}  // namespace etch::testing
