// What random programs found: each a small function whose compiled calls once differed from eager ones.
#include "tests/jit/contract.h"

namespace etch {
namespace {

using Found = Contract;

template <class Body>
void expect_eagers_values(const Body& body, int calls = 6) {
  const auto eager = eagerly([&] {
    auto state = body();
    std::vector<Tensor> results;
    for (int call = 0; call < calls; ++call) results.push_back(state(call));
    return results;
  });
  auto state = body();
  auto step = compile([&](int call) { return state(call); });
  for (int call = 0; call < calls; ++call) {
    SCOPED_TRACE(call);
    expect_same(step(call), eager[static_cast<size_t>(call)]);
  }
}

// One op writes a tensor of before the call, or makes one: nothing else in the key tells the two apart.
TEST_F(Found, AnOlderTensorAndAFreshOneAreTwoPaths) {
  for (bool fresh_first : {false, true})
    expect_eagers_values([=] {
      return [=, old = zeros({8})](int call) mutable {
        const Tensor x = ramp({8}, call);
        Tensor t = old;
        if ((call % 2 == 0) == fresh_first)
          t = x.clone();
        else
          t.copy_(x);
        t.mul_(2);
        return t + t;
      };
    });
}

// The statistics' normalised input would be made again where it is used, after the input has been
// overwritten.
TEST_F(Found, AnInputWrittenAfterItsNormalisationIsNotReadAgain) {
  expect_eagers_values([] {
    return [w = ramp({64}), mean = zeros({64}), var = ones({64})](int call) mutable {
      Tensor x = ramp({24, 64}, call, 0.25);
      flush();
      const Tensor y = batch_norm(x, w, w, mean, var);
      x.mul_(0.25);
      return y.matmul(x.t());
    };
  });
}

}  // namespace
}  // namespace etch
