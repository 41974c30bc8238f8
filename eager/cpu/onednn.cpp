// The cache of prepared operations and what they share.
#include "eager/cpu/onednn.h"

#include <algorithm>
#include <cstring>
#include <list>
#include <mutex>

#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "eager/cpu/onednn_prepare.h"
#include "runtime/error.h"
#include "runtime/parallel.h"

namespace etch::onednn {
namespace {

using Key = absl::InlinedVector<int64_t, 36>;
using Prepared = std::shared_ptr<const Contraction>;

constexpr size_t kCapacity = 2048;

/// Least recently used first out.
class Cache {
 public:
  template <class Build>
  Prepared get(Key key, Build build) {
    {
      std::lock_guard lock(mutex_);
      if (auto found = entries_.find(key); found != entries_.end()) {
        order_.splice(order_.begin(), order_, found->second);
        return found->second->second;
      }
    }
    Prepared prepared = build();
    std::lock_guard lock(mutex_);
    if (auto found = entries_.find(key); found != entries_.end()) return found->second->second;
    order_.emplace_front(key, prepared);
    entries_.emplace(std::move(key), order_.begin());
    if (order_.size() > kCapacity) {
      entries_.erase(order_.back().first);
      order_.pop_back();
    }
    return prepared;
  }

  void clear() {
    std::lock_guard lock(mutex_);
    entries_.clear();
    order_.clear();
  }

  size_t size() {
    std::lock_guard lock(mutex_);
    return order_.size();
  }

 private:
  std::mutex mutex_;
  std::list<std::pair<Key, Prepared>> order_;
  absl::flat_hash_map<Key, decltype(order_)::iterator> entries_;
};

Cache& cache() {
  static Cache& instance = *new Cache;
  return instance;
}

template <size_t N>
void append(Key& key, const int64_t (&values)[N]) {
  key.insert(key.end(), values, values + N);
}

int64_t pack_dtypes(DType a, DType b, DType c, bool bias) {
  return static_cast<int64_t>(a) | static_cast<int64_t>(b) << 8 | static_cast<int64_t>(c) << 16 |
         static_cast<int64_t>(bias) << 24;
}

Prepared prepare_conv(ConvOp op, const ConvGeometry& g) {
  Key key = {1 + static_cast<int64_t>(op),
             num_threads(),
             g.n,
             g.c_in,
             g.h,
             g.w,
             g.c_out,
             g.kh,
             g.kw,
             g.h_out,
             g.w_out,
             g.groups,
             pack_dtypes(g.x, g.weight, g.y, g.bias)};
  append(key, g.stride);
  append(key, g.padding);
  append(key, g.dilation);
  append(key, g.x_strides);
  append(key, g.y_strides);
  return cache().get(std::move(key), [&] { return build_conv(op, g); });
}

}  // namespace

DType arithmetic(const std::string& description, DType first, DType second, DType out) {
  const bool real = is_floating(first) && is_floating(second) && is_floating(out);
  const bool wide = first == DType::F64 || second == DType::F64 || out == DType::F64;
  if (real && !wide) return first == DType::BF16 && second == DType::BF16 ? DType::BF16 : DType::F32;
  ETCH_CHECK(first == second && second == out && first != DType::Bool, DTypeError, description,
             ": expected floating dtypes up to f32, or one dtype of f64, i64, i32, u8 throughout, got ",
             name(first), ", ", name(second), " -> ", name(out), "; convert the operands first");
  return first;
}

Prepared prepare_matmul(const MatmulGeometry& g) {
  Key key = {0, num_threads(), g.m, g.n, g.k, pack_dtypes(g.a, g.b, g.c, g.bias)};
  append(key, g.batch);
  append(key, g.a_strides);
  append(key, g.b_strides);
  append(key, g.c_strides);
  return cache().get(std::move(key), [&] { return build_matmul(g); });
}

Prepared prepare_conv_forward(const ConvGeometry& geometry) {
  return prepare_conv(ConvOp::Forward, geometry);
}
Prepared prepare_conv_backward_data(const ConvGeometry& geometry) {
  return prepare_conv(ConvOp::BackwardData, geometry);
}
Prepared prepare_conv_backward_weights(const ConvGeometry& geometry) {
  return prepare_conv(ConvOp::BackwardWeights, geometry);
}

void clear_cache() { cache().clear(); }
size_t cache_size() { return cache().size(); }

}  // namespace etch::onednn
