// Printing of tensors in PyTorch's manner.
//
// tensor([[1.0000, 2.5000],
//         [   nan,   -inf]], dtype=f64)
//
// Floats have four digits, or none when all are whole, or an exponent when the largest is above 1e8 or 1000
// times the smallest, or the smallest below 1e-4. Above 1000 elements each axis shows its first and last
// three. After the values: `size=` where the brackets do not tell it (empty tensors), `dtype=` unless it is
// f32, i64 or bool, `device=` unless it is the CPU, and `grad_fn=<...>` or `requires_grad=true`.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ostream>

#include "eager/tensor.h"

namespace etch {

namespace {

constexpr int64_t kSummariseAbove = 1000, kEdgeItems = 3;
constexpr int kLineWidth = 80;

/// The positions of an axis that are shown; -1 stands for the dots.
std::vector<int64_t> shown_positions(int64_t size, bool summarise) {
  std::vector<int64_t> positions;
  for (int64_t i = 0; i < size; ++i) {
    if (summarise && size > 2 * kEdgeItems && i == kEdgeItems) {
      positions.push_back(-1);
      i = size - kEdgeItems;
    }
    positions.push_back(i);
  }
  return positions;
}

std::string printed(const char* format, double value) {
  char text[64];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

/// How all elements of a tensor are written; chosen from those that are shown.
class ElementStyle {
 public:
  explicit ElementStyle(const std::vector<double>& values) {
    bool whole = true;
    double low = 0, high = 0;
    for (double value : values) {
      if (!std::isfinite(value) || value == 0) continue;
      const double size = std::abs(value);
      whole &= value == std::ceil(value);
      low = low == 0 ? size : std::min(low, size);
      high = std::max(high, size);
    }
    const bool exponent = high > 1e8 || (low > 0 && high / low > 1000) || (!whole && low < 1e-4 && low > 0);
    format_ = exponent ? "%.4e" : whole ? "%.0f." : "%.4f";
  }
  std::string operator()(double value) const {
    if (std::isnan(value)) return "nan";
    if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
    return printed(format_, value);
  }

 private:
  const char* format_;
};

double to_double(Half value) { return to_float(value); }
double to_double(BFloat16 value) { return to_float(value); }
double to_double(float value) { return value; }
double to_double(double value) { return value; }

class Printer {
 public:
  explicit Printer(const Tensor& tensor)
      : geometry_(tensor.impl().geometry), summarise_(tensor.numel() > kSummariseAbove) {
    visit_dtype(tensor.dtype(), [&]<class T>() { format_elements(tensor.data<T>()); });
    for (const std::string& text : texts_) width_ = std::max(width_, text.size());
  }

  /// The brackets; continued lines are indented by `indent`.
  std::string print(size_t indent) {
    next_ = 0;
    return print_axis(0, indent);
  }

 private:
  template <class T>
  void format_elements(const T* data) {
    std::vector<T> values;
    collect(data, 0, 0, values);
    if constexpr (std::is_same_v<T, bool>) {
      for (bool value : values) texts_.push_back(value ? "true" : "false");
    } else if constexpr (std::is_integral_v<T>) {
      for (T value : values) texts_.push_back(std::to_string(value));
    } else {
      std::vector<double> numbers;
      for (T value : values) numbers.push_back(to_double(value));
      const ElementStyle style(numbers);
      for (double number : numbers) texts_.push_back(style(number));
    }
  }

  /// The elements that are shown, in logical order.
  template <class T>
  void collect(const T* data, int axis, int64_t offset, std::vector<T>& values) const {
    if (axis == geometry_.ndim()) {
      values.push_back(data[offset]);
      return;
    }
    for (int64_t i : shown_positions(geometry_.sizes[axis], summarise_))
      if (i >= 0) collect(data, axis + 1, offset + i * geometry_.strides[axis], values);
  }

  std::string next_element() {
    const std::string& text = texts_[next_++];
    return std::string(width_ - text.size(), ' ') + text;
  }

  std::string print_axis(int axis, size_t indent) {
    if (axis == geometry_.ndim()) return next_element();
    const std::vector<int64_t> positions = shown_positions(geometry_.sizes[axis], summarise_);
    const std::string margin(indent + 1, ' ');
    std::string text = "[";
    if (axis == geometry_.ndim() - 1) {
      const size_t room = kLineWidth > indent ? kLineWidth - indent : 1;
      const size_t per_line = std::max<size_t>(1, room / (width_ + 2));
      for (size_t k = 0; k < positions.size(); ++k) {
        if (k > 0) text += k % per_line == 0 ? ",\n" + margin : ", ";
        text += positions[k] < 0 ? " ..." : next_element();
      }
      return text + "]";
    }
    const std::string between =
        "," + std::string(static_cast<size_t>(geometry_.ndim() - axis - 1), '\n') + margin;
    for (size_t k = 0; k < positions.size(); ++k) {
      if (k > 0) text += between;
      text += positions[k] < 0 ? "..." : print_axis(axis + 1, indent + 1);
    }
    return text + "]";
  }

  Geometry geometry_;
  bool summarise_;
  std::vector<std::string> texts_;
  size_t width_ = 0, next_ = 0;
};

}  // namespace

std::string Tensor::to_string() const {
  if (!defined()) return "tensor(undefined)";
  const std::string head = "tensor(";
  std::string text = head;
  if (numel() == 0) {
    text += "[]";
    if (ndim() != 1) text += ", size=" + etch::to_string(sizes());
  } else {
    const Tensor host = device() == Device::cpu() ? *this : no_grad([&] { return to(Device::cpu()); });
    text += Printer(host).print(head.size());
  }
  const DType type = dtype();
  if (type != DType::F32 && type != DType::I64 && type != DType::Bool)
    text += ", dtype=" + std::string(name(type));
  if (device() != Device::cpu()) text += ", device=" + etch::to_string(device());
  if (const std::string function = grad_fn(); !function.empty())
    text += ", grad_fn=<" + function + ">";
  else if (requires_grad())
    text += ", requires_grad=true";
  return text + ")";
}

std::ostream& operator<<(std::ostream& out, const Tensor& tensor) { return out << tensor.to_string(); }

}  // namespace etch
