// Goal: the error of a system call has the words of base/errno_error.h, and a remedy if descriptors
// have run out.
#include "lmdbio/ranks/shm/call_failure.h"

#include <sys/resource.h>

#include <cerrno>
#include <string>

#include "lmdbio/base/errno_error.h"
#include "tests/support/catch.h"

namespace lmdbio::ranks {
namespace {

TEST_CASE("CallFailed keeps the code of its caller, and errno", "[ranks][call_failure]") {
  const Error failed = CallFailed(ErrorCode::kUnsupported, "memfd_create", ENOSYS).value();
  CHECK(failed.code() == ErrorCode::kUnsupported);
  CHECK(failed.error_number() == ENOSYS);
  CHECK(failed.message() == ErrnoError(ENOSYS, "", "memfd_create").message());
}

TEST_CASE("CallFailed names the limit when descriptors have run out", "[ranks][call_failure]") {
  rlimit limit = {};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &limit) == 0);
  const Error process = CallFailed(ErrorCode::kUnsupported, "socket", EMFILE).value();
  CHECK(process.code() == ErrorCode::kResourceExhausted);
  CHECK(process.error_number() == EMFILE);
  CHECK(process.message() == ErrnoError(EMFILE, "", "socket").message() +
                                 " (the limit of this process is " +
                                 std::to_string(limit.rlim_cur) + ": raise it with ulimit -n)");
  const Error host = CallFailed(ErrorCode::kIo, "accept", ENFILE).value();
  CHECK(host.code() == ErrorCode::kResourceExhausted);
  CHECK(host.message().find("raise sysctl fs.file-max") != std::string::npos);
}

}  // namespace
}  // namespace lmdbio::ranks
