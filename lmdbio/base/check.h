// lmdbio/base/check.h - ends the process when an invariant of lmdbio is broken.
//
// LMDBIO_CHECK stays on in Release, because silently wrong training data is worse than a dead job.
// Data from a file, a peer, the kernel or a caller is never checked this way: it yields an Error
// (lmdbio/base/status.h).
#ifndef LMDBIO_BASE_CHECK_H_
#define LMDBIO_BASE_CHECK_H_

namespace lmdbio {

// Called with one line ("FILE:LINE: CHECK failed: EXPR") before the process aborts. A language
// runtime may install a hook of its own, to unwind or to report. The hook should not return.
// nullptr restores the default, which writes the line to standard error.
// Threads: install before other threads run.
using CheckFailureHook = void (*)(const char* line);
void SetCheckFailureHook(CheckFailureHook hook);

namespace internal {
[[noreturn]] void CheckFailed(const char* file, int line, const char* expression);
}  // namespace internal
}  // namespace lmdbio

#define LMDBIO_CHECK(condition)                                        \
  do {                                                                 \
    if (!(condition)) [[unlikely]] {                                   \
      ::lmdbio::internal::CheckFailed(__FILE__, __LINE__, #condition); \
    }                                                                  \
  } while (false)

// For hot loops. It is on without NDEBUG, as in the dev, tsan and fuzz presets.
#ifdef NDEBUG
#define LMDBIO_DCHECK(condition) \
  do {                           \
  } while (false && (condition))
#else
#define LMDBIO_DCHECK(condition) LMDBIO_CHECK(condition)
#endif

#endif  // LMDBIO_BASE_CHECK_H_
