#include "lmdbio/ranks/shm/call_failure.h"

#include <sys/resource.h>

#include <cerrno>
#include <system_error>

#include <fmt/format.h>

namespace lmdbio::ranks {

std::string WordsOfFailure(std::string_view call, int error_number) {
  std::string words = fmt::format("{}: {}", call, std::generic_category().message(error_number));
  rlimit limit = {};
  if (error_number == EMFILE && ::getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    words +=
        fmt::format(" (the limit of this process is {}: raise it with ulimit -n)", limit.rlim_cur);
  }
  if (error_number == ENFILE) words += " (the limit of this host: raise sysctl fs.file-max)";
  return words;
}

tl::unexpected<Error> CallFailed(ErrorCode code, std::string_view call, int error_number) {
  const bool is_limit = error_number == EMFILE || error_number == ENFILE;
  return Fail(is_limit ? ErrorCode::kResourceExhausted : code, WordsOfFailure(call, error_number),
              error_number);
}

}  // namespace lmdbio::ranks
