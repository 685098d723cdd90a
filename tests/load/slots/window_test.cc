#include "lmdbio/load/slots/window.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <thread>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/shared_bytes.h"

namespace lmdbio::load {
namespace {

using test::SharedBytes;

TEST_CASE("Every rank gets every slot in order, and no slot is reused too early", "[loader]") {
  constexpr uint64_t kSlots = 2000, kPlaces = 5;
  constexpr int kRanks = 4;
  const WindowShape shape{kRanks, 1, kPlaces * sizeof(uint64_t)};
  const SharedBytes memory(Window::BytesNeeded(shape));
  std::atomic<int> wrong{0};
  const auto rank_body = [&](int rank) {
    Window window(memory.bytes(), shape, rank, rank);
    const auto* places = reinterpret_cast<const uint64_t*>(window.ring().data());
    for (uint64_t slot = 0; slot < kSlots; ++slot) {
      const Result<SlotHead> head = window.AwaitSlot(slot);
      if (!head || head->first_batch != slot || places[slot % kPlaces] != slot) ++wrong;
      if (slot % 97 == static_cast<uint64_t>(rank)) std::this_thread::yield();
      if (places[slot % kPlaces] != slot) ++wrong;
      window.LetGo(slot + 1);
    }
  };
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < kRanks; ++rank) ranks.emplace_back(rank_body, rank);
  Window reader(memory.bytes(), shape, 0, 0);
  auto* places = reinterpret_cast<uint64_t*>(reader.ring().data());
  for (uint64_t slot = 0; slot < kSlots; ++slot) {
    const Result<bool> free = reader.AwaitSpace(slot < kPlaces ? 0 : slot - kPlaces + 1);
    if (!free || !*free) ++wrong;
    places[slot % kPlaces] = slot;
    if (reader.FinishPart(slot)) reader.Announce(slot, {slot, 1, 0, 0});
  }
  for (std::thread& rank : ranks) rank.join();
  CHECK(wrong.load() == 0);
}

TEST_CASE("The first failure ends every wait and keeps its name", "[loader]") {
  const WindowShape shape{2, 1, 4096};
  const SharedBytes memory(Window::BytesNeeded(shape));
  Window first(memory.bytes(), shape, 0, 10);
  Window second(memory.bytes(), shape, 1, 11);
  std::thread failing([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    second.Fail(Error(ErrorCode::kIo, "the disk is gone", EIO));
    second.Fail(Error(ErrorCode::kCorruption, "too late"));
  });
  const Result<SlotHead> waited = first.AwaitSlot(0);
  failing.join();
  REQUIRE_FALSE(waited.has_value());
  CHECK(waited.error().code() == ErrorCode::kPeerFailed);
  CHECK(waited.error().message() == "rank 11: the disk is gone");
  CHECK(waited.error().error_number() == EIO);
  CHECK(second.AwaitSlot(0).error().code() == ErrorCode::kIo);
  CHECK(second.AwaitSlot(0).error().error_number() == EIO);
  CHECK_FALSE(first.AwaitSpace(1).has_value());
}

TEST_CASE("A killed process is an error for the waiting ranks", "[loader]") {
  const WindowShape shape{2, 1, 4096};
  const SharedBytes memory(Window::BytesNeeded(shape));
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    Window(memory.bytes(), shape, 1, 1).Introduce();
    while (true) ::pause();
  }
  Window window(memory.bytes(), shape, 0, 0);
  window.Introduce();
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  window.WatchPeers();
  std::thread killer([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    ::kill(child, SIGKILL);
  });
  const Result<SlotHead> slot = window.AwaitSlot(0);
  killer.join();
  REQUIRE_FALSE(slot.has_value());
  CHECK(slot.error().code() == ErrorCode::kPeerFailed);
  CHECK(slot.error().message().find("rank 1") != std::string::npos);
  window.Leave();
  CHECK_FALSE(window.AwaitAllLeft(std::chrono::seconds(5)));
  ::waitpid(child, nullptr, 0);
}

}  // namespace
}  // namespace lmdbio::load
