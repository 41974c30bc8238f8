// Freezing a path: running the body until it does the same twice, and telling why it does not.
#include "jit/freeze.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <optional>
#include <set>
#include <thread>
#include <tuple>

#include "eager/accumulation.h"
#include "eager/apply.h"
#include "jit/frozen_plan.h"
#include "runtime/error.h"
#include "tracer/background.h"
#include "tracer/recorder.h"

namespace etch::detail {

namespace {

constexpr int kMostRuns = 5;
constexpr int kMostWaits = 1000;

/// One run of the body on copies of the examples.
struct Run {
  std::vector<Tensor> copies;
  std::vector<Tensor> results;
  FlushCapture capture;
  PhiloxState before, after;                    ///< of the default generator
  std::vector<GradientWatch::Added> gradients;  ///< that backward passes added to or made

  const Path& path() const { return *capture.end->path; }
  /// The input that external `number` is; -1: a captured tensor.
  int input_at(int number) const {
    for (size_t i = 0; i < copies.size(); ++i)
      if (copies[i].defined() && &copies[i].storage() == capture.stream.storages[number].get())
        return static_cast<int>(i);
    return -1;
  }
  /// Whether external `number` is more than what the body made for itself.
  bool is_held_elsewhere(int number) const { return capture.stream.storages[number]->use_count() > 1; }
  /// What a result lies in: an input's storage, one that the ops made (by number), or one of the outside.
  std::tuple<int, int, const Storage*> place_of(const Tensor& result) const {
    const Storage* storage = &result.storage();
    for (size_t i = 0; i < copies.size(); ++i)
      if (copies[i].defined() && &copies[i].storage() == storage) return {static_cast<int>(i), -1, nullptr};
    for (size_t n = 0; n < capture.live.size(); ++n)
      if (capture.live[n] && capture.stream.storages[n].get() == storage)
        return {-1, static_cast<int>(n), nullptr};
    return {-1, -1, storage};
  }
};

// Tensors on copies of whole storages, since windows are part of the path; what shares memory still does, and
// views stay views of the same tensors.
class Copies {
 public:
  explicit Copies(std::span<const Tensor> examples) {
    for (const Tensor& example : examples)
      made_.push_back(example.defined() ? copy(example.ref()) : Tensor());
    for (auto& [original, tensor] : known_) put_on_tape(Tensor(original), tensor);
  }
  std::vector<Tensor> take() { return std::move(made_); }

 private:
  Tensor copy(const Ref<TensorImpl>& of) {
    for (const auto& [original, tensor] : known_)
      if (original == of) return tensor;
    Tensor tensor = of->base ? make_view(copy(of->base), of->geometry, of->offset)
                             : make_tensor(copy(*of->storage), of->geometry, of->offset, of->dtype);
    tensor.impl().is_view = of->is_view;
    if (of->base) tensor.impl().base = copy(of->base).ref();
    known_.push_back({of, tensor});
    return tensor;
  }
  // Bases come before their views. A view that is on the tape finds its history when it is needed, as after a
  // write to its base.
  static void put_on_tape(const Tensor& original, Tensor& copy) {
    Storage& storage = copy.storage();
    if (storage.taped_version == 0) {
      storage.bump_version();
      storage.taped_version = storage.version();
    }
    TensorImpl& impl = copy.impl();
    const bool finds = impl.base && impl.base->requires_grad && original.requires_grad();
    impl.view_version = finds ? 0 : storage.version();
    if (original.requires_grad() && !copy.requires_grad()) copy.requires_grad_();
  }
  Ref<Storage> copy(Storage& of) {
    for (const auto& [original, tensor] : known_)
      if (original->storage.get() == &of) return tensor.impl().storage;
    const Ref<Storage> storage = Storage::allocate(of.device(), of.bytes());
    if (of.bytes()) std::memcpy(storage->raw_data(), of.data_for_read(), of.bytes());
    return storage;
  }

  std::vector<std::pair<Ref<TensorImpl>, Tensor>> known_;
  std::vector<Tensor> made_;
};

std::string describe_op(const Path& path, size_t op) {
  return join_text({"op ", static_cast<int64_t>(op), " (", name(path.ops[op]->op), ")"});
}

/// Calls f(op, operand, slot) for every operand of the stream.
template <class F>
void for_each_operand(const Path& path, F&& f) {
  size_t slot = 0;
  for (size_t op = 0; op < path.ops.size(); ++op)
    for (const auto* operands : {&path.ops[op]->inputs, &path.ops[op]->outputs})
      for (const RecordedOperand& operand : *operands) f(op, operand, slot++);
}

/// The slots of seeds and offsets.
std::vector<FrozenPlan::RandomSlots> random_slots(const Path& path) {
  std::vector<FrozenPlan::RandomSlots> slots;
  size_t slot = 0;
  for (const RecordedOp* op : path.ops) {
    if (info(op->op).flags & kRandom) {
      size_t seed = 0;
      while (op->inputs[seed].kind != RecordedOperand::Kind::Scalar) ++seed;
      slots.push_back({slot + seed, slot + seed + 1, 0, (op->outputs[0].geometry.numel() + 3) / 4});
    }
    slot += op->inputs.size() + op->outputs.size();
  }
  return slots;
}

/// Whether the default generator gave exactly the numbers that the run's ops draw; fills their offsets from
/// where it stood before.
bool drew_from_default_generator(const Run& run, std::vector<FrozenPlan::RandomSlots>& slots) {
  if (run.before.seed != run.after.seed) return false;
  std::vector<std::pair<uint64_t, uint64_t>> ranges;
  for (FrozenPlan::RandomSlots& at : slots) {
    if (static_cast<uint64_t>(run.capture.stream.values[at.seed].scalar.to_int()) != run.before.seed)
      return false;
    at.start =
        static_cast<uint64_t>(run.capture.stream.values[at.offset].scalar.to_int()) - run.before.offset;
    if (at.count > 0) ranges.push_back({at.start, static_cast<uint64_t>(at.count)});
  }
  std::sort(ranges.begin(), ranges.end());
  ranges.erase(std::unique(ranges.begin(), ranges.end()), ranges.end());  // gradients draw again
  uint64_t next = 0;
  for (const auto& [start, count] : ranges) {
    if (start != next) return false;
    next += count;
  }
  return next == run.after.offset - run.before.offset;
}

/// What ended the run's stream before its body did.
std::string describe_flush(FlushReason reason, SourceLocation where) {
  const std::string at = at_place(where);
  if (reason == FlushReason::FrozenCall)
    return join_text({"that calls a frozen function", at, "; call the compiled one there"});
  if (reason == FlushReason::Explicit) return join_text({"that calls ", describe(reason), at});
  return join_text({"where ", describe(reason), at});
}

std::string print(const Scalar& scalar) {
  if (scalar.kind() == Scalar::Kind::Float) return join_text({scalar.to_double()});
  return std::to_string(scalar.to_int());
}

bool same_bits(const Scalar& a, const Scalar& b) {
  if (a.kind() != b.kind()) return false;
  if (a.kind() != Scalar::Kind::Float) return a.to_int() == b.to_int();
  const double x = a.to_double(), y = b.to_double();
  return std::memcmp(&x, &y, sizeof(x)) == 0;
}

/// Why one run cannot be replayed in the place of the next; empty if it can.
std::string difference(const Run& a, const Run& b) {
  if (a.capture.end != b.capture.end) {
    const std::string text = b.capture.end->divergence.text();
    return join_text({"whose ops differ from run to run", text.empty() ? "" : ": ", text});
  }
  if (a.results.size() != b.results.size()) return "that returns another number of tensors from run to run";
  for (size_t r = 0; r < a.results.size(); ++r) {
    const Tensor &before = a.results[r], &now = b.results[r];
    if (!before.defined() && !now.defined()) continue;
    if (!before.defined() || !now.defined() || a.place_of(before) != b.place_of(now) ||
        before.impl().geometry != now.impl().geometry || before.storage_offset() != now.storage_offset())
      return join_text({"where result ", static_cast<int64_t>(r), " is another tensor from run to run"});
  }
  const Path& path = a.path();
  std::set<size_t> drawn;
  for (const FrozenPlan::RandomSlots& at : random_slots(path)) drawn.insert({at.seed, at.offset});
  std::string reason;
  for_each_operand(path, [&](size_t op, const RecordedOperand& operand, size_t slot) {
    if (!reason.empty()) return;
    const auto at = [&] { return describe_op(path, op); };
    if (operand.kind == RecordedOperand::Kind::Tensor) {
      const int n = operand.number;
      if (path.storages[n].external &&
          (a.input_at(n) != b.input_at(n) ||
           (a.input_at(n) < 0 && !(a.capture.stream.storages[n] == b.capture.stream.storages[n]))))
        reason = join_text({"where ", at(), " uses another ", name(operand.dtype),
                            to_string(operand.geometry.sizes), " tensor of the outside from run to run",
                            a.is_held_elsewhere(n) && b.is_held_elsewhere(n)
                                ? ""
                                : " (values from the host, or memory of from_blob() that each call copies: "
                                  "pass that tensor as an argument, or make it {.stable = true})"});
      else if (a.capture.stream.values[slot].offset != b.capture.stream.values[slot].offset)
        reason = join_text({"where ", at(), " uses another window of a tensor from run to run"});
    } else if (operand.kind == RecordedOperand::Kind::Scalar && !drawn.contains(slot)) {
      const Scalar before = a.capture.stream.values[slot].scalar, now = b.capture.stream.values[slot].scalar;
      if (!same_bits(before, now))
        reason = join_text({"where the number in ", at(), " changes from run to run: ", print(before),
                            " before, ", print(now), " now"});
    }
  });
  return reason;
}

/// The first op that writes internal `number`.
size_t writer_of(const Path& path, int number) {
  for (size_t op = 0; op < path.ops.size(); ++op)
    for (const RecordedOperand& output : path.ops[op]->outputs)
      if (output.number == number) return op;
  return 0;
}

/// Why what the run leaves behind is more than its results; empty if it is not.
std::string leftovers(const Run& run) {
  const FlushCapture& capture = run.capture;
  for (size_t n = 0; n < capture.live.size(); ++n) {
    if (!capture.live[n]) continue;
    const bool returned = std::any_of(run.results.begin(), run.results.end(), [&](const Tensor& result) {
      return result.defined() && &result.storage() == capture.stream.storages[n].get();
    });
    if (!returned)
      return join_text(
          {"where the result of ", describe_op(run.path(), writer_of(run.path(), static_cast<int>(n))),
           " outlives the call without being returned (a gradient left in .grad, a tensor stored "
           "outside, or one saved for a backward pass to come)"});
  }
  return "";
}

/// Why the gradients that the run's backward passes add to are not those of the next; empty if they are.
std::string replaced_gradients(const Run& run) {
  for (size_t i = 0; i < run.copies.size(); ++i)
    if (run.copies[i].defined() && run.copies[i].grad().defined())
      return join_text({"that leaves a gradient in the .grad of input ", static_cast<int64_t>(i)});
  for (const GradientWatch::Added& added : run.gradients) {
    const bool made = !added.gradient && !added.is_unchanged() &&
                      std::get<1>(run.place_of(Tensor(added.leaf).grad())) >= 0;  // release() tells
    if (!made && !added.is_unchanged())
      return "where backward adds to a .grad, or makes one, that is replaced later on";
  }
  return "";
}

/// Why the tape would miss writes that the run did; empty if it would not.
std::string taped_writes(const Run& run) {
  const Stream& stream = run.capture.stream;
  std::vector<uint32_t> writes(stream.storages.size());
  for (const RecordedOp* op : run.path().ops)
    for (const RecordedOperand& output : op->outputs) ++writes[static_cast<size_t>(output.number)];
  for (size_t n = 0; n < writes.size(); ++n) {
    if (!stream.external[n]) continue;
    const Storage& storage = *stream.storages[n];
    const int input = run.input_at(static_cast<int>(n));
    if (writes[n] && storage.taped_version > storage.version() - writes[n])
      return join_text({"whose tape records a write to ",
                        input < 0 ? std::string("a captured tensor") : join_text({"input ", input}),
                        "; write it under no_grad, or freeze under no_grad"});
  }
  return "";
}

/// Why the run by itself cannot be replayed; empty if it can. Fills the offsets of `random`.
std::string obstacle(const Run& run, std::vector<FrozenPlan::RandomSlots>& random) {
  if (const std::string reason = leftovers(run); !reason.empty()) return reason;
  if (!drew_from_default_generator(run, random))
    return "where random numbers are drawn from another generator than the default one, or outside recorded "
           "ops";
  if (const std::string reason = taped_writes(run); !reason.empty()) return reason;
  return replaced_gradients(run);
}

/// Lets go of all tensors of the run, its capture included. Why it cannot be replayed if somebody else holds
/// what it made or was given, so that the next call would have to put its own there; empty if nobody does.
/// `gradients` become those of leaves that are still there.
std::string release(Run& run, std::vector<GradientWatch::Added>& gradients) {
  std::vector<std::pair<Ref<Storage>, std::string>> held;
  for (size_t n = 0; n < run.capture.live.size(); ++n)
    if (run.capture.live[n])
      held.push_back({run.capture.stream.storages[n],
                      join_text({"the result of ",
                                 describe_op(run.path(), writer_of(run.path(), static_cast<int>(n)))})});
  for (size_t i = 0; i < run.copies.size(); ++i) {
    if (!run.copies[i].defined()) continue;
    const Ref<Storage>& storage = run.copies[i].impl().storage;
    if (std::none_of(held.begin(), held.end(), [&](const auto& other) { return other.first == storage; }))
      held.push_back({storage, join_text({"input ", static_cast<int64_t>(i)})});
  }
  gradients = std::move(run.gradients);
  run = {};
  std::erase_if(gradients, [](const GradientWatch::Added& added) { return added.leaf->use_count() == 1; });
  for (const auto& [storage, what] : held)
    if (storage->use_count() > 1)
      return join_text({"that keeps ", what,
                        " outside, returned or not (left in .grad, or stored): a frozen call would not"});
  return "";
}

/// Returns when no thread compiles the path.
void wait_for_compile(PathEnd& end) {
  for (;;) {
    {
      std::lock_guard lock(end.mutex);
      if (!end.compiling) return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace

std::shared_ptr<const FrozenPlan> freeze(std::shared_ptr<Site> site, std::span<const Tensor> examples,
                                         const FrozenBody& body) {
  const std::string& name = site->options().name;
  int calls = 0;
  const auto refuse = [&](const std::string& got) {
    fail<TraceError>(
        name, ": freeze: expected a body that does the same at every call, in one piece; got one ", got,
        ". Call the function itself. To find out, the body ran ", calls, calls == 1 ? " time" : " times",
        " with all its effects, as calls do: what it added to .grad, wrote and drew stays so");
  };
  wait_for_background(&site->options());
  std::optional<Run> previous;
  std::string reason;
  for (int runs = 0, waits = 0; runs < kMostRuns; ++runs) {
    Run run;
    run.copies = Copies(examples).take();
    ++calls;
    run.before = default_generator().state();
    {
      TraceScope scope(*site, run.capture);
      GradientWatch watch;
      run.results = body(run.copies);
      run.gradients = watch.take();
      scope.finish();
    }
    run.after = default_generator().state();
    const FlushCapture& capture = run.capture;
    if (capture.left_known_paths) refuse("that has too many paths, and takes a new one now");
    if (capture.flushes == 0) fail<TraceError>(name, ": nothing to freeze: the body records no op");
    if (capture.flushes > 1 || capture.reason != FlushReason::EndOfBody)
      refuse(describe_flush(capture.reason, capture.where));
    if (!capture.end) refuse("that has too many paths, and takes a new one now");
    if (!capture.executable) {
      wait_for_compile(*capture.end);
      std::lock_guard lock(capture.end->mutex);
      if (!capture.end->compile_error.empty())
        refuse("whose path cannot be compiled: " + capture.end->compile_error);
      reason = "whose path other threads compile all the time";
      if (++waits < kMostWaits) --runs;
      continue;
    }
    std::vector<FrozenPlan::RandomSlots> random = random_slots(run.path());
    if (const std::string more = obstacle(run, random); !more.empty()) {
      reason = more;
      previous.reset();
      continue;
    }
    if (previous) {
      reason = difference(*previous, run);
      if (reason.empty()) {
        const uint64_t drawn = run.after.offset - run.before.offset;
        auto plan = std::make_shared<FrozenPlan>(site, examples, run.copies, run.results, previous->results,
                                                 run.capture, std::move(random), drawn, run.gradients);
        std::vector<GradientWatch::Added> gradients;
        reason = release(run, gradients);
        if (reason.empty()) {
          plan->expect_gradients(std::move(gradients));
          return plan;
        }
        previous.reset();
        continue;
      }
    }
    previous = std::move(run);
  }
  refuse(reason);
  return nullptr;
}

}  // namespace etch::detail
