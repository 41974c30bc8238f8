// One background thread for work that no call waits for.
#pragma once

#include <functional>

namespace etch {

/// Runs `job` on the process's background thread, after the jobs queued before it. `job` must not throw.
/// `owner` names what it refers to: see the next two. When the process exits, queued jobs are dropped and the
/// running one is waited for.
void run_in_background(const void* owner, std::function<void()> job);
/// Returns when no job of this owner is queued or running.
void wait_for_background(const void* owner);
/// Drops the owner's queued jobs and waits for its running one, unless that is the caller. To be called
/// before what they refer to goes.
void cancel_background(const void* owner);

}  // namespace etch
