// CIFAR-10's binary format.
#pragma once

#include <string>

#include "nn/data/dataset.h"

namespace etch::data {

/// data_batch_1.bin to data_batch_5.bin, as many as there are, or test_batch.bin, with the class names of
/// batches.meta.txt. A record is a label byte and 3 x 32 x 32 bytes. Throws IoError, naming the file with
/// expected and found bytes, for a missing file or one that is not whole records of 3,073 bytes, and
/// IndexError for a label without a class.
Dataset load_cifar10(const std::string& directory, Split split);

}  // namespace etch::data
