#include "lmdbio/sync/over_mpi/fastest_over_mpi.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "lmdbio/base/kept_memory.h"
#include "lmdbio/sync/collective/forwarded_collectives.h"
#include "lmdbio/sync/over_mpi/mpi_collectives.h"
#include "lmdbio/sync/over_mpi/mpi_wire.h"
#include "lmdbio/sync/over_wire/wire_collectives.h"

namespace lmdbio::sync {
namespace {

using Seconds = std::chrono::duration<double>;

// The sizes of buckets. Their times are added up.
constexpr std::array<uint64_t, 2> kTriedBytes = {1 << 20, 4 << 20};
// The first round enlarges MPI's buffers; the best of the others counts.
constexpr int kRounds = 4;

// Collectives with one more line in their description.
class DescribedCollectives final : public ForwardedCollectives {
 public:
  DescribedCollectives(std::unique_ptr<Collectives> inner, std::string line)
      : ForwardedCollectives(std::move(inner)), line_(std::move(line)) {}

  std::string Description() const override {
    return line_ + "\n" + ForwardedCollectives::Description();
  }

 private:
  const std::string line_;
};

// Collective. The sum of the best times of all sizes on this rank.
Result<Seconds> TimeOf(Collectives& collectives) {
  // Sums of zeros stay zeros however often they are reduced.
  auto zeros = std::make_unique<float[]>(kTriedBytes.back() / sizeof(float));
  Seconds total(0);
  for (const uint64_t bytes : kTriedBytes) {
    Seconds best = Seconds::max();
    for (int round = 0; round < kRounds; ++round) {
      const auto begin = std::chrono::steady_clock::now();
      const auto outcome = collectives.AllReduce(
          {}, {.data = reinterpret_cast<std::byte*>(zeros.get()), .count = bytes / sizeof(float)},
          ReduceOp::kSum);
      if (!outcome && collectives.writes_after_failure()) KeepForever(std::move(zeros));
      if (!outcome) return Fail(outcome.error().Copy());
      if (round > 0) best = std::min<Seconds>(best, std::chrono::steady_clock::now() - begin);
    }
    total += best;
  }
  return total;
}

}  // namespace

Result<std::unique_ptr<Collectives>> FastestOverMpi(MPI_Comm communicator, ranks::Health& health,
                                                    const OverMpiOptions& options) {
  LMDBIO_TRY(auto own, MpiCollectives(communicator, health,
                                      {.waiting = MpiWaiting::kSleep, .caller = options.caller}));
  if (own->size() == 1) return own;
  LMDBIO_TRY(auto wire, MpiWire(communicator, health));
  LMDBIO_TRY(std::unique_ptr<Collectives> over_messages,
             WireCollectives(std::move(wire), {.table = {},
                                               .chunk_bytes = options.chunk_bytes,
                                               .chunk_depth = options.chunk_depth,
                                               .trial_time = options.trial_time}));
  // The slowest rank counts, so that all ranks choose alike.
  LMDBIO_TRY(const Seconds own_time, TimeOf(*own));
  LMDBIO_TRY(const Seconds message_time, TimeOf(*over_messages));
  auto times = std::make_unique<double[]>(2);
  times[0] = own_time.count();
  times[1] = message_time.count();
  const auto agreed = own->AllReduce(
      {},
      {.data = reinterpret_cast<std::byte*>(times.get()), .count = 2, .type = DataType::kFloat64},
      ReduceOp::kMax);
  if (!agreed && own->writes_after_failure()) KeepForever(std::move(times));
  if (!agreed) return Fail(agreed.error().Copy());
  const bool is_own = times[0] <= times[1];
  std::string line = fmt::format(
      "over MPI, by trial: {}; 1 MiB and 4 MiB took {:.2f} ms by MPI's collectives, {:.2f} ms by "
      "MPI's messages",
      is_own ? "MPI's collectives" : "MPI's messages", times[0] * 1e3, times[1] * 1e3);
  return std::make_unique<DescribedCollectives>(is_own ? std::move(own) : std::move(over_messages),
                                                std::move(line));
}

}  // namespace lmdbio::sync
