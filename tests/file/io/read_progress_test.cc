// Goal: whatever one read meets on its way - interruptions, short reads, failures that pass and
// failures that stay, the end of the file - it brings all bytes or names the reason, after a
// bounded number of tries, with growing pauses.
// Method: a read call that follows a script; the oracle is the memory it copies from. Nothing
// sleeps: the pauses are collected.
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

// Answers the n-th call with the n-th step: so many bytes at most, or a negative error number. All
// later calls read what is wanted.
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

struct Outcome {
  Status status;
  std::vector<int64_t> pauses_ms;  // those that are not 0
};

Outcome ReadAll(ScriptedFile& file, const ReadRequest& request) {
  Outcome outcome;
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

TEST_CASE("A read is done at once if everything comes at once", "[io][read-progress]") {
  ScriptedFile file({});
  std::vector<std::byte> buffer(1000);
  REQUIRE(ReadAll(file, {0, buffer}).status);
  CHECK(test::AsText(buffer) == file.content());
  CHECK(file.call_count() == 1);
}

TEST_CASE("An empty read needs no call and takes any", "[io][read-progress]") {
  ReadProgress progress({7, {}});
  CHECK(progress.is_done());
  CHECK(progress.Take(0) == std::chrono::milliseconds(0));
}

TEST_CASE("A read goes on after short reads, interruptions and failures that pass",
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
    const Outcome outcome = ReadAll(file, {0, buffer});
    INFO("the first step is " << one.steps[0]);
    REQUIRE(outcome.status);
    CHECK(test::AsText(buffer) == file.content());
    CHECK(file.call_count() == one.steps.size() + 1);
    CHECK(outcome.pauses_ms == one.pauses_ms);
  }
}

TEST_CASE("A read gives up on a failure that stays", "[io][read-progress][fault]") {
  for (const int error_number : {EIO, EAGAIN, ECANCELED}) {
    ScriptedFile file(std::vector<ssize_t>(100, -error_number));
    std::vector<std::byte> buffer(1000);
    const Outcome outcome = ReadAll(file, {0, buffer});
    REQUIRE_FALSE(outcome.status);
    CHECK(outcome.status.error().code() == ErrorCode::kIo);
    CHECK(outcome.status.error().message() ==
          std::string("read of 1000 bytes at offset 0: ") + std::strerror(error_number));
    CHECK(file.call_count() == kReadFailuresMax);
    CHECK(outcome.pauses_ms == std::vector<int64_t>{2, 8, 32});
  }
}

TEST_CASE("A read does not retry a failure that cannot pass", "[io][read-progress][fault]") {
  ScriptedFile file({-EBADF});
  std::vector<std::byte> buffer(1000);
  const Outcome outcome = ReadAll(file, {0, buffer});
  REQUIRE_FALSE(outcome.status);
  CHECK(outcome.status.error().message() == "read of 1000 bytes at offset 0: Bad file descriptor");
  CHECK(file.call_count() == 1);
}

TEST_CASE("A read says where the file ends", "[io][read-progress][fault]") {
  ScriptedFile file({100, -EIO});
  std::vector<std::byte> buffer(600);
  const Outcome outcome = ReadAll(file, {500, buffer});
  REQUIRE_FALSE(outcome.status);
  CHECK(outcome.status.error().code() == ErrorCode::kCorruption);
  CHECK(outcome.status.error().message() ==
        "the file ends at byte 1000, inside a read of 600 bytes at 500");
  CHECK(test::AsText(buffer).substr(0, 500) == file.content().substr(500));
}

TEST_CASE("ReadFully reads a file, and says where it ends", "[io][read-progress]") {
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
