// tests/support/check_in_child.h - CHECK for a check that runs in a child process (in_child.h).
//
//   CheckInChild([&] {
//     if (!RefuseSystemCall({SYS_statx, EPERM})) return Verdict::kCannotTell;
//     CHILD_CHECK(Open(path));
//     return Verdict::kRight;
//   });
#ifndef LMDBIO_TESTS_SUPPORT_CHECK_IN_CHILD_H_
#define LMDBIO_TESTS_SUPPORT_CHECK_IN_CHILD_H_

#include <cstdio>
#include <functional>

#include "tests/support/catch.h"
#include "tests/support/in_child.h"

namespace lmdbio::test {

// Only the verdict comes back from a child, so the child prints which check has failed.
#define CHILD_CHECK(condition)                                                     \
  do {                                                                             \
    if (!(condition)) {                                                            \
      std::fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
      return ::lmdbio::test::Verdict::kWrong;                                      \
    }                                                                              \
  } while (false)

// Requires: no other thread runs
inline void CheckInChild(const std::function<Verdict()>& check) {
  const Verdict verdict = InChild(check);
  if (verdict == Verdict::kCannotTell) WARN("skipped: this system cannot refuse the call");
  CHECK(verdict != Verdict::kWrong);
}

}  // namespace lmdbio::test
#endif  // LMDBIO_TESTS_SUPPORT_CHECK_IN_CHILD_H_
