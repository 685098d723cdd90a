// Gradients through Gloo, in buckets as PyTorch's DistributedDataParallel has them: a gradient is
// copied into its bucket when it is ready, a bucket that is full and next is reduced by a thread.
#include <unistd.h>

#include <array>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <gloo/allreduce.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>
#include <gloo/transport/tcp/device.h>

#include "bench/sync/gradient_sync.h"

namespace lmdbio::bench {
namespace {

// The first bucket is small, so that there is something to send early.
constexpr uint64_t kFirstBucketBytes = uint64_t{1} << 20;

// Every rank gives its address once; MPI brings it to the others. `set` returns when the values of
// all ranks are here, so `wait` has nothing to wait for.
class MpiStore final : public gloo::rendezvous::Store {
 public:
  explicit MpiStore(MPI_Comm communicator) : communicator_(communicator) {}

  // Collective.
  void set(const std::string& key, const std::vector<char>& data) override {
    int size = 0;
    MPI_Comm_size(communicator_, &size);
    const std::string mine = fmt::format("{}={}", key, std::string(data.begin(), data.end()));
    const int mine_bytes = static_cast<int>(mine.size());
    std::vector<int> bytes(static_cast<size_t>(size));
    // The addresses differ in length, so the lengths go first.
    MPI_Allgather(&mine_bytes, 1, MPI_INT, bytes.data(), 1, MPI_INT, communicator_);
    std::vector<int> starts;
    int sum = 0;
    for (const int one : bytes) {
      starts.push_back(sum);
      sum += one;
    }
    std::string all(static_cast<size_t>(sum), '\0');
    MPI_Allgatherv(mine.data(), mine_bytes, MPI_CHAR, all.data(), bytes.data(), starts.data(),
                   MPI_CHAR, communicator_);
    for (size_t i = 0; i < bytes.size(); ++i) {
      const auto start = static_cast<size_t>(starts[i]);
      const std::string text = all.substr(start, static_cast<size_t>(bytes[i]));
      const size_t split = text.find('=');
      values_[text.substr(0, split)] = {text.begin() + static_cast<std::ptrdiff_t>(split) + 1,
                                        text.end()};
    }
  }

  std::vector<char> get(const std::string& key) override { return values_.at(key); }
  void wait(const std::vector<std::string>&) override {}
  void wait(const std::vector<std::string>&, const std::chrono::milliseconds&) override {}

 private:
  MPI_Comm communicator_;
  std::map<std::string, std::vector<char>> values_;
};

struct GlooBucket {
  std::vector<float> values;
  std::vector<uint32_t> tensors;
  size_t missing_count = 0;  // tensors that have not been submitted in this iteration
};

class GlooSync final : public GradientSync {
 public:
  GlooSync(const SyncContext& context, std::shared_ptr<gloo::Context> gloo)
      : context_(context), gloo_(std::move(gloo)) {
    MakeBuckets();
    thread_ = std::thread([this] { Run(); });
  }

  ~GlooSync() override {
    {
      const std::lock_guard lock(mutex_);
      is_ending_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  // Copies without the lock, because each tensor has its own range of the bucket. The lock around
  // the count orders the copy before the reduction in the other thread.
  void Submit(uint32_t index) override {
    const FlatPosition place = places_[index];
    const std::span<const float> tensor = context_.gradients.tensor(index);
    GlooBucket& bucket = buckets_[place.bucket];
    std::memcpy(bucket.values.data() + place.start, tensor.data(), tensor.size_bytes());
    bool is_full = false;
    {
      const std::lock_guard lock(mutex_);
      is_full = --bucket.missing_count == 0;
    }
    if (is_full) changed_.notify_all();
  }

  // While all buckets are reduced and `next_bucket_` is behind the last one, the thread sleeps. So
  // the buckets may be read and reset here.
  Status WaitAll() override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return next_bucket_ == buckets_.size() || failure_; });
    if (failure_) return Fail(ErrorCode::kInternal, *failure_);
    for (uint32_t index = 0; index < places_.size(); ++index) {
      const std::span<float> tensor = context_.gradients.tensor(index);
      const float* values = buckets_[places_[index].bucket].values.data() + places_[index].start;
      std::memcpy(tensor.data(), values, tensor.size_bytes());
    }
    for (GlooBucket& bucket : buckets_) bucket.missing_count = bucket.tensors.size();
    next_bucket_ = 0;
    return {};
  }

  Traffic traffic() override {
    const std::lock_guard lock(mutex_);
    return traffic_;
  }

 private:
  struct FlatPosition {
    size_t bucket = 0;
    size_t start = 0;  // [floats]
  };

  // The last tensor comes first, because a backward pass makes its gradient first.
  void MakeBuckets() {
    places_.resize(context_.network.tensors.size());
    uint64_t limit = kFirstBucketBytes;
    for (auto index = static_cast<uint32_t>(places_.size()); index-- > 0;) {
      if (buckets_.empty() || buckets_.back().values.size() * sizeof(float) >= limit) {
        if (!buckets_.empty()) limit = context_.settings.gloo_bucket_bytes;
        buckets_.emplace_back();
      }
      GlooBucket& bucket = buckets_.back();
      places_[index] = {buckets_.size() - 1, bucket.values.size()};
      bucket.values.resize(bucket.values.size() + context_.network.tensors[index].count);
      bucket.tensors.push_back(index);
      bucket.missing_count = bucket.tensors.size();
    }
  }

  // The buckets are reduced in their order, one at a time. All ranks have the same order, so no
  // rank waits in one bucket for a rank that waits in another.
  void Run() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] {
        return is_ending_ ||
               (next_bucket_ < buckets_.size() && buckets_[next_bucket_].missing_count == 0);
      });
      if (is_ending_) return;
      GlooBucket& bucket = buckets_[next_bucket_];
      lock.unlock();
      std::optional<std::string> failure;
      try {
        Reduce(bucket);
      } catch (const std::exception& thrown) {
        failure = fmt::format("gloo: {}", thrown.what());
      }
      lock.lock();
      if (failure) {
        // The thread ends. WaitAll returns the failure, in this iteration and in all later ones.
        failure_ = failure;
        changed_.notify_all();
        return;
      }
      CountAndGoOn(bucket);
    }
  }

  void Reduce(GlooBucket& bucket) {
    if (context_.window != nullptr) context_.window->OnTransfer();
    gloo::AllreduceOptions options(gloo_);
    options.setOutput(bucket.values.data(), bucket.values.size());
    options.setReduceFunction(
        [](void* to, const void* a, const void* b, size_t n) { gloo::sum<float>(to, a, b, n); });
    gloo::allreduce(options);
  }

  // Requires: the lock
  void CountAndGoOn(const GlooBucket& bucket) {
    const uint64_t bytes = bucket.values.size() * sizeof(float);
    ++traffic_.collectives;
    traffic_.collective_bytes += bytes;
    ++traffic_.sizes[bytes];
    // Only WaitAll waits for this change, and only for the last bucket.
    if (++next_bucket_ == buckets_.size()) changed_.notify_all();
  }

  const SyncContext context_;
  std::shared_ptr<gloo::Context> gloo_;
  std::vector<FlatPosition> places_;  // [tensors]
  std::vector<GlooBucket> buckets_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  size_t next_bucket_ = 0;  // to be reduced
  bool is_ending_ = false;
  std::optional<std::string> failure_;
  Traffic traffic_;
  std::thread thread_;
};

// The address on which this rank listens: the loopback on one host, as torch.distributed does by
// default; otherwise the host name. Collective.
std::string GlooHostName(MPI_Comm communicator) {
  MPI_Comm host = MPI_COMM_NULL;
  MPI_Comm_split_type(communicator, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
  int host_size = 0, size = 0;
  MPI_Comm_size(host, &host_size);
  MPI_Comm_size(communicator, &size);
  MPI_Comm_free(&host);
  // The minimum over all ranks, so that all of them listen at the same kind of address.
  int is_one_host = host_size == size ? 1 : 0;
  MPI_Allreduce(MPI_IN_PLACE, &is_one_host, 1, MPI_INT, MPI_MIN, communicator);
  if (is_one_host != 0) return "localhost";
  std::array<char, 256> name{};
  const bool is_named = ::gethostname(name.data(), name.size() - 1) == 0;
  return is_named ? name.data() : "localhost";
}

}  // namespace

Result<std::unique_ptr<GradientSync>> MakeGlooSync(const SyncContext& context) {
  try {
    gloo::transport::tcp::attr where(GlooHostName(context.communicator).c_str());
    std::shared_ptr<gloo::transport::Device> device = gloo::transport::tcp::CreateDevice(where);
    auto gloo =
        std::make_shared<gloo::rendezvous::Context>(context.group.rank(), context.group.size());
    MpiStore store(context.communicator);
    gloo->connectFullMesh(store, device);
    return std::make_unique<GlooSync>(context, std::move(gloo));
  } catch (const std::exception& failure) {
    return Fail(ErrorCode::kInternal, fmt::format("gloo: {}", failure.what()));
  }
}

}  // namespace lmdbio::bench
