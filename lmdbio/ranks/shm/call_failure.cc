#include "lmdbio/ranks/shm/call_failure.h"

#include <sys/resource.h>

#include <cerrno>

#include <fmt/format.h>

#include "lmdbio/base/errno_error.h"

namespace lmdbio::ranks {
namespace {

// " (the limit and how to raise it)" for an errno that says that descriptors have run out; else "".
std::string RemedyOf(int error_number) {
  rlimit limit = {};
  if (error_number == EMFILE && ::getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    return fmt::format(" (the limit of this process is {}: raise it with ulimit -n)",
                       limit.rlim_cur);
  }
  if (error_number == ENFILE) return " (the limit of this host: raise sysctl fs.file-max)";
  return "";
}

}  // namespace

std::string WordsOfFailure(std::string_view call, int error_number) {
  return ErrnoError(error_number, /*path=*/"", call).message() + RemedyOf(error_number);
}

tl::unexpected<Error> CallFailed(ErrorCode code, std::string_view call, int error_number) {
  const bool is_limit = error_number == EMFILE || error_number == ENFILE;
  const ErrorCode known = ErrnoError(error_number, /*path=*/"", call).code();
  return Fail(is_limit ? known : code, WordsOfFailure(call, error_number), error_number);
}

}  // namespace lmdbio::ranks
