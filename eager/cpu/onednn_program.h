// A prepared sequence of copies and oneDNN primitives over user memory and scratch. Internal to the wrapper.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <oneapi/dnnl/dnnl.hpp>

#include "eager/cpu/onednn.h"
#include "eager/cpu/strided_copy.h"

namespace etch::onednn {

const dnnl::engine& engine();
/// F32 or BF16 only.
dnnl::memory::data_type library_dtype(DType dtype);
/// Reference kernels are a thousand times slower than the rest.
bool is_reference(const char* implementation);

/// Where a pointer of a run comes from.
enum class Base : uint8_t { First, Second, Bias, Out, Scratch, Zero };

struct Place {
  Base base;
  size_t offset = 0;  // bytes
};

/// An operand in user memory. `dense_strides` is the layout it is copied to when the library cannot read it.
struct Operand {
  Base base;
  DType dtype;
  dnnl::memory::dims sizes, strides, dense_strides;

  dnnl::memory::desc dense(DType as) const { return {sizes, library_dtype(as), dense_strides}; }
  /// Whether the library can describe it: F32 or BF16 and no zero or overlapping strides.
  bool describable(dnnl::memory::desc* desc) const;
  StridedCopy copy_to_dense(DType as) const;
  StridedCopy copy_from_dense(DType as) const;
};

class Program final : public Contraction {
 public:
  explicit Program(std::string description) : description_(std::move(description)) {}

  void run(const void* first, const void* second, const void* bias, void* out, void* scratch) const override;

  // The functions below build it, before it is shared.
  Place reserve(size_t bytes);
  int slot(const dnnl::memory::desc& desc, Place place);
  /// A slot with the contents of `operand` in the layout of `wanted`.
  int input(const Operand& operand, const dnnl::memory::desc& wanted, DType wanted_dtype);
  /// A slot in the layout of `given`; finish_output() then adds what takes it to the user's memory.
  int output(const Operand& operand, const dnnl::memory::desc& given, DType given_dtype);
  void finish_output();
  void add_copy(const StridedCopy& copy, Place from, Place to);
  void add_primitive(const dnnl::primitive& primitive, std::vector<std::pair<int, int>> arguments,
                     const dnnl::memory::desc& scratchpad);
  void set_implementation(const char* name) { implementation_ = name; }

 private:
  struct Slot {
    dnnl::memory::desc desc;
    Place place;
  };
  struct Step {
    dnnl::primitive primitive;                   // empty for a copy
    std::vector<std::pair<int, int>> arguments;  // argument id, slot
    StridedCopy copy;
    Place from, to;
  };
  /// Memory objects of one run; kept for the next so that a run allocates nothing large.
  struct Frame {
    std::vector<dnnl::memory> memories;
    std::vector<std::vector<dnnl_exec_arg_t>> arguments;
  };

  void add_reorder(const dnnl::memory::desc& from, int from_slot, const dnnl::memory::desc& to, int to_slot);
  std::unique_ptr<Frame> make_frame() const;

  std::string description_;
  std::vector<Slot> slots_;
  std::vector<Step> steps_, output_steps_;
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<Frame>> frames_;  ///< idle ones, under the mutex
};

}  // namespace etch::onednn
