// Uses an installed Etch as a user's file would.
#include <etch/etch.h>

#include <cstdio>

int main() {
  const std::string help = etch::config_help();
  std::puts(help.c_str());
  return help.find("ETCH_LOG") == std::string::npos;
}
