// tests/support/check_failure.h - the message of a failed LMDBIO_CHECK, without ending the process.
#ifndef LMDBIO_TESTS_SUPPORT_CHECK_FAILURE_H_
#define LMDBIO_TESTS_SUPPORT_CHECK_FAILURE_H_

#include <string>

#include "lmdbio/base/check.h"

namespace lmdbio::test {

// Runs `call` and returns the line of the check that fails in it; "" if none does.
// Threads: one, as SetCheckFailureHook
template <typename Call>
std::string LineOfFailedCheck(Call&& call) {
  struct Failed {
    std::string line;
  };
  SetCheckFailureHook([](const char* line) { throw Failed{line}; });
  std::string line;
  try {
    call();
  } catch (const Failed& failed) {
    line = failed.line;
  }
  SetCheckFailureHook(nullptr);
  return line;
}

}  // namespace lmdbio::test
#endif  // LMDBIO_TESTS_SUPPORT_CHECK_FAILURE_H_
