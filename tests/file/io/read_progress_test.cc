// Goal: a read returns all bytes or names the reason, after a bounded number of calls with growing
// pauses. It may meet interruptions, short reads, transient and permanent failures, and the end of
// the file. Method: a read call that follows a script. The oracle is the memory that it copies
// from. The test does not sleep; it collects the pauses.
#include "lmdbio/file/io/read_progress.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "lmdbio/base/unique_fd.h"
#include "tests/support/catch.h"
#include "tests/support/file_bytes.h"
#include "tests/support/random.h"
#include "tests/support/temp_dir.h"

namespace lmdbio::file {
namespace {

// The n-th call returns the n-th step: at most so many bytes, or a negative error number. Later
// calls read all requested bytes.
class ScriptedFile {
 public:
  explicit ScriptedFile(std::vector<ssize_t> steps, size_t size_bytes = 1000)
      : content_(test::Random(1).BytesOf(size_bytes)), steps_(std::move(steps)) {}

  ssize_t Read(const ReadProgress& progress) {
    const size_t call = call_count_++;
    const size_t offset = std::min<size_t>(content_.size(), progress.offset());
    size_t count = std::min(progress.rest().size(), content_.size() - offset);
    if (call < steps_.size() && steps_[call] < 0) return steps_[call];
    if (call < steps_.size()) count = std::min(count, static_cast<size_t>(steps_[call]));
    std::memcpy(progress.rest().data(), content_.data() + offset, count);
    return static_cast<ssize_t>(count);
  }

  const std::string& content() const { return content_; }
  size_t call_count() const { return call_count_; }

 private:
  std::string content_;
  std::vector<ssize_t> steps_;
  size_t call_count_ = 0;
};

struct RetryOutcome {
  Status status;
  std::vector<int64_t> pauses_ms;  // pauses other than 0
};

RetryOutcome ReadAll(ScriptedFile& file, const ReadRequest& request) {
  RetryOutcome outcome;
  for (ReadProgress progress(request); !progress.is_done();) {
    auto pause = progress.Take(file.Read(progress));
    if (!pause) {
      outcome.status = Fail(std::move(pause).error());
      return outcome;
    }
    if (pause->count() > 0) outcome.pauses_ms.push_back(pause->count());
  }
  return outcome;
}

TEST_CASE("A read is done after one complete call", "[io][read-progress]") {
  ScriptedFile file({});
  std::vector<std::byte> buffer(1000);
  REQUIRE(ReadAll(file, {0, buffer}).status);
  CHECK(test::AsText(buffer) == file.content());
  CHECK(file.call_count() == 1);
}

TEST_CASE("An empty read needs no call and ignores any result", "[io][read-progress]") {
  ReadProgress progress({7, {}});
  CHECK(progress.is_done());
  CHECK(progress.Take(0) == std::chrono::milliseconds(0));
}

TEST_CASE("A read continues after short reads, interruptions and transient failures",
          "[io][read-progress][fault]") {
  struct Case {
    std::vector<ssize_t> steps;
    std::vector<int64_t> pauses_ms;
  };
  for (const Case& one :
       std::vector<Case>{{{1, 1, 1}, {}},
                         {{999}, {}},
                         {{-EINTR, -EINTR, -EINTR, -EINTR, -EINTR, -EINTR}, {}},
                         {{-EIO}, {2}},
                         {{-ECANCELED}, {2}},
                         {{-EAGAIN, 10, -EIO, 20, -EINTR, -EAGAIN, 30}, {2, 8, 32}}}) {
    ScriptedFile file(one.steps);
    std::vector<std::byte> buffer(1000);
    const RetryOutcome outcome = ReadAll(file, {0, buffer});
    INFO("the first step is " << one.steps[0]);
    REQUIRE(outcome.status);
    CHECK(test::AsText(buffer) == file.content());
    CHECK(file.call_count() == one.steps.size() + 1);
    CHECK(outcome.pauses_ms == one.pauses_ms);
  }
}

TEST_CASE("A read fails after repeated transient failures", "[io][read-progress][fault]") {
  for (const int error_number : {EIO, EAGAIN, ECANCELED}) {
    ScriptedFile file(std::vector<ssize_t>(100, -error_number));
    std::vector<std::byte> buffer(1000);
    const RetryOutcome outcome = ReadAll(file, {0, buffer});
    REQUIRE_FALSE(outcome.status);
    CHECK(outcome.status.error().code() == ErrorCode::kIo);
    CHECK(outcome.status.error().message() ==
          std::string("read of 1000 bytes at offset 0: ") + std::strerror(error_number));
    CHECK(file.call_count() == kReadFailuresMax);
    CHECK(outcome.pauses_ms == std::vector<int64_t>{2, 8, 32});
  }
}

TEST_CASE("A read does not retry a permanent failure", "[io][read-progress][fault]") {
  ScriptedFile file({-EBADF});
  std::vector<std::byte> buffer(1000);
  const RetryOutcome outcome = ReadAll(file, {0, buffer});
  REQUIRE_FALSE(outcome.status);
  CHECK(outcome.status.error().message() == "read of 1000 bytes at offset 0: Bad file descriptor");
  CHECK(file.call_count() == 1);
}

TEST_CASE("A read past the end reports the file size", "[io][read-progress][fault]") {
  ScriptedFile file({100, -EIO});
  std::vector<std::byte> buffer(600);
  const RetryOutcome outcome = ReadAll(file, {500, buffer});
  REQUIRE_FALSE(outcome.status);
  CHECK(outcome.status.error().code() == ErrorCode::kCorruption);
  CHECK(outcome.status.error().message() ==
        "the file ends at byte 1000, inside a read of 600 bytes at 500");
  CHECK(test::AsText(buffer).substr(0, 500) == file.content().substr(500));
}

TEST_CASE("ReadFully reads a file and reports its end", "[io][read-progress]") {
  const test::TempDir dir;
  test::WriteWholeFile(dir.path() / "file", test::AsBytes("0123456789"));
  const UniqueFd fd(::open((dir.path() / "file").c_str(), O_RDONLY | O_CLOEXEC));
  std::vector<std::byte> buffer(6);
  REQUIRE(ReadFully(fd.get(), {4, buffer}));
  CHECK(test::AsText(buffer) == "456789");
  CHECK(ReadFully(fd.get(), {5, buffer}).error().code() == ErrorCode::kCorruption);
}

}  // namespace
}  // namespace lmdbio::file
