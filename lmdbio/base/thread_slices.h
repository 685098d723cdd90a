// lmdbio/base/thread_slices.h - for how long the kernel runs a thread at a time where others want
// the core, too.
//
// Who asks for short slices gets no more processor time, but gets it sooner: a thread that works
// for some microseconds whenever it is woken need not wait for the slices of those that compute to
// end. No privilege is needed.
//
// See Documentation/scheduler/sched-eevdf.rst of Linux, and sched_setattr(2).
#ifndef LMDBIO_BASE_THREAD_SLICES_H_
#define LMDBIO_BASE_THREAD_SLICES_H_

#include <chrono>
#include <optional>

namespace lmdbio {

// The least that the kernel grants.
constexpr auto kShortSlice = std::chrono::microseconds(100);

// Of the calling thread. None: this kernel does not tell (before Linux 6.12), or forbids to ask.
std::optional<std::chrono::nanoseconds> ThreadSlice();

// From now on the calling thread, and those it starts, run in slices of kShortSlice. Does nothing
// where the kernel has no slices for single threads (before Linux 6.12), or forbids it, or where
// the thread has a realtime policy.
void ShortenThreadSlices();

}  // namespace lmdbio
#endif  // LMDBIO_BASE_THREAD_SLICES_H_
