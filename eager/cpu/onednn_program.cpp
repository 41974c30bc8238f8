// Building and running prepared oneDNN sequences.
#include "eager/cpu/onednn_program.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "runtime/error.h"

namespace etch::onednn {

const dnnl::engine& engine() {
  static const dnnl::engine& instance = *new dnnl::engine(dnnl::engine::kind::cpu, 0);
  return instance;
}

dnnl::memory::data_type library_dtype(DType dtype) {
  ETCH_INVARIANT(dtype == DType::F32 || dtype == DType::BF16);
  return dtype == DType::F32 ? dnnl::memory::data_type::f32 : dnnl::memory::data_type::bf16;
}

bool is_reference(const char* implementation) { return std::strncmp(implementation, "ref", 3) == 0; }

bool Operand::describable(dnnl::memory::desc* desc) const {
  if (dtype != DType::F32 && dtype != DType::BF16) return false;
  // oneDNN's own check lets some overlapping layouts pass: demand that sorted extents nest.
  std::vector<std::pair<int64_t, int64_t>> extents;
  for (size_t d = 0; d < sizes.size(); ++d)
    if (sizes[d] > 1) extents.emplace_back(strides[d], sizes[d]);
  std::sort(extents.begin(), extents.end());
  int64_t reach = 1;
  for (auto [stride, size] : extents) {
    if (stride < reach) return false;
    reach = stride * size;
  }
  try {
    *desc = dnnl::memory::desc(sizes, library_dtype(dtype), strides);
    return true;
  } catch (const dnnl::error&) {
    return false;
  }
}

StridedCopy Operand::copy_to_dense(DType as) const {
  StridedCopy copy;
  for (size_t d = 0; d < sizes.size(); ++d) {
    copy.sizes[d] = sizes[d];
    copy.from_strides[d] = strides[d];
    copy.to_strides[d] = dense_strides[d];
  }
  copy.from = dtype;
  copy.to = as;
  return copy;
}

StridedCopy Operand::copy_from_dense(DType as) const {
  StridedCopy copy = copy_to_dense(as);
  std::swap(copy.from, copy.to);
  std::swap(copy.from_strides, copy.to_strides);
  return copy;
}

Place Program::reserve(size_t bytes) {
  const Place place{Base::Scratch, scratch_bytes_};
  scratch_bytes_ += (bytes + kScratchAlignment - 1) / kScratchAlignment * kScratchAlignment;
  return place;
}

int Program::slot(const dnnl::memory::desc& desc, Place place) {
  slots_.push_back({desc, place});
  return static_cast<int>(slots_.size()) - 1;
}

int Program::input(const Operand& operand, const dnnl::memory::desc& wanted, DType wanted_dtype) {
  dnnl::memory::desc user;
  if (operand.describable(&user)) {
    const int from = slot(user, {operand.base});
    if (user == wanted) return from;
    const int to = slot(wanted, reserve(wanted.get_size()));
    add_reorder(user, from, wanted, to);
    return to;
  }
  const auto dense = operand.dense(wanted_dtype);
  const Place place = reserve(dense.get_size());
  add_copy(operand.copy_to_dense(wanted_dtype), {operand.base}, place);
  const int from = slot(dense, place);
  if (dense == wanted) return from;
  const int to = slot(wanted, reserve(wanted.get_size()));
  add_reorder(dense, from, wanted, to);
  return to;
}

int Program::output(const Operand& operand, const dnnl::memory::desc& given, DType given_dtype) {
  dnnl::memory::desc user;
  const bool describable = operand.describable(&user);
  if (describable && user == given) return slot(given, {operand.base});
  const Place place = reserve(given.get_size());
  const int from = slot(given, place);
  std::swap(steps_, output_steps_);
  if (describable) {
    add_reorder(given, from, user, slot(user, {operand.base}));
  } else {
    const auto dense = operand.dense(given_dtype);
    Place dense_place = place;
    if (!(dense == given)) {
      dense_place = reserve(dense.get_size());
      add_reorder(given, from, dense, slot(dense, dense_place));
    }
    add_copy(operand.copy_from_dense(given_dtype), dense_place, {operand.base});
  }
  std::swap(steps_, output_steps_);
  return from;
}

void Program::finish_output() {
  for (Step& step : output_steps_) steps_.push_back(std::move(step));
  output_steps_.clear();
}

void Program::add_copy(const StridedCopy& copy, Place from, Place to) {
  Step step;
  step.copy = copy;
  step.from = from;
  step.to = to;
  steps_.push_back(std::move(step));
}

void Program::add_reorder(const dnnl::memory::desc& from, int from_slot, const dnnl::memory::desc& to,
                          int to_slot) {
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  const dnnl::reorder::primitive_desc pd(engine(), from, engine(), to, attr);
  add_primitive(dnnl::reorder(pd), {{DNNL_ARG_FROM, from_slot}, {DNNL_ARG_TO, to_slot}},
                pd.scratchpad_desc());
}

void Program::add_primitive(const dnnl::primitive& primitive, std::vector<std::pair<int, int>> arguments,
                            const dnnl::memory::desc& scratchpad) {
  if (const size_t bytes = scratchpad.get_size(); bytes > 0)
    arguments.emplace_back(DNNL_ARG_SCRATCHPAD, slot(scratchpad, reserve(bytes)));
  Step step;
  step.primitive = primitive;
  step.arguments = std::move(arguments);
  steps_.push_back(std::move(step));
}

std::unique_ptr<Program::Frame> Program::make_frame() const {
  auto frame = std::make_unique<Frame>();
  for (const Slot& slot : slots_)
    frame->memories.push_back(dnnl::memory(slot.desc, engine(), DNNL_MEMORY_NONE));
  for (const Step& step : steps_) {
    auto& arguments = frame->arguments.emplace_back();
    for (auto [id, slot] : step.arguments) arguments.push_back({id, frame->memories[slot].get()});
  }
  return frame;
}

void Program::run(const void* first, const void* second, const void* bias, void* out, void* scratch) const {
  const std::array<const void*, 6> bases = {first, second, bias, out, scratch, nullptr};
  auto address = [&](Place place) -> void* {
    auto* base = static_cast<const char*>(bases[static_cast<size_t>(place.base)]);
    return base == nullptr ? nullptr : const_cast<char*>(base) + place.offset;
  };
  thread_local dnnl::stream stream(engine());

  std::unique_ptr<Frame> frame;
  {
    std::lock_guard lock(mutex_);
    if (!frames_.empty()) {
      frame = std::move(frames_.back());
      frames_.pop_back();
    }
  }
  try {
    if (!frame) frame = make_frame();
    for (size_t i = 0; i < slots_.size(); ++i) frame->memories[i].set_data_handle(address(slots_[i].place));
    for (size_t i = 0; i < steps_.size(); ++i) {
      const Step& step = steps_[i];
      if (!step.primitive) {
        run_copy(step.copy, address(step.from), address(step.to));
        continue;
      }
      const auto& arguments = frame->arguments[i];
      dnnl::error::wrap_c_api(dnnl_primitive_execute(step.primitive.get(), stream.get(),
                                                     static_cast<int>(arguments.size()), arguments.data()),
                              "the primitive could not run");
    }
    stream.wait();
  } catch (const dnnl::error& error) {
    fail<Error>(description_, ": oneDNN failed: ", error.what());
  }
  std::lock_guard lock(mutex_);
  frames_.push_back(std::move(frame));
}

}  // namespace etch::onednn
