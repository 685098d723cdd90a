// Goal: with 1,000 hosts a root holds fewer than 256 descriptors for the read path, the health
// watch and the collectives together, in their normal use.
// Method: each simulated host is a thread with a table of descriptors of its own, so the kernel
// numbers and counts the descriptors of each host as for a process. The links are real sockets.
#include <linux/close_range.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "lmdbio/load/locate/layout_all_gather.h"
#include "lmdbio/load/locate/location_broadcast.h"
#include "lmdbio/load/turns/read_tokens.h"
#include "lmdbio/ranks/group/thread_group.h"
#include "lmdbio/ranks/health/job_health.h"
#include "lmdbio/sync/over_wire/link_wire.h"
#include "lmdbio/sync/over_wire/wire_collectives.h"
#include "lmdbio/sync/transport/shared_transport.h"
#include "tests/support/catch.h"

namespace lmdbio::ranks {
namespace {

constexpr int kHosts = 1000;
constexpr size_t kDescriptorsMax = 256;
// As the trial of the stagger strategy tries them.
constexpr std::array<uint32_t, 9> kTokenCounts = {500, 250, 125, 62, 31, 15, 7, 3, 1};
// No failure is expected, and the threads share few cores.
constexpr auto kPatience = std::chrono::minutes(10);

// Gives this thread, and threads that it starts later, a copy of the table of descriptors.
bool UnshareDescriptors() { return ::syscall(SYS_close_range, ~0U, ~0U, CLOSE_RANGE_UNSHARE) == 0; }

size_t CountDescriptors() {
  const std::filesystem::directory_iterator all("/proc/thread-self/fd");
  // One of them reads the directory.
  return static_cast<size_t>(std::distance(begin(all), end(all))) - 1;
}

// The parts that a root uses in normal training.
struct SimulatedHost {
  std::unique_ptr<JobHealth> health;
  std::unique_ptr<load::LayoutAllGather> layout;
  std::unique_ptr<load::LocationBroadcast> locations;
  std::unique_ptr<load::ReadTokens> tokens;
  std::unique_ptr<sync::SharedTransport> transport;
  std::unique_ptr<sync::Collectives> collectives;

  // Collective.
  Status Open(Group& group) {
    LMDBIO_TRY(health, JobHealth::Create(group, kPatience));
    LMDBIO_TRY(layout, load::LayoutAllGather::Create(group, -1));
    LMDBIO_TRY(locations, load::LocationBroadcast::Create(group, -1));
    LMDBIO_TRY(tokens, load::ReadTokens::Create(group, kTokenCounts, -1));
    LMDBIO_TRY(transport, sync::SharedTransport::Create(group, *health));
    LMDBIO_TRY(auto wire, sync::OpenLinkWire(group, *health, {}));
    // The ring needs 2 P messages in a row, which is too slow for threads of two cores. Its first
    // step opens all its links.
    LMDBIO_TRY_VOID(RingStep(*wire));
    LMDBIO_TRY(collectives,
               sync::WireCollectives(std::move(wire), {.table = sync::OneWireAlgorithm(
                                                           sync::WireAlgorithm::kHalving, 0, 0)}));
    return UseCollectives();
  }

 private:
  static Status RingStep(sync::Wire& wire) {
    std::vector<std::byte> sent(1000);
    std::vector<std::byte> received(1000);
    return wire.Exchange((wire.rank() + 1) % kHosts, sent, (wire.rank() + kHosts - 1) % kHosts,
                         received);
  }

  Status UseCollectives() {
    std::vector<float> values(4 * kHosts, 1);
    const sync::Values all{reinterpret_cast<std::byte*>(values.data()), values.size(),
                           sync::DataType::kFloat32};
    LMDBIO_TRY_VOID(collectives->AllReduce({}, all, sync::ReduceOp::kSum));
    if (values.back() != kHosts) return Fail(ErrorCode::kInternal, "a wrong sum");
    const std::vector<uint64_t> counts(kHosts, 4);
    std::vector<float> part(4);
    LMDBIO_TRY_VOID(collectives->ReduceScatter({}, all, reinterpret_cast<std::byte*>(part.data()),
                                               counts, sync::ReduceOp::kMax));
    if (part[0] != kHosts) return Fail(ErrorCode::kInternal, "a wrong part");
    std::vector<std::byte> ranks(kHosts);
    const std::byte mine{static_cast<unsigned char>(collectives->rank() % 251)};
    LMDBIO_TRY_VOID(
        collectives->AllGather({}, std::span(&mine, 1), ranks, std::vector<uint64_t>(kHosts, 1)));
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      if (std::to_integer<size_t>(ranks[rank]) != rank % 251) {
        return Fail(ErrorCode::kInternal, "a wrong rank");
      }
    }
    LMDBIO_TRY_VOID(collectives->Broadcast({}, ranks, 0));
    LMDBIO_TRY_VOID(collectives->Barrier({}));
    return {};
  }
};

TEST_CASE("A root of 1,000 hosts holds fewer than 256 descriptors", "[comm][descriptors]") {
  std::vector<size_t> counts(kHosts);
  std::vector<std::string> wrong(kHosts);
  RunAsThreads({.rank_count = kHosts, .ranks_per_host = 1}, [&](Group& group) {
    const auto rank = static_cast<size_t>(group.rank());
    if (!UnshareDescriptors()) wrong[rank] = "close_range failed";
    const size_t before = CountDescriptors();
    static_cast<void>(group.Barrier());
    {
      SimulatedHost host;
      const Status opened = host.Open(group);
      if (!opened) wrong[rank] = opened.error().message();
      static_cast<void>(group.Barrier());
      counts[rank] = CountDescriptors() - before;
      static_cast<void>(group.Barrier());
    }
    static_cast<void>(group.Barrier());
    if (CountDescriptors() != before) wrong[rank] += " descriptors remain";
  });
  const auto [least, most] = std::minmax_element(counts.begin(), counts.end());
  std::printf("descriptors of a root with %d hosts: %zu to %zu, most on host %td\n", kHosts, *least,
              *most, most - counts.begin());
  CHECK(wrong == std::vector<std::string>(kHosts));
  CHECK(*least > 0);
  CHECK(*most < kDescriptorsMax);
}

}  // namespace
}  // namespace lmdbio::ranks
