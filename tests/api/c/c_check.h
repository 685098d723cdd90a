/* tests/api/c/c_check.h - a check for programs in C: prints and counts conditions that fail. */
#ifndef LMDBIO_TESTS_API_C_C_CHECK_H_
#define LMDBIO_TESTS_API_C_C_CHECK_H_

#include <stdio.h>
#include <string.h>

static int c_check_failures = 0;

#define CHECK(condition)                                                            \
  do {                                                                              \
    if (!(condition)) {                                                             \
      fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition); \
      ++c_check_failures;                                                           \
    }                                                                               \
  } while (0)

/* 0 under the thread sanitizer, whose state does not survive a fork while threads run. */
static inline int c_check_can_fork(void) {
#ifdef __SANITIZE_THREAD__
  fprintf(stderr, "skipped: a fork beside threads, under the thread sanitizer\n");
  return 0;
#else
  return 1;
#endif
}

/* Checks a status, and prints the message of its handle if it is another. */
#define CHECK_STATUS(expected, call, message)                                                      \
  do {                                                                                             \
    const int status_ = (call);                                                                    \
    if (status_ != (expected)) {                                                                   \
      fprintf(stderr, "%s:%d: %s gives %d (%s), not %d: %s\n", __FILE__, __LINE__, #call, status_, \
              lmdbio_strerror(status_), (int)(expected), (message));                               \
      ++c_check_failures;                                                                          \
    }                                                                                              \
  } while (0)

#endif /* LMDBIO_TESTS_API_C_C_CHECK_H_ */
