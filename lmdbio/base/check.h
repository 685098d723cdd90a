// lmdbio/base/check.h - the end of the process when *we* are wrong.
//
// LMDBIO_CHECK guards our own invariants and stays on in Release: silently wrong training data is
// worse than a dead job. Anything that comes from a file, a peer, the kernel or a caller is no
// invariant of ours and must become an Error (lmdbio/base/status.h).
#ifndef LMDBIO_BASE_CHECK_H_
#define LMDBIO_BASE_CHECK_H_

namespace lmdbio {

// Called with one line ("FILE:LINE: CHECK failed: EXPR") before the process aborts. A host such as
// a language runtime may install its own to unwind or report; it should not return. nullptr
// restores the default, which writes the line to standard error. Threads: install before other
// threads run.
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

// For hot loops: on where NDEBUG is not defined, as in the dev, tsan and fuzz presets.
#ifdef NDEBUG
#define LMDBIO_DCHECK(condition) \
  do {                           \
  } while (false && (condition))
#else
#define LMDBIO_DCHECK(condition) LMDBIO_CHECK(condition)
#endif

#endif  // LMDBIO_BASE_CHECK_H_
