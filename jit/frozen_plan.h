// A frozen path: its executable, and where each call's tensors and numbers go.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include <absl/container/flat_hash_set.h>

#include "eager/accumulation.h"
#include "eager/tensor.h"
#include "tracer/stream.h"

namespace etch::detail {

class FrozenPlan {
 public:
  /// Where a random op's seed and offset stand among the values, and which numbers it draws.
  struct RandomSlots {
    size_t seed, offset;
    uint64_t start;  ///< from the call's first number on, in counters
    int64_t count;
  };

  /// `copies` and `results` belong to the captured run, `earlier` are the results of the run before it.
  FrozenPlan(std::shared_ptr<Site> site, std::span<const Tensor> examples, std::span<const Tensor> copies,
             std::span<const Tensor> results, std::span<const Tensor> earlier, const FlushCapture& capture,
             std::vector<RandomSlots> random, uint64_t drawn,
             std::span<const GradientWatch::Added> gradients);
  /// At every call the .grad of these captured leaves must be as it is now.
  void expect_gradients(std::vector<GradientWatch::Added> gradients) { gradients_ = std::move(gradients); }
  void run(std::span<const Tensor* const> inputs, std::span<Tensor> results, SourceLocation where) const;

  size_t count_results() const { return results_.size(); }

 private:
  struct Input {
    bool defined = false;
    Geometry geometry;
    int64_t offset = 0;
    size_t bytes = 0;
    DType dtype = DType::F32;
    Device device;
    int number = -1;             ///< of its storage; -1: no op uses it
    int shares = -1;             ///< the first input over the same storage, if it is another
    bool writes_leaf = false;    ///< the body was seen to write it though it required gradients
    bool adds_gradient = false;  ///< a backward pass gives it one
  };
  struct Shift {
    size_t slot;
    size_t input;
  };
  struct Write {
    int number;
    uint16_t op;
  };
  /// A captured storage that is written, and when the tape last recorded a write to it.
  struct CapturedWrite {
    const Storage* storage;
    uint32_t taped_version;
  };
  /// The tensor that results are views of.
  struct Base {
    size_t number;
    Geometry geometry;
    int64_t offset;
    DType dtype;
  };
  struct Result {
    enum class From : uint8_t {
      Nothing,
      Fresh,
      Input,
      InputItself,
      Captured,
      CapturedItself,
      Base,
      BaseView,
      Earlier
    } from = From::Nothing;
    size_t at = 0;    ///< Fresh: the number; Input, Base, Earlier: which
    Tensor captured;  ///< the tensor itself
    Geometry geometry;
    int64_t offset = 0;
    DType dtype = DType::F32;
    bool is_view = false;   ///< Fresh: of a tensor that the tape does not know
    bool has_base = false;  ///< Input, Captured: a view that the tape knows
  };

  void set_inputs(std::span<const Tensor> examples, std::span<const Tensor> copies);
  void set_results(std::span<const Tensor> copies, std::span<const Tensor> results,
                   std::span<const Tensor> earlier, const FlushCapture& capture);
  void set_fresh_views(std::span<const Tensor> results);
  void check(size_t at, std::span<const Tensor* const> inputs) const;
  void check_current(const Storage& storage) const;
  void check_gradients(std::span<const Tensor* const> inputs) const;
  void check_tape(std::span<const Tensor* const> inputs) const;
  void make_results(std::span<const Tensor* const> inputs, std::span<Storage* const> storages,
                    std::span<Tensor> results) const;
  void run_one_by_one(std::span<const OperandValue> values, std::span<Storage* const> storages) const;

  std::shared_ptr<Site> site_;
  const Path* path_;
  Ref<Executable> executable_;
  LiveSet live_;
  std::vector<bool> external_;
  std::vector<OperandValue> values_;
  std::vector<Storage*> storages_;  ///< by number: captured ones, the rest is null
  std::vector<Ref<Storage>> captured_;
  absl::flat_hash_set<const Storage*> captured_set_;
  std::vector<int> fresh_;  ///< numbers of the internals that results are made of
  std::vector<Input> inputs_;
  std::vector<Shift> shifts_;
  std::vector<RandomSlots> random_;
  uint64_t drawn_;  ///< counters
  std::vector<Write> writes_;
  std::vector<size_t> written_inputs_;  ///< that must not be on the tape
  std::vector<CapturedWrite> captured_writes_;
  std::vector<GradientWatch::Added> gradients_;  ///< of captured tensors: as they were
  std::vector<Base> bases_;
  std::vector<Result> results_;
};

}  // namespace etch::detail
