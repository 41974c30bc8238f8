// Tensors by name in files of the safetensors format, which other libraries read and write too.
#pragma once

#include <map>
#include <string>

#include "nn/module.h"

namespace etch::nn {

/// Free text kept beside the tensors.
using Metadata = std::map<std::string, std::string>;

/// Writes the tensors' values, of all dtypes and layouts, row-major: save_safetensors("model.safetensors",
/// model.state_dict()). The file is written beside `path` and moved there when it is complete, so a failure
/// leaves what was there. Throws ValueError for repeated, reserved ("__metadata__") or non-UTF-8 names and
/// undefined tensors, IoError when writing fails.
void save_safetensors(const std::string& path, const NamedTensors& tensors, const Metadata& metadata = {});

/// Reads such a file into new tensors on the CPU, in the order of their bytes:
/// model.load_state_dict(load_safetensors("model.safetensors")). `metadata`, if given, gets the free text.
/// Throws IoError, naming the file and what is wrong, for one that is missing, truncated or not exactly what
/// the format allows; nothing that the file claims is allocated before it has been checked against its size.
NamedTensors load_safetensors(const std::string& path, Metadata* metadata = nullptr);

}  // namespace etch::nn
