// lmdbio/base/thread_slices.h - the time slice of a thread on a core that it shares with others.
//
// A thread with short slices gets no more processor time, but gets it sooner. A thread that works
// for a few microseconds after each wake-up does not wait for the long slices of computing threads
// to end. The call needs no privilege.
//
// See Documentation/scheduler/sched-eevdf.rst of Linux, and sched_setattr(2).
#ifndef LMDBIO_BASE_THREAD_SLICES_H_
#define LMDBIO_BASE_THREAD_SLICES_H_

#include <chrono>
#include <optional>

namespace lmdbio {

// The shortest slice that the kernel grants.
constexpr auto kShortSlice = std::chrono::microseconds(100);

// The slice of the calling thread. nullopt if the kernel does not report it (before Linux 6.12) or
// forbids the call.
std::optional<std::chrono::nanoseconds> ThreadSlice();

// Gives the calling thread, and the threads that it starts later, slices of kShortSlice. Does
// nothing if the kernel has no slices for single threads (before Linux 6.12), if it forbids the
// call, or if the thread has a realtime policy.
void ShortenThreadSlices();

}  // namespace lmdbio
#endif  // LMDBIO_BASE_THREAD_SLICES_H_
