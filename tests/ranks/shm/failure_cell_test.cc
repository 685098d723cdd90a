// Goal: of several failures the first is recorded, whole, and no reader waits for a writer that was
// killed.
// Method: each writer records a text of one letter, so a mixture is seen. A signal interrupts a
// writer between its claim and its publication.
#include "lmdbio/ranks/shm/failure_cell.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "lmdbio/base/align.h"
#include "tests/support/catch.h"
#include "tests/support/shared_bytes.h"

namespace lmdbio::ranks {
namespace {

using namespace std::chrono_literals;

constexpr size_t kMax = FailureCell::kTextBytesMax;

Error FailureOf(int rank) {
  return Error(rank % 2 == 0 ? ErrorCode::kIo : ErrorCode::kStale,
               std::string(static_cast<size_t>(100 + rank), static_cast<char>('a' + rank)),
               100 + rank);
}

bool IsThatOf(const RecordedFailure& failure, int rank) {
  const Error expected = FailureOf(rank);
  return failure.rank == rank && failure.code == expected.code() &&
         failure.error_number == expected.error_number() && failure.text == expected.message();
}

// Readers and writers of one cell, started together.
struct Contest {
  std::atomic<int> arrived;
  std::atomic<int> winners;
  std::atomic<int> winner_rank;
  std::atomic<int> wrong;
  FailureCell cell;

  void Arrive(int count) {
    arrived.fetch_add(1);
    while (arrived.load() < count) std::this_thread::yield();
  }
  // A failure that a reader sees is whole, and the same in each look.
  void Read() {
    std::optional<RecordedFailure> failure;
    const auto give_up = std::chrono::steady_clock::now() + 30s;
    while (!failure && std::chrono::steady_clock::now() < give_up) failure = cell.Find();
    if (!failure || !IsThatOf(*failure, failure->rank)) wrong.fetch_add(1);
    if (failure && !IsThatOf(*cell.Find(), failure->rank)) wrong.fetch_add(1);
  }
  void Write(int rank) {
    if (!cell.Record(FailureOf(rank), rank)) return;
    winners.fetch_add(1);
    winner_rank.store(rank);
  }
  // The even ranks write and read, the odd ones only read.
  void Run(int rank, int count) {
    Arrive(count);
    if (rank % 2 == 0) Write(rank);
    Read();
  }
  bool IsRight() {
    const auto failure = cell.Find();
    return wrong == 0 && winners == 1 && failure && failure->rank == winner_rank;
  }
};

TEST_CASE("FailureCell keeps the first failure of many threads, whole", "[ranks][failure_cell]") {
  constexpr int kThreads = 8;
  for (int trial = 0; trial < 100; ++trial) {
    const auto contest = std::make_unique<Contest>();
    std::vector<std::thread> threads;
    for (int rank = 0; rank < kThreads; ++rank) {
      threads.emplace_back([&contest, rank] { contest->Run(rank, kThreads); });
    }
    for (std::thread& thread : threads) thread.join();
    if (!contest->IsRight()) FAIL("trial " << trial);
  }
}

TEST_CASE("FailureCell keeps the first failure of many processes, whole", "[ranks][failure_cell]") {
  constexpr int kProcesses = 6;
  for (int trial = 0; trial < 10; ++trial) {
    const test::SharedBytes memory(sizeof(Contest));
    auto& contest = *std::launder(reinterpret_cast<Contest*>(memory.bytes().data()));
    std::vector<pid_t> children;
    for (int rank = 0; rank < kProcesses; ++rank) {
      const pid_t child = ::fork();
      REQUIRE(child >= 0);
      if (child == 0) {
        contest.Run(rank, kProcesses);
        ::_exit(0);
      }
      children.push_back(child);
    }
    for (const pid_t child : children) ::waitpid(child, nullptr, 0);
    if (!contest.IsRight()) FAIL("trial " << trial);
  }
}

TEST_CASE("FailureCell gives back each part of a failure", "[ranks][failure_cell]") {
  const FailureUrgency urgency = GENERATE(FailureUrgency::kInOrder, FailureUrgency::kNow);
  const auto cell = std::make_unique<FailureCell>();
  CHECK(cell->is_empty());
  CHECK_FALSE(cell->is_recorded());
  CHECK_FALSE(cell->Find());
  CHECK(cell->Record(Error(ErrorCode::kIo, "train.mdb: broken", EIO), 7, urgency));
  CHECK_FALSE(cell->is_empty());
  CHECK(cell->is_recorded());
  CHECK_FALSE(cell->Record(Error(ErrorCode::kStale, "second"), 8));
  const auto failure = cell->Find();
  REQUIRE(failure);
  CHECK(failure->code == ErrorCode::kIo);
  CHECK(failure->error_number == EIO);
  CHECK(failure->rank == 7);
  CHECK(failure->urgency == urgency);
  CHECK(failure->text == "train.mdb: broken");
}

TEST_CASE("FailureCell cuts a text that is too long", "[ranks][failure_cell]") {
  const size_t text_bytes = GENERATE(size_t{0}, kMax - 1, kMax, kMax + 1, size_t{100'000});
  const auto cell = std::make_unique<FailureCell>();
  REQUIRE(cell->Record(Error(ErrorCode::kIo, std::string(text_bytes, 'x')), 0));
  CHECK(cell->Find()->text == std::string(std::min(text_bytes, kMax), 'x'));
}

// A cell in two pages of shared memory, and a child process that writes it. The child may not touch
// the second page. So a signal interrupts it while it copies the text, after its claim.
class InterruptedWriter {
 public:
  enum class Then { kDies, kContinues };

  explicit InterruptedWriter(Then then) : memory_(2 * kPageBytes + sizeof(Progress)) {
    instance = this;
    child_ = ::fork();
    if (child_ == 0) {
      std::signal(SIGSEGV, then == Then::kContinues ? HoldUp : SIG_DFL);
      ::mprotect(second_page(), kPageBytes, PROT_NONE);
      const Error error(ErrorCode::kIo, std::string(FailureCell::kTextBytesMax, 'x'));
      progress().was_recorded.store(cell().Record(error, 1) ? 1 : 0);
      ::_exit(0);
    }
    if (then == Then::kDies) AwaitEnd();
    if (then == Then::kContinues) {
      while (progress().is_held_up.load() == 0) std::this_thread::sleep_for(1ms);
    }
  }
  ~InterruptedWriter() {
    if (child_ <= 0) return;
    ::kill(child_, SIGKILL);
    AwaitEnd();
  }
  InterruptedWriter(const InterruptedWriter&) = delete;
  InterruptedWriter& operator=(const InterruptedWriter&) = delete;

  FailureCell& cell() const {
    std::byte* const at = memory_.bytes().data() + kPageBytes - 512;
    return *std::launder(reinterpret_cast<FailureCell*>(at));
  }
  // Lets the writer continue to its end. Returns whether it recorded its failure.
  bool Continue() {
    progress().may_continue.store(1);
    AwaitEnd();
    return progress().was_recorded.load() != 0;
  }

 private:
  static inline const size_t kPageBytes = MemoryPageBytes();
  struct Progress {
    std::atomic<int> is_held_up;
    std::atomic<int> may_continue;
    std::atomic<int> was_recorded;
  };

  static void HoldUp(int /*signal*/) {
    instance->progress().is_held_up.store(1);
    while (instance->progress().may_continue.load() == 0) ::usleep(1000);
    ::mprotect(instance->second_page(), kPageBytes, PROT_READ | PROT_WRITE);
  }
  void AwaitEnd() {
    ::waitpid(child_, nullptr, 0);
    child_ = 0;
  }
  std::byte* second_page() const { return memory_.bytes().data() + kPageBytes; }
  Progress& progress() const {
    return *std::launder(reinterpret_cast<Progress*>(second_page() + kPageBytes));
  }

  static inline InterruptedWriter* instance = nullptr;  // of the signal handler

  test::SharedBytes memory_;
  pid_t child_ = 0;
};

TEST_CASE("FailureReader does not wait for ever for a writer that was killed",
          "[ranks][failure_cell]") {
  const InterruptedWriter writer(InterruptedWriter::Then::kDies);
  FailureCell& cell = writer.cell();
  FailureReader reader(cell);
  CHECK_FALSE(cell.is_empty());
  CHECK_FALSE(cell.is_recorded());
  CHECK_FALSE(reader.Look());
  CHECK_FALSE(cell.Record(Error(ErrorCode::kIo, "second"), 1));
  const auto began = std::chrono::steady_clock::now();
  std::optional<RecordedFailure> failure;
  while (!failure && std::chrono::steady_clock::now() - began < 10s) {
    std::this_thread::sleep_for(20ms);
    failure = reader.Look();
  }
  CHECK(std::chrono::steady_clock::now() - began >= FailureCell::kWriterLimit);
  REQUIRE(failure);
  CHECK(failure->code == ErrorCode::kPeerFailed);
  CHECK(failure->rank == -1);
  CHECK(failure->urgency == FailureUrgency::kNow);
  CHECK(failure->text == "a rank ended before it could report its failure");
  CHECK(cell.is_recorded());
}

TEST_CASE("FailureCell refuses a writer that continues too late", "[ranks][failure_cell]") {
  const bool is_late = GENERATE(false, true);
  CAPTURE(is_late);
  InterruptedWriter writer(InterruptedWriter::Then::kContinues);
  FailureReader reader(writer.cell());
  CHECK_FALSE(reader.Look());
  for (int i = 0; is_late && i < 1000 && !reader.Look(); ++i) std::this_thread::sleep_for(20ms);
  CHECK(writer.Continue() == !is_late);
  const auto failure = reader.Look();
  REQUIRE(failure);
  CHECK(failure->rank == (is_late ? -1 : 1));
  CHECK(failure->text.size() == (is_late ? 47 : kMax));
}

TEST_CASE("FailureReader counts a long pause of its own process once", "[ranks][failure_cell]") {
  const InterruptedWriter writer(InterruptedWriter::Then::kDies);
  FailureReader reader(writer.cell());
  CHECK_FALSE(reader.Look());
  std::this_thread::sleep_for(1500ms);  // as if the whole job had been stopped
  CHECK_FALSE(reader.Look());
  std::this_thread::sleep_for(20ms);
  CHECK(reader.Look());
}

}  // namespace
}  // namespace lmdbio::ranks
