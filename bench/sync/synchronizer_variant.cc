// Gradients through lmdbio's Synchronizer.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "bench/sync/gradient_sync.h"
#include "bench/sync/wire/paced_wire.h"
#include "lmdbio/base/align.h"
#include "lmdbio/ranks/health/health.h"
#include "lmdbio/sync/collective/forwarded_collectives.h"
#include "lmdbio/sync/engine/synchronizer.h"
#include "lmdbio/sync/graph/graph.h"
#include "lmdbio/sync/over_mpi/fastest_over_mpi.h"
#include "lmdbio/sync/over_mpi/mpi_collectives.h"
#include "lmdbio/sync/over_mpi/mpi_transport.h"
#include "lmdbio/sync/over_wire/link_wire.h"
#include "lmdbio/sync/over_wire/wire_collectives.h"
#include "lmdbio/sync/tiers/make_collectives.h"

namespace lmdbio::bench {
namespace {

// A name of a variant in its parts.
struct VariantChoice {
  sync::SyncOptions options;
  bool has_graph = false;
  bool is_traced = false;
  bool is_pinned = false;
  bool is_placed = false;  // gradients lie in memory of the synchronizer
  bool is_windowed = false;
  std::optional<std::chrono::microseconds> cycle_time;  // in place of the setting of all variants
  std::optional<uint32_t> gs_cycles;                    // the same
  // Of the collectives made here. A Synchronizer refuses the option with given ones.
  uint32_t host_roots = 1;
  uint32_t chunk_depth = 0;  // 0: by the trial
  bool is_transport_mpi = false;
  bool blocks_in_mpi = false;  // MPI's blocking collectives, as the systems of the papers have
};

std::vector<std::string> Split(std::string_view text, char separator) {
  std::vector<std::string> words;
  for (size_t start = 0; start <= text.size();) {
    const size_t end = std::min(text.find(separator, start), text.size());
    words.emplace_back(text.substr(start, end - start));
    start = end + 1;
  }
  return words;
}

// A number with "K" or "M" behind it, or without.
std::optional<uint64_t> ParseBytes(const std::string& text) {
  char* end = nullptr;
  const uint64_t number = std::strtoull(text.c_str(), &end, 10);
  const std::string_view unit = end;
  if (end == text.c_str()) return std::nullopt;
  if (unit.empty()) return number;
  if (unit == "K") return number << 10;
  if (unit == "M") return number << 20;
  return std::nullopt;
}

// An addition that is a number, as "gs=10".
struct NumberAddition {
  std::string_view key;
  uint64_t least;
  void (*set)(VariantChoice& choice, uint64_t number);
};
constexpr NumberAddition kNumberAdditions[] = {
    {"bucket", 1, [](VariantChoice& choice, uint64_t n) { choice.options.bucket_bytes = n; }},
    {"last", 1, [](VariantChoice& choice, uint64_t n) { choice.options.last_bucket_bytes = n; }},
    {"slice", 1, [](VariantChoice& choice, uint64_t n) { choice.options.slice_bytes = n; }},
    {"groups", 1,
     [](VariantChoice& choice, uint64_t n) {
       choice.options.num_groups = static_cast<uint32_t>(n);
     }},
    {"arity", 0,
     [](VariantChoice& choice, uint64_t n) {
       choice.options.tree_arity = static_cast<uint32_t>(n);
     }},
    {"roots", 1,
     [](VariantChoice& choice, uint64_t n) { choice.host_roots = static_cast<uint32_t>(n); }},
    {"depth", 1,
     [](VariantChoice& choice, uint64_t n) { choice.chunk_depth = static_cast<uint32_t>(n); }},
    {"cycle", 1,
     [](VariantChoice& choice, uint64_t n) { choice.cycle_time = std::chrono::microseconds(n); }},
    {"gs", 1,
     [](VariantChoice& choice, uint64_t n) { choice.gs_cycles = static_cast<uint32_t>(n); }},
};

// An addition to the name of the coordinator, without its '+'.
Status AddTo(VariantChoice& choice, std::string_view name, const std::string& addition) {
  const size_t sign = std::min(addition.find('='), addition.size());
  const std::string key = addition.substr(0, sign);
  const std::string value = addition.substr(std::min(sign + 1, addition.size()));
  const auto* const found = std::ranges::find(kNumberAdditions, key, &NumberAddition::key);
  const auto number = ParseBytes(value);
  if (addition == "trace") {
    choice.is_traced = true;
  } else if (addition == "place") {
    choice.is_placed = true;
  } else if (addition == "window") {
    choice.is_windowed = true;
  } else if (addition == "scp") {
    choice.is_pinned = true;
  } else if (key == "by") {
    choice.options.group_by = value;  // checked with all options
  } else if (key == "order") {
    choice.options.order = value;
  } else if (found != std::end(kNumberAdditions) && number && *number >= found->least) {
    found->set(choice, *number);
  } else {
    return Fail(
        ErrorCode::kInvalidArgument,
        fmt::format("{}: '+{}' is unknown; expected +scp, +trace, +place, +window, "
                    "+bucket=BYTES, +last=BYTES or +slice=BYTES, with K or M behind the "
                    "bytes or without, +order=ORDER, +groups=COUNT, +by=bytes or "
                    "+by=tensors, +arity=HOSTS, +roots=RANKS, +depth=CHUNKS, +cycle=MICROSECONDS "
                    "or +gs=CYCLES",
                    name, addition));
  }
  return {};
}

Result<VariantChoice> ParseChoice(std::string_view name) {
  const std::vector<std::string> words = Split(name, ':');
  if (words.size() < 2 || words.size() > 5) {
    return Fail(
        ErrorCode::kInvalidArgument,
        fmt::format(
            "{}: expected lmdbio:COORDINATOR[+ADDITION...][:PACING[:COLLECTIVE[:TRANSPORT]]]",
            name));
  }
  VariantChoice choice;
  const std::vector<std::string> parts = Split(words[1], '+');
  const std::string& coordinator = parts.front();
  for (size_t i = 1; i < parts.size(); ++i) LMDBIO_TRY_VOID(AddTo(choice, name, parts[i]));
  choice.has_graph = coordinator == "graph";
  choice.options.coordinator = choice.has_graph ? "topo" : coordinator;
  // The default is the pacing for which the coordinator was designed.
  choice.options.pacing = coordinator == "horovod" ? "cycle" : "event";
  if (words.size() > 2) choice.options.pacing = words[2];
  if (words.size() > 3) {
    choice.blocks_in_mpi = words[3] == "mpi-blocking";
    choice.options.collective = choice.blocks_in_mpi ? "mpi" : words[3];
  }
  // The cyclic pacings are those of the papers, whose control messages go through MPI.
  choice.is_transport_mpi = choice.options.pacing != "event";
  if (words.size() > 4) {
    if (words[4] != "mpi" && words[4] != "own") {
      return Fail(
          ErrorCode::kInvalidArgument,
          fmt::format("{}: transport '{}' is unknown; expected mpi or own", name, words[4]));
    }
    choice.is_transport_mpi = words[4] == "mpi";
  }
  if (choice.host_roots != 1 && choice.options.collective != "auto") {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: '+roots' needs collective auto, and not {}", name, words[3]));
  }
  LMDBIO_TRY_VOID(choice.options.Check());
  return choice;
}

// The order in which a backward pass on one thread has its gradients ready.
std::vector<uint32_t> BackwardOrder(const LayerNetwork& network) {
  std::vector<uint32_t> order;
  for (size_t i = network.layers.size(); i-- > 0;) {
    for (const uint32_t tensor : network.layers[i].tensors) order.push_back(tensor);
  }
  return order;
}

// The bytes that a placed tensor occupies in the memory for gradients.
uint64_t PlacedBytes(const GradientTensor& tensor) {
  return AlignUp(tensor.count * sizeof(float), 64);
}

// Gradients lie one behind the other in the order in which they become ready: so buckets of a plan
// that was learnt need not be packed.
Status PlaceGradients(const SyncContext& context, sync::Synchronizer& synchronizer) {
  for (const uint32_t index : BackwardOrder(context.network)) {
    LMDBIO_TRY(const MutableBytes place,
               synchronizer.Place(context.network.tensors[index].count * sizeof(float)));
    context.gradients.Move(index, reinterpret_cast<float*>(place.data()));
  }
  return {};
}

// The backward pass: a node for each layer, which needs those that took its result, and a
// collective for each gradient. Layers are added from the last to the first, so the nodes of the
// takers exist before their edges.
sync::Graph BackwardGraph(const LayerNetwork& network) {
  sync::Graph graph;
  std::vector<sync::Graph::NodeIndex> nodes(network.layers.size());
  for (size_t i = network.layers.size(); i-- > 0;) {
    const Layer& layer = network.layers[i];
    nodes[i] = graph.AddNode(layer.name);
    for (const uint32_t taker : layer.gives) graph.AddEdge(nodes[taker], nodes[i]);
    for (const uint32_t tensor : layer.tensors) {
      sync::Request request;
      request.name = network.tensors[tensor].name;
      request.shape = {static_cast<int64_t>(network.tensors[tensor].count)};
      graph.AddEdge(nodes[i], graph.AddCollective(std::move(request)));
    }
  }
  return graph;
}

// Says what the paced wire gives.
class PacedCollectives final : public sync::ForwardedCollectives {
 public:
  PacedCollectives(std::unique_ptr<sync::Collectives> inner, const WireFigures& figures)
      : ForwardedCollectives(std::move(inner)), figures_(figures) {}

  std::string Description() const override {
    return fmt::format("paced wire: {:.0f} us for 8 bytes, {:.1f} Mbit/s\n{}", figures_.ping_us,
                       figures_.bits_per_s * 1e-6, ForwardedCollectives::Description());
  }

 private:
  const WireFigures figures_;
};

// All gradients travel between ranks in messages, also within a host.
Result<std::unique_ptr<sync::Collectives>> OverPacedWire(const VariantChoice& choice,
                                                         const SyncContext& context,
                                                         ranks::Health& health) {
  sync::WireCollectiveOptions options;
  if (choice.options.collective != "auto") {
    LMDBIO_TRY(options.algorithm, sync::ParseWireAlgorithm(choice.options.collective));
  }
  LMDBIO_TRY(auto links, sync::OpenLinkWire(context.group, health, {}));
  auto wire = MakePacedWire(std::move(links), *context.settings.wire);
  LMDBIO_TRY(const WireFigures figures, MeasureWire(*wire));
  LMDBIO_TRY(auto collectives, sync::WireCollectives(std::move(wire), options));
  return std::make_unique<PacedCollectives>(std::move(collectives), figures);
}

// Collective. The collectives of the variant; the last ones as a Synchronizer makes its own.
Result<std::unique_ptr<sync::Collectives>> MakeUnwatched(const VariantChoice& choice,
                                                         const SyncContext& context,
                                                         ranks::Health& health) {
  if (context.settings.wire) return OverPacedWire(choice, context, health);
  if (choice.blocks_in_mpi) {
    return sync::MpiCollectives(context.communicator, health,
                                {.waiting = sync::MpiWaiting::kBlock});
  }
  if (choice.options.collective == "mpi") return sync::FastestOverMpi(context.communicator, health);
  const sync::SyncOptions& options = choice.options;
  return sync::MakeCollectives(
      context.group, health,
      {.collective = options.collective,
       .host_roots = choice.host_roots,
       .chunk_depth = choice.chunk_depth,
       .registered_bytes = options.fusion_threshold_bytes + AlignUp(options.gradient_bytes, 64)});
}

class SynchronizerSync final : public GradientSync {
 public:
  // record  of its collectives; null: no plan is by time
  SynchronizerSync(const SyncContext& context, std::unique_ptr<TransferRecord> record,
                   std::unique_ptr<sync::Synchronizer> synchronizer)
      : context_(context),
        record_(std::move(record)),
        synchronizer_(std::move(synchronizer)),
        handles_(context.gradients.tensor_count()) {}

  // The placed memory ends with the synchronizer, so the gradients leave it first.
  ~SynchronizerSync() override { context_.gradients.MoveBack(); }

  // Any thread that computes. Each tensor has one thread in an iteration, so the handles need no
  // lock.
  void Submit(uint32_t index) override {
    const std::span<float> values = context_.gradients.tensor(index);
    Result<sync::Handle> handle = synchronizer_->Submit(
        sync::AllReduceOf(context_.network.tensors[index].name, values.data(), values.data(),
                          static_cast<int64_t>(values.size())));
    if (handle) {
      handles_[index].emplace(std::move(*handle));
      return;
    }
    Keep(Fail(std::move(handle).error()));
  }

  // The thread that computes the layer. A pass lies between Submit and this, so the handle needs no
  // lock here, either.
  bool Wait(uint32_t index) override {
    std::optional<sync::Handle>& handle = handles_[index];
    if (!handle) return false;  // Submit failed
    Result<bool> is_there = handle->WaitFor(std::chrono::milliseconds(0));
    const bool was_missing = is_there && !*is_there;
    if (was_missing) {
      Keep(handle->Wait());
    } else if (!is_there) {
      Keep(Fail(std::move(is_there).error()));
    }
    handle.reset();
    return was_missing;
  }

  // Waits for all handles, also after a failure. So no operation of this iteration is in progress
  // when the next one begins.
  Status WaitAll() override {
    for (std::optional<sync::Handle>& handle : handles_) {
      if (!handle) continue;
      Keep(handle->Wait());
      handle.reset();
    }
    if (record_ != nullptr && !record_->has_plan()) {
      record_->EndIteration(PredictionOf(Description()).has_value());
    }
    const std::lock_guard lock(mutex_);
    if (failure_) return Fail(std::move(*std::exchange(failure_, std::nullopt)));
    return {};
  }

  Status Finish() override { return synchronizer_->Shutdown(); }

  Traffic traffic() override {
    const sync::SyncCounters counters = synchronizer_->counters();
    Traffic traffic;
    traffic.control_messages = counters.control_message_count;
    traffic.control_bytes = counters.control_bytes;
    traffic.collectives = counters.collective_count;
    traffic.collective_bytes = counters.collective_bytes;
    // The flight record forgets old events. The numbers of the calls show the ones that are new.
    AddSizes(synchronizer_->FlightRecord());
    traffic.sizes = sizes_;
    return traffic;
  }

  std::vector<std::string> Description() const override { return synchronizer_->Description(); }

  std::vector<TransferFigure> UntriedSizes() const override {
    return record_ == nullptr ? std::vector<TransferFigure>() : record_->UntriedSizes();
  }

 private:
  // The first failure of an iteration, for WaitAll.
  void Keep(Status status) {
    if (status) return;
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_.emplace(std::move(status).error());
  }

  // Adds the sizes of the calls that are new in the flight record. A line of a call is: "begun
  // 'conv1.weight' 4096 bytes, collective 17".
  void AddSizes(const std::vector<std::string>& record) {
    constexpr std::string_view kBytes = " bytes, collective ";
    for (const std::string& line : record) {
      const size_t end = line.rfind(kBytes);
      if (end == std::string::npos || line.find(" begun ") == std::string::npos) continue;
      const size_t start = line.rfind(' ', end - 1) + 1;
      const uint64_t number = std::strtoull(line.c_str() + end + kBytes.size(), nullptr, 10);
      if (number <= last_collective_) continue;
      last_collective_ = number;
      ++sizes_[std::strtoull(line.c_str() + start, nullptr, 10)];
    }
  }

  const SyncContext context_;
  const std::unique_ptr<TransferRecord> record_;  // the helper thread of synchronizer_ adds to it
  std::unique_ptr<sync::Synchronizer> synchronizer_;
  std::vector<std::optional<sync::Handle>> handles_;  // [tensors] each by the thread that submits
  std::map<uint64_t, uint64_t> sizes_;
  uint64_t last_collective_ = 0;  // of those in sizes_
  std::mutex mutex_;
  std::optional<Error> failure_;  // of the first Submit or Wait that failed
};

}  // namespace

Result<Variant> ParseSynchronizerName(const std::string& name) {
  LMDBIO_TRY(const VariantChoice choice, ParseChoice(name));
  return Variant{.name = name,
                 .has_helper = true,
                 .is_pinned = choice.is_pinned,
                 .is_windowed = choice.is_windowed,
                 .has_wire = choice.host_roots == 1 && choice.options.collective != "mpi" &&
                             choice.options.collective != "shm"};
}

Result<std::unique_ptr<GradientSync>> MakeSynchronizerSync(std::string_view name,
                                                           const SyncContext& context) {
  LMDBIO_TRY(VariantChoice choice, ParseChoice(name));
  choice.options.cycle_time = choice.cycle_time.value_or(context.settings.cycle_time);
  choice.options.fusion_threshold_bytes = context.settings.fusion_bytes;
  if (choice.options.bucket_bytes == 0) {
    choice.options.bucket_bytes = context.settings.bucket_bytes;
  }
  choice.options.gs_cycles = choice.gs_cycles.value_or(context.settings.gs_cycles);
  if (choice.is_pinned) choice.options.placement = context.settings.placement;
  if (choice.is_placed) {
    for (const GradientTensor& tensor : context.network.tensors) {
      choice.options.gradient_bytes += PlacedBytes(tensor);
    }
  }
  if (choice.is_traced) {
    choice.options.timeline_path = std::filesystem::temp_directory_path() /
                                   fmt::format("sync_bench_timeline.{}", context.run_kind);
  }
  std::unique_ptr<TransferRecord> record;
  if (choice.options.coordinator == "caramel") record = std::make_unique<TransferRecord>();
  sync::SyncParts parts;
  parts.collectives = [&](ranks::Health& health) -> Result<std::unique_ptr<sync::Collectives>> {
    LMDBIO_TRY(auto collectives, MakeUnwatched(choice, context, health));
    if (context.window == nullptr) return collectives;
    return WatchTransfers(std::move(collectives), *context.window, record.get());
  };
  if (choice.is_transport_mpi) {
    LMDBIO_TRY(parts.transport,
               sync::MpiTransport(context.communicator, choice.options.tree_arity));
  }
  LMDBIO_TRY(auto synchronizer,
             sync::Synchronizer::Create(context.group, choice.options, std::move(parts)));
  if (choice.is_placed) LMDBIO_TRY_VOID(PlaceGradients(context, *synchronizer));
  if (choice.has_graph) {
    LMDBIO_TRY_VOID(synchronizer->SetGraph(BackwardGraph(context.network)));
  }
  return std::make_unique<SynchronizerSync>(context, std::move(record), std::move(synchronizer));
}

}  // namespace lmdbio::bench
