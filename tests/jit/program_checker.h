// A compiler whose executables compare what they write with the reference interpreter.
#pragma once

#include <string>

#include "tracer/path.h"

namespace etch::fuzz {

/// For register_compiler(). Elements that depend much on rounding, by the interpreter's own measure, are not
/// compared.
Ref<Executable> checked_compile(const Path& path, const LiveSet& live, const CompileOptions& options);

/// What the interpreter disagreed with first since the last call; empty if nothing.
std::string take_disagreement();

}  // namespace etch::fuzz
