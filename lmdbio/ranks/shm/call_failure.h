// lmdbio/ranks/shm/call_failure.h - a failed system call as an error with a remedy.
//
// base/errno_error.h turns errno into words and a code. This adds the remedy if the descriptors of
// the process or of the host have run out, which large jobs meet first.
#ifndef LMDBIO_RANKS_SHM_CALL_FAILURE_H_
#define LMDBIO_RANKS_SHM_CALL_FAILURE_H_

#include <string>
#include <string_view>

#include "lmdbio/base/status.h"

namespace lmdbio::ranks {

// "connect: Connection refused". If descriptors have run out, the limit and the remedy follow:
// "accept: Too many open files (the limit of this process is 1024: raise it with ulimit -n)".
// error_number  errno after the call
std::string WordsOfFailure(std::string_view call, int error_number);

// These words as an error that keeps `error_number`. The code is kResourceExhausted if descriptors
// have run out, else `code`: the caller decides, because callers react differently to one errno.
// Memory of another kind may help, for example, if the kernel refuses a memory file.
tl::unexpected<Error> CallFailed(ErrorCode code, std::string_view call, int error_number);

}  // namespace lmdbio::ranks
#endif  // LMDBIO_RANKS_SHM_CALL_FAILURE_H_
