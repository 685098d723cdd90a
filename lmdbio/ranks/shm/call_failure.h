// lmdbio/ranks/shm/call_failure.h - a system call that failed, as an error that says what to do.
#ifndef LMDBIO_RANKS_SHM_CALL_FAILURE_H_
#define LMDBIO_RANKS_SHM_CALL_FAILURE_H_

#include <string>
#include <string_view>

#include "lmdbio/base/status.h"

namespace lmdbio::ranks {

// "connect: Connection refused". Where descriptors have run out, the limit and its remedy follow:
// "accept: Too many open files (the limit of this process is 1024: raise it with ulimit -n)".
// error_number  errno as the call left it
std::string WordsOfFailure(std::string_view call, int error_number);

// These words as an error: kResourceExhausted where descriptors have run out, else `code`.
tl::unexpected<Error> CallFailed(ErrorCode code, std::string_view call, int error_number);

}  // namespace lmdbio::ranks
#endif  // LMDBIO_RANKS_SHM_CALL_FAILURE_H_
