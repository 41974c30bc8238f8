// The table of statements that random programs are made of, and the dice that choose among them.
#pragma once

#include <cstdint>
#include <span>

#include "tests/jit/program_generator.h"

namespace etch::fuzz {

/// SplitMix64: the same programs on every machine.
class Dice {
 public:
  explicit Dice(uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15ull + 1) {}
  uint64_t next() {
    uint64_t z = state_ += 0x9E3779B97F4A7C15ull;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
  }
  int below(int count) { return static_cast<int>(next() % static_cast<uint64_t>(count)); }
  bool one_in(int count) { return below(count) == 0; }
  double unit() { return static_cast<double>(next() >> 11) * 0x1p-53; }

 private:
  uint64_t state_;
};

struct Form {
  int weight;        ///< how often it is chosen; 0: only as a program's last statement
  const char* text;  ///< the C++ of `run`
  void (*run)(World&, Values&, int call, std::vector<Tensor>& out, const Statement&);
};

/// One a row of program_forms.h.
std::span<const Form> forms();

/// Past the last statement under the guard of number `at`. One whose errors end the call is under no guard.
size_t block_end(const std::vector<Statement>& statements, size_t at, size_t end);

/// The values that a program starts with.
constexpr int kInputCount = 6;

}  // namespace etch::fuzz
