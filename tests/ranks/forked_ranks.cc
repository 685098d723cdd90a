// All ranks inherit one piece of memory: the state of the job, a report of each rank, and an arena
// for the tables and the shared memory of groups.
#include "tests/ranks/forked_ranks.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstring>
#include <memory>
#include <new>
#include <stdexcept>
#include <thread>

#include <fmt/format.h>

#include "lmdbio/base/check.h"

namespace lmdbio::test {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kRanksMax = 64;
constexpr size_t kReportBytes = 4096;
constexpr size_t kBoardBytes = 4096;
constexpr size_t kArenaAt = kBoardBytes + kRanksMax * kReportBytes;
constexpr size_t kMemoryBytes = size_t{2} << 30;  // of which a page costs when it is touched
constexpr size_t kPieceBytes = 2048;

int64_t NowNs() { return Clock::now().time_since_epoch() / std::chrono::nanoseconds(1); }

// The memory of a job. Nothing is freed before the end of the job.
struct Arena {
  std::byte* memory;
  std::atomic<uint64_t>* used;

  uint64_t Take(uint64_t bytes) const {
    const uint64_t at = used->fetch_add((bytes + 4095) / 4096 * 4096);
    LMDBIO_CHECK(at + bytes <= kMemoryBytes);
    return at;
  }
};

// The bytes that the ranks of a group exchange.
struct Table {
  std::atomic<uint32_t> arrived;
  std::atomic<uint32_t> meetings;
  std::array<std::array<std::byte, kPieceBytes>, kRanksMax> places;
};

class ArenaMemory final : public ranks::SharedMemory {
 public:
  explicit ArenaMemory(MutableBytes bytes) : bytes_(bytes) {}
  MutableBytes bytes() const override { return bytes_; }
  void Abandon() override {}

 private:
  MutableBytes bytes_;
};

class ForkedGroup final : public ranks::Group {
 public:
  ForkedGroup(Arena arena, uint64_t table_at, int rank, int size, int host, std::string host_name)
      : arena_(arena),
        table_(*std::launder(reinterpret_cast<Table*>(arena.memory + table_at))),
        rank_(rank),
        size_(size),
        host_(host),
        host_name_(std::move(host_name)) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  const std::string& host_name() const override { return host_name_; }

  Status Barrier() override {
    const uint32_t before = table_.meetings.load();
    if (table_.arrived.fetch_add(1) + 1 == static_cast<uint32_t>(size_)) {
      table_.arrived.store(0);
      table_.meetings.fetch_add(1);
    }
    while (table_.meetings.load() == before) ::usleep(50);
    return {};
  }

  Status Broadcast(int root, MutableBytes bytes) override {
    LMDBIO_TRY(const auto all, AllGather(bytes));
    if (!bytes.empty()) {
      std::memcpy(bytes.data(), &all[static_cast<size_t>(root) * bytes.size()], bytes.size());
    }
    return {};
  }

  Result<std::vector<std::byte>> AllGather(Bytes mine) override {
    std::vector<std::byte> all(mine.size() * static_cast<size_t>(size_));
    for (size_t at = 0; at < mine.size(); at += kPieceBytes) {
      const Bytes piece = mine.subspan(at, std::min(kPieceBytes, mine.size() - at));
      std::copy(piece.begin(), piece.end(), table_.places[static_cast<size_t>(rank_)].begin());
      LMDBIO_TRY_VOID(Barrier());
      for (size_t rank = 0; rank < static_cast<size_t>(size_); ++rank) {
        std::memcpy(&all[rank * mine.size() + at], table_.places[rank].data(), piece.size());
      }
      LMDBIO_TRY_VOID(Barrier());
    }
    return all;
  }

  Result<std::unique_ptr<Group>> SplitByHost() override { return Split(host_); }

  Result<std::unique_ptr<Group>> Split(int color) override {
    LMDBIO_TRY(const auto colors, Numbers(color));
    const auto first = std::find(colors.begin(), colors.end(), color);
    const auto is_mine = [&](int64_t one) { return one == color; };
    const auto own = colors.begin() + rank_;
    const int64_t mine = first == own ? static_cast<int64_t>(arena_.Take(sizeof(Table))) : 0;
    LMDBIO_TRY(const auto places, Numbers(mine));
    return std::make_unique<ForkedGroup>(
        arena_, static_cast<uint64_t>(places[static_cast<size_t>(first - colors.begin())]),
        static_cast<int>(std::count_if(colors.begin(), own, is_mine)),
        static_cast<int>(std::count_if(colors.begin(), colors.end(), is_mine)), host_, host_name_);
  }

  Result<std::unique_ptr<ranks::SharedMemory>> AllocateShared(uint64_t size_bytes) override {
    LMDBIO_TRY(const auto places,
               Numbers(rank_ == 0 ? static_cast<int64_t>(arena_.Take(size_bytes)) : 0));
    return std::make_unique<ArenaMemory>(
        MutableBytes(arena_.memory + static_cast<uint64_t>(places[0]), size_bytes));
  }

 private:
  Result<std::vector<int64_t>> Numbers(int64_t mine) {
    LMDBIO_TRY(const auto all, AllGather(std::as_bytes(std::span(&mine, 1))));
    std::vector<int64_t> numbers(static_cast<size_t>(size_));
    std::memcpy(numbers.data(), all.data(), all.size());
    return numbers;
  }

  Arena arena_;
  Table& table_;
  int rank_;
  int size_;
  int host_;
  std::string host_name_;
};

}  // namespace

struct ForkedJob::Board {
  std::atomic<uint64_t> used;
  std::atomic<int> ready_count;
  std::atomic<int64_t> signalled_ns;
};

ForkedJob::Board& ForkedJob::board() const {
  return *std::launder(reinterpret_cast<Board*>(memory_.bytes().data()));
}

char* ForkedJob::ReportOf(int rank) const {
  return reinterpret_cast<char*>(
      &memory_.bytes()[kBoardBytes + static_cast<size_t>(rank) * kReportBytes]);
}

ForkedJob::ForkedJob(int rank_count, int ranks_per_host)
    : rank_count_(rank_count), ranks_per_host_(ranks_per_host), memory_(kMemoryBytes) {
  board().used.store(kArenaAt);
}

ForkedJob::~ForkedJob() {
  for (const pid_t child : children_) {
    if (child <= 0) continue;
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
  }
}

void ForkedJob::Start(const Body& body) {
  const Arena arena{memory_.bytes().data(), &board().used};
  const uint64_t table_at = arena.Take(sizeof(Table));
  for (int rank = 0; rank < rank_count_; ++rank) {
    const pid_t child = ::fork();
    if (child < 0) throw std::runtime_error("fork");
    if (child == 0) {
      const int host = rank / ranks_per_host_;
      const bool spans_hosts = ranks_per_host_ < rank_count_;
      ForkedGroup group(arena, table_at, rank, rank_count_, host,
                        spans_hosts ? fmt::format("host-{}", host) : "");
      const std::string report = body(group, *this);
      report.copy(ReportOf(rank), kReportBytes - 1);
      ::_exit(0);
    }
    children_.push_back(child);
  }
}

void ForkedJob::SayReady() { board().ready_count.fetch_add(1); }

bool ForkedJob::AwaitReady() {
  const auto until = Clock::now() + std::chrono::seconds(120);
  while (board().ready_count.load() < rank_count_) {
    if (Clock::now() > until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

void ForkedJob::Send(int signal, int rank) {
  board().signalled_ns.store(NowNs());
  ::kill(children_[static_cast<size_t>(rank)], signal);
}

void ForkedJob::SendAll(int signal) {
  for (int rank = 0; rank < rank_count_; ++rank) Send(signal, rank);
}

double ForkedJob::SecondsSinceSignal() const {
  const int64_t at = board().signalled_ns.load();
  return at == 0 ? -1 : static_cast<double>(NowNs() - at) * 1e-9;
}

std::string ForkedJob::EndOf(int rank, std::chrono::seconds limit) {
  pid_t& child = children_[static_cast<size_t>(rank)];
  const auto give_up = Clock::now() + limit;
  int status = 0;
  while (::waitpid(child, &status, WNOHANG) == 0) {
    if (Clock::now() > give_up) return "hangs";
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  child = 0;
  return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? ReportOf(rank) : "killed";
}

}  // namespace lmdbio::test
