// C3: ranks that share a GPU reduce tensors of any type there, in each way and order. Oracles: the
// arithmetic of number_oracle.h, and the same tensors in memory of the host.
#include <memory>
#include <optional>

#include <fmt/format.h>

#include "lmdbio/kernels/kernel_image.h"
#include "lmdbio/ranks/group/thread_group.h"
#include "lmdbio/sync/engine/synchronizer.h"
#include "tests/gpu/device_check.h"
#include "tests/gpu/gpu_room.h"
#include "tests/gpu/rank_jobs.h"
#include "tests/kernels/kernel_bodies.h"
#include "tests/ranks/forked_ranks.h"
#include "tests/sync/over_device/rank_on_device.h"

namespace lmdbio::test {
namespace {

using device::DeviceAddress;
using device::DeviceSpan;
using sync::DataType;
using sync::Handle;
using sync::ReduceOp;
using sync::Submission;
using sync::Synchronizer;

// A tensor of an iteration, the same on all ranks.
struct DrawnTensor {
  DrawnTensor(int rank_count, Random& random, const CheckScene& scene)
      : op(kEachOp[random.Below(kEachOp.size())]),
        prescale(random.Below(4) == 0 ? 0.5 : 1),
        postscale(random.Below(2) == 0 ? 1 : 0.25),
        ranks(rank_count, Draw(random, scene), random.Next()) {}

  static sync::DeviceValues Draw(Random& random, const CheckScene& scene) {
    constexpr std::array<size_t, 5> kCounts{0, 1, 17, 1000, 70'001};
    return {.count = kCounts[random.Below(scene.is_quick ? 4 : 5)] + random.Below(3),
            .type = kEachType[random.Below(kEachType.size())]};
  }
  static constexpr uint64_t kBytesMax = 70'003 * 8;

  const sync::DeviceValues& values() const { return ranks.values; }
  std::string Words() const {
    return fmt::format("{} of {} x {}, scaled by {} and {}", sync::NameOf(op),
                       sync::NameOf(values().type), values().count, prescale, postscale);
  }

  ReduceOp op;
  double prescale;
  double postscale;
  ValuesOfRanks ranks;
};

// One rank with a synchronizer, and room for the tensors of an iteration on its GPU.
class RankOfCheck {
 public:
  static constexpr size_t kTensors = 4;
  static constexpr uint64_t kSlotBytes = (DrawnTensor::kBytesMax + 255) / 256 * 256;

  RankOfCheck(ranks::Group& group, const CheckScene& scene, const ReduceWay& way)
      : scene_(scene), way_(way), gpu_(scene.Open()) {
    sync::SyncOptions options = OptionsOf(way, scene);
    options.device_buffer_bytes = 200'000;  // the largest tensors pass in pieces
    options.device_gradient_bytes = kTensors * kSlotBytes;
    options.silence_limit = std::chrono::seconds(60);  // ranks may share few cores
    sync::SyncParts parts;
    parts.log = [this](const std::string& line) { note_ += line + "; "; };
    synchronizer_ = Good(Synchronizer::Create(group, options, std::move(parts)));
    for (size_t i = 0; i < kTensors; ++i) {
      places_.push_back(Good(synchronizer_->PlaceOnDevice(kSlotBytes)));
    }
  }

  RankReport Run() {
    // All ranks draw the same tensors. Each decides for itself where its values lie.
    Random random(scene_.seed);
    Random own(scene_.seed * 31 + static_cast<uint64_t>(synchronizer_->rank()) + 1);
    for (uint64_t iteration = 0; iteration < scene_.Of(20, 3); ++iteration) {
      std::vector<DrawnTensor> tensors;
      for (size_t i = 0; i < kTensors; ++i) {
        tensors.emplace_back(synchronizer_->size(), random, scene_);
      }
      const std::string wrong = RunIteration(tensors, own);
      if (!wrong.empty()) return fmt::format("iteration {}: {}", iteration, wrong);
    }
    Must(stream_.Synchronize());
    const sync::SyncCounters counters = synchronizer_->counters();
    Must(synchronizer_->Shutdown());
    const bool is_reduced = counters.device_reduced_count > 0;
    if (IsStaged(way_)) return counters.device_tensor_count > 0 ? "" : "no tensor was staged";
    return is_reduced && note_.empty() ? "" : kLeftOutMark + note_;
  }

 private:
  struct TensorPlace {
    DeviceAddress input;
    DeviceAddress output;
  };

  // Placed memory, or own memory, in place or not.
  TensorPlace Choose(size_t index, Random& own) const {
    const DeviceAddress placed = places_[index].begin;
    const DeviceAddress in = inputs_.At(index * kSlotBytes);
    if (own.Below(2) == 0) return {placed, placed};
    return {in, own.Below(2) == 0 ? in : outputs_.At(index * kSlotBytes)};
  }

  Submission Describe(std::string name, const DrawnTensor& tensor) const {
    Submission submission = sync::AllReduceOf(std::move(name), nullptr, nullptr,
                                              static_cast<int64_t>(tensor.values().count),
                                              tensor.values().type, tensor.op);
    submission.request.prescale = tensor.prescale;
    submission.request.postscale = tensor.postscale;
    return submission;
  }

  std::string RunIteration(const std::vector<DrawnTensor>& tensors, Random& own) {
    const auto rank = static_cast<size_t>(synchronizer_->rank());
    std::vector<TensorPlace> slots;
    std::vector<std::string> on_host;
    std::vector<Handle> handles;
    for (size_t i = 0; i < tensors.size(); ++i) {
      const std::string& mine = tensors[i].ranks.of[rank];
      slots.push_back(Choose(i, own));
      on_host.push_back(mine);
      std::memcpy(in_host_.bytes().data() + i * kSlotBytes, mine.data(), mine.size());
      if (!mine.empty()) {
        Must(stream_.CopyIn(slots[i].input, in_pinned_, i * kSlotBytes, mine.size()));
      }
    }
    for (size_t i = 0; i < tensors.size(); ++i) {
      Submission submission = Describe(fmt::format("gpu {}", i), tensors[i]);
      submission.on_device = {slots[i].input, slots[i].output, stream_.native()};
      handles.push_back(Good(synchronizer_->Submit(std::move(submission))));
      submission = Describe(fmt::format("host {}", i), tensors[i]);
      auto* const values = reinterpret_cast<std::byte*>(on_host[i].data());
      submission.input = submission.output = values;
      handles.push_back(Good(synchronizer_->Submit(std::move(submission))));
    }
    for (size_t i = 0; i < tensors.size(); ++i) {
      Must(handles[2 * i].WaitOn(stream_.native()));
      Must(handles[2 * i + 1].Wait());
      if (on_host[i].empty()) continue;
      Must(stream_.CopyOut(out_pinned_, i * kSlotBytes, slots[i].output, on_host[i].size()));
    }
    Must(stream_.Synchronize());
    for (size_t i = 0; i < tensors.size(); ++i) {
      const std::string wrong = Compare(tensors[i], i, on_host[i]);
      if (!wrong.empty()) return wrong;
    }
    return "";
  }

  std::string Compare(const DrawnTensor& tensor, size_t index, const std::string& on_host) const {
    const std::string found(
        reinterpret_cast<const char*>(out_host_.bytes().data()) + index * kSlotBytes,
        on_host.size());
    const size_t count = tensor.values().count;
    const size_t wrong =
        FirstDifference(tensor.values().type, reinterpret_cast<const std::byte*>(found.data()),
                        reinterpret_cast<const std::byte*>(on_host.data()), count);
    if (wrong != count) {
      return fmt::format("{}: element {} differs from that of the host", tensor.Words(), wrong);
    }
    if (tensor.prescale != 1) return "";
    return tensor.ranks.Compare(found, sync::Reduction(tensor.op, tensor.postscale));
  }

  const CheckScene& scene_;
  const ReduceWay way_;
  const std::shared_ptr<device::Device> gpu_;
  GpuRoom inputs_{*gpu_, kTensors* kSlotBytes};
  GpuRoom outputs_{*gpu_, kTensors* kSlotBytes};
  SharedBytes in_host_{kTensors * kSlotBytes};
  SharedBytes out_host_{kTensors * kSlotBytes};
  device::PinnedBytes in_pinned_ = Good(gpu_->Pin(in_host_.bytes()));
  device::PinnedBytes out_pinned_ = Good(gpu_->Pin(out_host_.bytes()));
  device::DeviceStream stream_ = Good(gpu_->MakeStream());
  std::string note_;  // of the helper thread; read after Shutdown
  std::unique_ptr<Synchronizer> synchronizer_;
  std::vector<DeviceSpan> places_;
};

RankReport RunRank(ranks::Group& group, const CheckScene& scene, const ReduceWay& way) {
  try {
    return RankOfCheck(group, scene, way).Run();
  } catch (const std::exception& error) {
    return error.what();
  }
}

CheckOutcome CheckProcesses(const CheckScene& scene, int rank_count, const ReduceWay& way) {
  ForkedJob job(rank_count, rank_count);
  job.Start([&](ranks::Group& group, ForkedJob&) { return RunRank(group, scene, way); });
  std::vector<RankReport> reports;
  for (int rank = 0; rank < rank_count; ++rank) {
    reports.push_back(job.EndOf(rank, std::chrono::seconds(120)));
  }
  return OutcomeOf(reports);
}

CheckOutcome CheckThreads(const CheckScene& scene, int rank_count, const ReduceWay& way) {
  std::vector<RankReport> reports(static_cast<size_t>(rank_count));
  ranks::RunAsThreads({.rank_count = rank_count}, [&](ranks::Group& group) {
    reports[static_cast<size_t>(group.rank())] = RunRank(group, scene, way);
  });
  return OutcomeOf(reports);
}

}  // namespace

DeviceChecks SyncChecks() {
  DeviceChecks checks;
  for (const ReduceWay& way : kEachWay) {
    for (const int rank_count : {1, 2, 4, 8}) {
      checks.push_back({"C3", fmt::format("{} processes, {}", rank_count, way.name), 60,
                        [rank_count, way](const CheckScene& scene) {
                          return CheckProcesses(scene, rank_count, way);
                        }});
    }
  }
  // Threads of a process wait for each other in the order host alone.
  for (const ReduceWay& way : {kEachWay[0], kEachWay[1]}) {
    for (const int rank_count : {2, 4, 8}) {
      checks.push_back({"C3", fmt::format("{} threads, {}", rank_count, way.name), 60,
                        [rank_count, way](const CheckScene& scene) {
                          return CheckThreads(scene, rank_count, way);
                        }});
    }
  }
  return checks;
}

}  // namespace lmdbio::test
