// The limit on compiled paths in the process: the least recently used ones are dropped, and compiled again
// when they are seen again.
#pragma once

#include "tracer/site.h"

namespace etch {

/// Notes that the end's executable is used now.
void touch(PathEnd& end);
/// `end` has just got an executable: drops those that are too many, except this one. Calls that run a
/// dropped executable keep it until they are done.
void evict_beyond_limit(PathEnd& end);
/// Before `end` is destroyed.
void forget_executables(PathEnd& end);
/// Whether it is time to compile an evicted path again: at once the first time, then after twice as many
/// calls each time, so that paths which push each other out do not compile for ever. Under end.mutex.
bool may_compile_again(const PathEnd& end);

}  // namespace etch
