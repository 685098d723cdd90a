#include "bench/gloo_ranks.h"

#ifdef LMDBIO_BENCH_GLOO
#include <gloo/allreduce.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <filesystem>
#include <optional>
#include <string>

#include "bench/scratch_folder.h"

namespace lmdbio::bench {
namespace {

class GlooRing final : public GlooRanks {
 public:
  explicit GlooRing(std::shared_ptr<gloo::Context> context) : context_(std::move(context)) {}
  void AllReduceSum(float* values, size_t count) override {
    gloo::AllreduceOptions options(context_);
    options.setOutput(values, count);
    options.setReduceFunction(
        static_cast<void (*)(void*, const void*, const void*, size_t)>(&gloo::sum<float>));
    gloo::allreduce(options);
  }

 private:
  std::shared_ptr<gloo::Context> context_;
};

// Rank 0 creates a directory and broadcasts its name. The others get its name as the first of the
// gathered names; zero bytes fill up each name.
// made  receives the directory on rank 0
std::string CommonDirectory(int rank, std::optional<ScratchFolder>& made,
                            const GatherFromAll& gather) {
  std::vector<char> name(4096);
  if (rank == 0) {
    auto folder = ScratchFolder::Make(std::filesystem::temp_directory_path(), "gloo");
    if (!folder) throw std::runtime_error(folder.error().message());
    made.emplace(*std::move(folder));
    made->path().string().copy(name.data(), name.size() - 1);
  }
  return {gather(name).data()};
}

}  // namespace

std::unique_ptr<GlooRanks> ConnectGloo(int rank, int rank_count, const std::string& interface,
                                       const GatherFromAll& gather) {
  std::optional<ScratchFolder> made;
  const std::string directory = CommonDirectory(rank, made, gather);
  gloo::transport::tcp::attr where;
  where.iface = interface;
  auto device = gloo::transport::tcp::CreateDevice(where);
  gloo::rendezvous::FileStore store(directory);
  auto context = std::make_shared<gloo::rendezvous::Context>(rank, rank_count);
  context->connectFullMesh(store, device);
  gather({'x'});  // a barrier: all ranks are connected
  return std::make_unique<GlooRing>(std::move(context));
}

}  // namespace lmdbio::bench

#else

namespace lmdbio::bench {

std::unique_ptr<GlooRanks> ConnectGloo(int, int, const std::string&, const GatherFromAll&) {
  return nullptr;
}

}  // namespace lmdbio::bench

#endif
