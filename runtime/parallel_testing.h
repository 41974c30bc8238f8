// For tests: parallel work in small pieces.
#pragma once

#include <cstdint>

namespace etch {

/// From now on parallel_for() takes no larger grain than this, so that little work is split as well; 0: any.
void limit_grain(int64_t most);

}  // namespace etch
