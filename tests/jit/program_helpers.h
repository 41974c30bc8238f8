// What the statements of random programs call: ops made to fit whatever values they get.
#pragma once

#include "eager/functional.h"
#include "jit/compile.h"
#include "runtime/error.h"
#include "tests/jit/program_generator.h"

namespace etch::fuzz {

/// Leaves a body in mid-course.
struct Stop {};

/// Notes in the log what kind of error it was, and of those that data raise the message as well.
void note(World& w, const Error& error);
/// Runs it; notes an error instead of letting it pass, and returns whether there was none.
template <class F>
bool attempt(World& w, F&& f) {
  try {
    f();
    return true;
  } catch (const Error& error) {
    note(w, error);
    return false;
  }
}
/// Whether the sum of `x` is; false if it cannot be read.
bool is_positive(const Tensor& x);

/// `x`, or something made from it that broadcasts with `like`.
Tensor fit(const Tensor& x, const Tensor& like);
/// `x` in the dtype of `like`, broadcastable to its sizes.
Tensor into(const Tensor& x, const Tensor& like);
Tensor floating(const Tensor& x);
/// To the dtype of that number, without values that it cannot hold.
Tensor cast(const Tensor& x, int64_t number);
Tensor without_zeros(const Tensor& x);
/// NaN, -0, 0, infinity, ... by number.
double special(int64_t number);
int64_t axis(const Tensor& x, int64_t number);
/// The same memory without its tape.
Tensor target(const Tensor& x);
Tensor param(World& w, int64_t number);
Tensor buffer(World& w, int64_t number);
/// A run of about half an axis that starts at a place that `shift` moves.
Tensor window(const Tensor& x, int64_t number, int64_t shift);
Dims and_last(const Tensor& x, int64_t count);
/// x[1:] += x[:-1] along an axis.
void shift_add(Tensor x, int64_t number);
/// Some positions of an axis.
Tensor positions(const Tensor& x, int64_t number, int64_t shift);
Tensor gathered(const Tensor& x, int64_t number, int64_t shift);
Tensor scattered(const Tensor& x, const Tensor& source, int64_t number, int64_t shift);
Tensor rows(const Tensor& x);
Tensor labels(const Tensor& rows, int64_t shift);
Tensor normed(const Tensor& x);
Tensor batch_normed(World& w, const Tensor& x, bool training);
Tensor product(const Tensor& a, const Tensor& b);
Tensor convolved(const Tensor& x, const Tensor& weight);
/// Attention of sizes that become tiles, over numbers made from a, b and c: masks, fills, special values,
/// bias, dropout, scores or weights that are kept, writes and a backward afterwards, all by `kind`.
Tensor attention(World& w, const Tensor& a, const Tensor& b, const Tensor& c, double kind, int call);
Tensor pooled(const Tensor& x, int64_t kind);
void backward(const Tensor& x);
void backward_twice(const Tensor& x);
/// Doubles the gradient that reaches `x`, and has the host look at it.
void hook(World& w, const Tensor& x);
Tensor second_gradient(const Tensor& x);
void sgd(World& w, double rate);
void adam(World& w, double rate);
void zero_grads(World& w);
void keep(World& w, const Tensor& x);
/// A parameter gets new storage.
void renew(World& w, int64_t number);
void host_write(Tensor x, double value);
/// Writes its first element through a raw pointer.
void poke(Tensor x, double value);
/// Elementwise through memory on the tape: part of a copy is overwritten, scaled, added to.
Tensor rewritten(const Tensor& x, const Tensor& from, int64_t number, int64_t part);
/// An op with a backward of its own.
Tensor cubed(const Tensor& x, double scale);
/// A function with ETCH_TRACED in it.
Tensor traced(const Tensor& x, double value);
/// One of Sgd with momentum, Sgd with Nesterov momentum, Adam, AdamW over the first parameters.
void optimizer_step(World& w, int64_t number, double rate);
void clip(World& w);
/// A parameter becomes f64, bf16, f16 or f32.
void recast(World& w, int64_t number, int64_t dtype);
/// Overwrites all parameters and buffers, as loading a checkpoint does.
void load(World& w, double value);
void leaf_hook(World& w, const Tensor& x);
Tensor retained(const Tensor& x);
/// Integers at and beyond the ends of their range.
Tensor extreme(const Tensor& x, int64_t number);

// What data make impossible: indices and labels out of range, integer division by zero.

Tensor bad_lookup(const Tensor& x, int64_t number);
Tensor bad_labels(const Tensor& x, int64_t number);
Tensor divided_by_zeros(const Tensor& x, int64_t number);
/// The same, as a write of `into` that does not happen.
void bad_write(Tensor into, int64_t number);

}  // namespace etch::fuzz
