// What the tests of traced functions share: settings that come back, comparisons with eager, reports as JSON.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <nlohmann/json.hpp>
#include <vector>

#include "eager/functional.h"
#include "eager/tensor.h"
#include "jit/compile.h"
#include "runtime/config.h"
#include "tracer/path.h"

namespace etch {

/// The settings of a test; the old ones come back.
class Settings {
 public:
  Settings() : old_(config()) {}
  ~Settings() { config() = old_; }

 private:
  Config old_;
};

/// Groups run op by op: all of tracing, passes and plans without waiting for a compiler.
class Contract : public ::testing::Test {
 protected:
  Contract() { config().cxx = "none"; }
  Settings settings_;
};

/// Another compiler while it lives.
class Compiler {
 public:
  explicit Compiler(CompileFunction function) {
    compile([] {});  // registers the real one
    real = registered_compiler();
    register_compiler(function);
  }
  ~Compiler() { register_compiler(real); }
  static inline CompileFunction real = nullptr;
};

template <class F>
auto eagerly(F&& f) {
  Settings settings;
  config().disable = true;
  return f();
}

/// Sizes, dtype and bits; NaNs count as equal.
inline void expect_same(const Tensor& actual, const Tensor& expected) {
  ASSERT_TRUE(actual.defined() && expected.defined());
  EXPECT_EQ(to_string(actual.sizes()), to_string(expected.sizes()));
  EXPECT_EQ(name(actual.dtype()), name(expected.dtype()));
  const std::vector<double> a = actual.to_vector<double>(), b = expected.to_vector<double>();
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i)
    ASSERT_TRUE(std::memcmp(&a[i], &b[i], sizeof(double)) == 0 || (a[i] != a[i] && b[i] != b[i]))
        << "element " << i << ": " << a[i] << ", expected " << b[i];
}

inline void expect_values(const Tensor& actual, const std::vector<double>& expected) {
  EXPECT_EQ(actual.to_vector<double>(), expected);
}

template <class Step>
nlohmann::json report(const Step& step) {
  return nlohmann::json::parse(step.explain_json());
}
template <class Step>
size_t path_count(const Step& step) {
  return report(step)["paths"].size();
}

/// The message of the error that f throws; fails if it throws none of this type.
template <class E, class F>
std::string message(F&& f) {
  try {
    f();
  } catch (const E& error) {
    return error.what();
  }
  ADD_FAILURE() << "expected an error";
  return "";
}

inline void expect_part(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << part << " in\n" << text;
}

inline Tensor ramp(const Dims& sizes, double start = 1, double step = 0.5) {
  std::vector<float> values;
  for (int64_t i = 0; i < num_elements(sizes); ++i)
    values.push_back(static_cast<float>(start + step * static_cast<double>(i)));
  return from_vector(values, sizes);
}

}  // namespace etch
