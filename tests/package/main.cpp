// Uses an installed Etch as a user's file would.
#include <etch/etch.h>

#include <cstdio>

int main() {
  const std::string help = etch::config_help();
  std::puts(help.c_str());
  // A batch of small products needs whatever library multiplies them.
  const etch::Tensor ones = etch::ones({4, 40, 40}), product = etch::matmul(ones, ones);
  return help.find("ETCH_LOG") == std::string::npos || etch::sum(product).item<float>() != 4 * 40 * 40 * 40;
}
