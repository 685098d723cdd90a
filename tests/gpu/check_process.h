// tests/gpu/check_process.h - a check in a process of its own, which a crash or a hang ends alone.
#ifndef LMDBIO_TESTS_GPU_CHECK_PROCESS_H_
#define LMDBIO_TESTS_GPU_CHECK_PROCESS_H_

#include <functional>
#include <string>

#include "tests/gpu/device_check.h"

namespace lmdbio::test {

// Forks a child that makes an outcome, and waits for it. Processes that the child has left are
// killed. An exception, a crash and a hang are kFailed.
// seconds_max  then the child is killed with all processes that it has started
// Requires: no other thread runs, and this process has not opened the driver
CheckOutcome RunInProcess(const std::function<CheckOutcome()>& make, double seconds_max);

}  // namespace lmdbio::test
#endif  // LMDBIO_TESTS_GPU_CHECK_PROCESS_H_
