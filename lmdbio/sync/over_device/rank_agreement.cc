#include "lmdbio/sync/over_device/rank_agreement.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include <fmt/format.h>

namespace lmdbio::sync {

Status AgreeOnSupport(ranks::Group& group, Status mine) {
  Status failure;
  Status refusal;
  const bool is_refused = !mine && mine.error().code() == ErrorCode::kUnsupported;
  (is_refused ? refusal : failure) = std::move(mine);
  LMDBIO_TRY_VOID(ranks::Agree(group, std::move(failure)));
  Status agreed = ranks::Agree(group, std::move(refusal));
  if (agreed) return agreed;
  if (agreed.error().code() == ErrorCode::kPeerFailed) {
    return Fail(ErrorCode::kUnsupported, std::move(agreed).error().message());
  }
  return Fail(std::move(agreed).error().Within(fmt::format("rank {}", group.rank())));
}

Error NamedFailure(int rank, const Error& why) {
  if (why.code() == ErrorCode::kPeerFailed) return why.Copy();
  return why.Copy().Within(fmt::format("rank {}", rank));
}

GpuFacts FactsOf(const device::Device& gpu, const kernels::DeviceKernels* kernels) {
  GpuFacts facts;
  const std::string& uuid = gpu.facts().uuid;
  std::copy_n(uuid.begin(), std::min(uuid.size(), facts.uuid.size() - 1), facts.uuid.begin());
  facts.has_kernels = kernels != nullptr;
  return facts;
}

std::string LackOfKernels(const std::vector<GpuFacts>& all) {
  const auto lacking =
      std::ranges::find_if(all, [](const GpuFacts& gpu) { return !gpu.has_kernels; });
  if (lacking == all.end()) return "";
  return fmt::format("rank {} has no kernels for its GPU", std::distance(all.begin(), lacking));
}

}  // namespace lmdbio::sync
