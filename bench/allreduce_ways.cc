#include "bench/allreduce_ways.h"

#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "bench/gloo_ranks.h"
#include "lmdbio/ranks/health/health.h"
#include "lmdbio/sync/over_memory/host_collectives.h"
#include "lmdbio/sync/over_wire/link_wire.h"
#include "lmdbio/sync/over_wire/wire_collectives.h"
#include "lmdbio/sync/over_wire/wire_search.h"

namespace lmdbio::bench {

namespace {

std::vector<char> GatherBytes(const std::vector<char>& mine) {
  std::vector<char> all(mine.size() * static_cast<size_t>(RankCount()));
  const auto bytes = static_cast<int>(mine.size());
  MPI_Allgather(mine.data(), bytes, MPI_BYTE, all.data(), bytes, MPI_BYTE, MPI_COMM_WORLD);
  return all;
}

void SumBy(sync::Collectives& all, float* values, size_t count) {
  const auto outcome = OrDie(all.AllReduce(
      {.digest = 1}, {reinterpret_cast<std::byte*>(values), count}, sync::ReduceOp::kSum));
  if (outcome != sync::CallOutcome::kDone) Die("a rank declined the call");
}

// Emulated hosts share the cores of a machine, so the ranks of all hosts count.
std::string WaitOf(const AllReduceOptions& options) {
  if (!options.wait.empty()) return options.wait;
  return static_cast<unsigned>(RankCount()) <= std::thread::hardware_concurrency() ? "spin"
                                                                                   : "sleep";
}

sync::WaitMode WaitModeOf(const std::string& wait) {
  return wait == "spin" ? sync::WaitMode::kSpin : sync::WaitMode::kSleep;
}

// The memory of the caller, and the rivals that reduce it.
class WithRivals : public WaySet {
 protected:
  explicit WithRivals(size_t bytes_max) : values_(bytes_max / sizeof(float)) {}

  void Add(std::string name, sync::Collectives& by, size_t bytes_max, sync::WireTable table = {}) {
    ways.push_back({.name = std::move(name),
                    .sum = [&by](float* at, size_t count) { SumBy(by, at, count); },
                    .memory = values_.data(),
                    .bytes_max = bytes_max,
                    .is_sum = true,
                    .table = std::move(table)});
  }
  void AddRivals(size_t bytes_max, const std::string& interface) {
    const auto by_mpi = [](float* at, size_t count) {
      MPI_Allreduce(MPI_IN_PLACE, at, static_cast<int>(count), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    };
    ways.push_back({.name = "mpi",
                    .sum = by_mpi,
                    .memory = values_.data(),
                    .bytes_max = bytes_max,
                    .is_sum = true,
                    .table = {}});
    gloo_ = ConnectGloo(Rank(), RankCount(), interface, GatherBytes);
    Way gloo;
    gloo.name = "gloo";
    gloo.memory = values_.data();
    if (gloo_ != nullptr) {
      gloo.sum = [this](float* at, size_t count) { gloo_->AllReduceSum(at, count); };
      gloo.bytes_max = bytes_max;
    }
    ways.push_back(std::move(gloo));
  }

 private:
  std::vector<float> values_;
  std::unique_ptr<GlooRanks> gloo_;
};

sync::HostAlgorithm ParseWay(const std::string& name) {
  if (name == "auto") return sync::HostAlgorithm::kAuto;
  if (name == "one-shot") return sync::HostAlgorithm::kOneShot;
  if (name == "two-shot") return sync::HostAlgorithm::kTwoShot;
  Die("--way must be auto, one-shot or two-shot");
}

class OverMemory final : public WithRivals {
 public:
  OverMemory(ranks::Group& host, const AllReduceOptions& options) : WithRivals(options.bytes_max) {
    facts["wait"] = WaitOf(options);
    sync::HostOptions settings;
    settings.wait = WaitModeOf(facts["wait"]);
    settings.way = ParseWay(options.way);
    if (options.staging_bytes > 0) settings.staging_bytes = options.staging_bytes;
    settings.registered_bytes = options.registered_bytes;
    ours_ = OrDie(sync::HostCollectives(host, health_, settings));
    Add("lmdbio", *ours_, options.bytes_max);
    Add("lmdbio in place", *ours_, ours_->registered().size());
    ways.back().memory = reinterpret_cast<float*>(ours_->registered().data());
    AddRivals(options.bytes_max, options.interface.empty() ? "lo" : options.interface);
  }

 private:
  ranks::SoloHealth health_;
  std::unique_ptr<sync::Collectives> ours_;
};

// One wire for several collectives. All of them use the same connections, so none has buffers that
// another one lacks.
class LentWire final : public sync::Wire {
 public:
  explicit LentWire(sync::Wire& wire) : wire_(wire) {}
  int rank() const override { return wire_.rank(); }
  int size() const override { return wire_.size(); }
  Status StartSend(int to, Bytes bytes) override { return wire_.StartSend(to, bytes); }
  Status StartSendAll(int to, std::span<const Bytes> messages) override {
    return wire_.StartSendAll(to, messages);
  }
  Status StartReceive(int from, MutableBytes bytes) override {
    return wire_.StartReceive(from, bytes);
  }
  Status AwaitSend(int to) override { return wire_.AwaitSend(to); }
  Status AwaitReceive(int from) override { return wire_.AwaitReceive(from); }
  Result<bool> IsSent(int to) override { return wire_.IsSent(to); }
  Result<bool> IsReceived(int from) override { return wire_.IsReceived(from); }
  void Stop(const Error& why) override { wire_.Stop(why); }

 private:
  sync::Wire& wire_;
};

// Sends to the next rank and receives from the one before, in messages of 256 KiB, 64 of them in
// flight.
class RingTransfer {
 public:
  explicit RingTransfer(sync::Wire& wire)
      : wire_(wire),
        next_((wire.rank() + 1) % wire.size()),
        before_((wire.rank() + wire.size() - 1) % wire.size()),
        sent_(kMessageBytes),
        received_(kMessageBytes * kMessagesInFlight) {}

  void Move(size_t bytes) {
    const size_t count = (bytes + kMessageBytes - 1) / kMessageBytes;
    for (size_t i = 0; i < count + kMessagesInFlight; ++i) {
      if (i >= kMessagesInFlight && i - kMessagesInFlight < count) Await();
      if (i >= count) continue;
      const size_t part = std::min(kMessageBytes, bytes - i * kMessageBytes);
      const auto to = MutableBytes(received_).subspan(i % kMessagesInFlight * kMessageBytes, part);
      Check(wire_.StartReceive(before_, to));
      Check(wire_.StartSend(next_, Bytes(sent_).first(part)));
    }
  }

 private:
  static constexpr size_t kMessageBytes = 256 << 10;
  static constexpr size_t kMessagesInFlight = 64;

  static void Check(const Status& status) {
    if (!status) Die(status.error().message());
  }
  void Await() {
    Check(wire_.AwaitReceive(before_));
    Check(wire_.AwaitSend(next_));
  }

  sync::Wire& wire_;
  const int next_;
  const int before_;
  const std::vector<std::byte> sent_;  // the same in each message
  std::vector<std::byte> received_;
};

class OverWires final : public WithRivals {
 public:
  OverWires(ranks::Group& world, bool is_one_host, const AllReduceOptions& options)
      : WithRivals(options.bytes_max) {
    facts["wait"] = WaitOf(options);
    wire_ = OrDie(sync::OpenLinkWire(world, health_, {.wait_mode = WaitModeOf(facts["wait"])}));
    const auto begin = std::chrono::steady_clock::now();
    const sync::WireTable table = AddOwn("lmdbio", options.bytes_max, {}).table;
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    facts["trial_seconds"] = took.count();
    facts["description"] = collectives_.front()->Description();
    for (const uint32_t depth : sync::kTriedDepths) {
      AddOwn(fmt::format("depth {}", depth), options.bytes_max,
             {.table = table, .chunk_depth = depth});
    }
    for (const auto algorithm : {sync::WireAlgorithm::kDoubling, sync::WireAlgorithm::kRing,
                                 sync::WireAlgorithm::kHalving, sync::WireAlgorithm::kDirect}) {
      const bool is_doubling = algorithm == sync::WireAlgorithm::kDoubling;
      const size_t bytes_max = is_doubling ? sync::kDoublingBytesMax : options.bytes_max;
      AddOwn(std::string(sync::NameOf(algorithm)), bytes_max,
             {.table = {}, .algorithm = algorithm});
    }
    transfer_ = std::make_unique<RingTransfer>(*wire_);
    ways.push_back({.name = "transfer",
                    .sum = [this](float*, size_t count) { Transfer(count); },
                    .memory = ways.front().memory,
                    .bytes_max = options.bytes_max,
                    .is_sum = false,
                    .table = {}});
    const std::string usual = is_one_host ? "lo" : "eth0";
    AddRivals(options.bytes_max, options.interface.empty() ? usual : options.interface);
  }

 private:
  const Way& AddOwn(std::string name, size_t bytes_max,
                    const sync::WireCollectiveOptions& options) {
    collectives_.push_back(
        OrDie(sync::WireCollectives(std::make_unique<LentWire>(*wire_), options)));
    sync::TableCollectives& made = *collectives_.back();
    Add(std::move(name), made, bytes_max, made.table());
    return ways.back();
  }

  // No sum needs less: reduce-scatter and all-gather each send (P - 1) / P of the bytes.
  void Transfer(size_t count) {
    const auto ranks = static_cast<size_t>(RankCount());
    transfer_->Move(2 * (ranks - 1) * count * sizeof(float) / ranks);
  }

  ranks::SoloHealth health_;
  std::unique_ptr<sync::LinkWire> wire_;
  std::unique_ptr<RingTransfer> transfer_;
  std::vector<std::unique_ptr<sync::TableCollectives>> collectives_;
};

}  // namespace

std::unique_ptr<WaySet> MemoryWays(ranks::Group& host, const AllReduceOptions& options) {
  return std::make_unique<OverMemory>(host, options);
}

std::unique_ptr<WaySet> WireWays(ranks::Group& world, bool is_one_host,
                                 const AllReduceOptions& options) {
  return std::make_unique<OverWires>(world, is_one_host, options);
}

}  // namespace lmdbio::bench
