// Formatting of error messages.
#include "runtime/error.h"

#include <charconv>

namespace etch {
namespace {

template <class T>
std::string print(T value) {
  char buffer[32];
  auto [end, status] = std::to_chars(buffer, buffer + sizeof buffer, value);
  return std::string(buffer, end);
}

}  // namespace

Piece::Piece(int64_t value) : owned_(print(value)), text_(owned_) {}
Piece::Piece(uint64_t value) : owned_(print(value)), text_(owned_) {}
Piece::Piece(double value) : owned_(print(value)), text_(owned_) {}

std::string join_text(std::initializer_list<Piece> pieces) {
  size_t length = 0;
  for (const Piece& piece : pieces) length += piece.text().size();
  std::string text;
  text.reserve(length);
  for (const Piece& piece : pieces) text += piece.text();
  return text;
}

}  // namespace etch
