// Goal: whatever one read meets on its way - interruptions, short reads, failures that pass and
// failures that stay, the end of the file - it brings all bytes or names the reason, after a
// bounded number of tries, and counts them.
// Method: a read call that follows a script; the oracle is the memory it copies from.
#include "lmdbio/io/read_fully.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/file_bytes.h"
#include "tests/support/random.h"

namespace lmdbio::io {
namespace {

// Answers the n-th call with the n-th step: so many bytes at most, or a negative error number. All
// later calls read what is wanted.
class ScriptedFile {
 public:
  explicit ScriptedFile(std::vector<ssize_t> steps, size_t size_bytes = 1000)
      : content_(test::Random(1).BytesOf(size_bytes)), steps_(std::move(steps)) {}

  ReadCall call() {
    return [this](uint64_t offset, MutableBytes destination) { return Read(offset, destination); };
  }
  const std::string& content() const { return content_; }
  size_t call_count() const { return call_count_; }

 private:
  ssize_t Read(uint64_t offset, MutableBytes destination) {
    const size_t call = call_count_++;
    size_t count =
        std::min(destination.size(), content_.size() - std::min(content_.size(), offset));
    if (call < steps_.size() && steps_[call] < 0) return steps_[call];
    if (call < steps_.size()) count = std::min(count, static_cast<size_t>(steps_[call]));
    std::memcpy(destination.data(), content_.data() + offset, count);
    return static_cast<ssize_t>(count);
  }

  std::string content_;
  std::vector<ssize_t> steps_;
  size_t call_count_ = 0;
};

struct Outcome {
  Status status;
  ReadTally tally;
  std::string bytes;
};

Outcome ReadAll(ScriptedFile& file, size_t done_bytes = 0) {
  std::vector<std::byte> buffer(file.content().size());
  std::memcpy(buffer.data(), file.content().data(), done_bytes);
  Outcome outcome;
  outcome.status = ReadFully(file.call(), {0, buffer}, done_bytes, &outcome.tally);
  outcome.bytes = test::AsText(buffer);
  return outcome;
}

TEST_CASE("ReadFully reads at once what comes at once", "[io][read-fully]") {
  ScriptedFile file({});
  const Outcome outcome = ReadAll(file);
  REQUIRE(outcome.status);
  CHECK(outcome.bytes == file.content());
  CHECK(outcome.tally.request_count == 1);
  CHECK(outcome.tally.bytes == 1000);
  CHECK(outcome.tally.retry_count == 0);
}

TEST_CASE("ReadFully asks for nothing when nothing is left", "[io][read-fully]") {
  ScriptedFile file({-EIO});
  CHECK(ReadFully(file.call(), {0, {}}, 0));
  CHECK(ReadAll(file, 1000).status);
  CHECK(file.call_count() == 0);
}

TEST_CASE("ReadFully continues after short reads, interruptions and failures that pass",
          "[io][read-fully][fault]") {
  for (const std::vector<ssize_t>& steps :
       std::vector<std::vector<ssize_t>>{{1, 1, 1},
                                         {999},
                                         {-EINTR, -EINTR, -EINTR, -EINTR, -EINTR, -EINTR},
                                         {-EIO},
                                         {-EAGAIN, 10, -EIO, 20, -EINTR, -EAGAIN, 30}}) {
    for (const size_t done_bytes : {0, 1, 500}) {
      ScriptedFile file(steps);
      const Outcome outcome = ReadAll(file, done_bytes);
      INFO("the first step is " << steps[0] << ", " << done_bytes << " bytes done");
      REQUIRE(outcome.status);
      CHECK(outcome.bytes == file.content());
      CHECK(outcome.tally.request_count == file.call_count());
      CHECK(outcome.tally.retry_count == file.call_count() - 1);
      CHECK(outcome.tally.bytes == 1000 - done_bytes);
    }
  }
}

TEST_CASE("ReadFully gives up on a failure that stays", "[io][read-fully][fault]") {
  for (const int error_number : {EIO, EAGAIN}) {
    ScriptedFile file(std::vector<ssize_t>(100, -error_number));
    const Outcome outcome = ReadAll(file, 10);
    REQUIRE_FALSE(outcome.status);
    CHECK(outcome.status.error().code() == ErrorCode::kIo);
    CHECK(outcome.status.error().error_number() == error_number);
    CHECK(outcome.status.error().message() ==
          std::string("read of 1000 bytes at offset 0: ") + std::strerror(error_number));
    CHECK(file.call_count() == kReadFailuresMax);
    CHECK(outcome.tally.retry_count == kReadFailuresMax - 1);
    CHECK(outcome.tally.bytes == 0);
  }
}

TEST_CASE("ReadFully does not retry what cannot pass", "[io][read-fully][fault]") {
  ScriptedFile file({-EBADF});
  const Outcome outcome = ReadAll(file);
  REQUIRE_FALSE(outcome.status);
  CHECK(outcome.status.error().message() == "read of 1000 bytes at offset 0: Bad file descriptor");
  CHECK(file.call_count() == 1);
}

TEST_CASE("ReadFully says where the file ends", "[io][read-fully][fault]") {
  ScriptedFile file({100, -EIO});
  std::vector<std::byte> buffer(600);
  ReadTally tally;
  const Status status = ReadFully(file.call(), {500, buffer}, 0, &tally);
  REQUIRE_FALSE(status);
  CHECK(status.error().code() == ErrorCode::kCorruption);
  CHECK(status.error().message() ==
        "the file ends at byte 1000, inside a read of 600 bytes at 500");
  CHECK(tally.bytes == 500);
  CHECK(test::AsText(buffer).substr(0, 500) == file.content().substr(500));
}

}  // namespace
}  // namespace lmdbio::io
