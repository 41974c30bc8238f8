// Typed errors. User mistakes derive from Error; InternalError means Etch itself is at fault.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <string_view>

namespace etch {

/// Base of every error a user can cause. The text reads `op: expected X, got Y`, with the remedy where there
/// is one.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};
/// Sizes, strides or axes that do not fit.
class ShapeError : public Error {
 public:
  using Error::Error;
};
/// A dtype an op cannot work with.
class DTypeError : public Error {
 public:
  using Error::Error;
};
/// An index or label out of range.
class IndexError : public Error {
 public:
  using Error::Error;
};
/// A scalar argument or option out of range.
class ValueError : public Error {
 public:
  using Error::Error;
};
/// Misuse of the tape: freed graph, overwritten saved tensor, in-place on a leaf.
class AutogradError : public Error {
 public:
  using Error::Error;
};
/// The memory limit or the machine's memory is exceeded. The text carries memory_summary().
class OutOfMemoryError : public Error {
 public:
  using Error::Error;
};
/// No such device, or tensors on different devices.
class DeviceError : public Error {
 public:
  using Error::Error;
};
/// A deferred tensor used where the contract of traced functions forbids it.
class TraceError : public Error {
 public:
  using Error::Error;
};
/// A file is missing, unreadable, or not what it should be.
class IoError : public Error {
 public:
  using Error::Error;
};
/// A broken invariant inside Etch.
class InternalError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

/// One piece of a message: text or a number, without streams.
class Piece {
 public:
  Piece(std::string_view text) : text_(text) {}
  Piece(const char* text) : text_(text) {}
  Piece(const std::string& text) : text_(text) {}
  Piece(int value) : Piece(static_cast<int64_t>(value)) {}
  Piece(unsigned value) : Piece(static_cast<int64_t>(value)) {}
  Piece(int64_t value);
  Piece(uint64_t value);
  Piece(double value);
  Piece(bool value) : text_(value ? "true" : "false") {}
  std::string_view text() const { return text_; }

 private:
  std::string owned_;
  std::string_view text_;
};

/// The pieces, joined without separators.
std::string join_text(std::initializer_list<Piece> pieces);

template <class E = Error, class... Pieces>
[[noreturn]] void fail(const Pieces&... pieces) {
  throw E(join_text({Piece(pieces)...}));
}

/// Throws `E` with the joined pieces unless the condition holds; the pieces are only evaluated on failure.
#define ETCH_CHECK(condition, E, ...)       \
  do {                                      \
    if (!(condition)) [[unlikely]]          \
      ::etch::fail<::etch::E>(__VA_ARGS__); \
  } while (false)

/// Throws InternalError naming the place unless the invariant holds.
#define ETCH_INVARIANT(condition)                                                                       \
  do {                                                                                                  \
    if (!(condition)) [[unlikely]]                                                                      \
      ::etch::fail<::etch::InternalError>(__FILE__, ":", __LINE__, ": invariant broken: ", #condition); \
  } while (false)

}  // namespace etch
