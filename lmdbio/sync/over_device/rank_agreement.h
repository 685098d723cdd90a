// lmdbio/sync/over_device/rank_agreement.h - what ranks tell each other when they make objects that
// all of them need, and when they fail.
#ifndef LMDBIO_SYNC_OVER_DEVICE_RANK_AGREEMENT_H_
#define LMDBIO_SYNC_OVER_DEVICE_RANK_AGREEMENT_H_

#include <array>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "lmdbio/base/status.h"
#include "lmdbio/device/device.h"
#include "lmdbio/kernels/device_kernels.h"
#include "lmdbio/ranks/group/group.h"

namespace lmdbio::sync {

// Collective. As ranks::Agree, but if all failures are kUnsupported, every rank gets kUnsupported,
// with the number of a rank and its message. So all ranks can go another way.
// Errors: as ranks::Agree; kUnsupported
Status AgreeOnSupport(ranks::Group& group, Status mine);

// Collective. Returns `mine` if every rank has a value.
// Errors: as AgreeOnSupport
template <typename T>
Result<T> ForAllOrNone(ranks::Group& group, Result<T> mine) {
  LMDBIO_TRY_VOID(AgreeOnSupport(group, mine ? Status() : Fail(mine.error().Copy())));
  return mine;
}

// A failure of a rank, in the words for the others: with the number of the rank, unless the failure
// is that of another one.
Error NamedFailure(int rank, const Error& why);

// The facts that ranks tell each other of their GPUs. Plain data.
struct GpuFacts {
  std::array<char, 63> uuid = {};  // ends with 0
  bool has_kernels = false;
};
// kernels  of the GPU; null: there are none
GpuFacts FactsOf(const device::Device& gpu, const kernels::DeviceKernels* kernels);
// Names a rank without kernels; "" if there is none.
std::string LackOfKernels(const std::vector<GpuFacts>& all);

// Collective. `mine` of all ranks, in rank order.
// Errors: as ranks::Group::AllGather
template <typename T>
Result<std::vector<T>> GatherFacts(ranks::Group& group, const T& mine) {
  static_assert(std::is_trivially_copyable_v<T>);
  LMDBIO_TRY(const auto bytes, group.AllGather(std::as_bytes(std::span(&mine, 1))));
  std::vector<T> all(static_cast<size_t>(group.size()), mine);
  std::memcpy(all.data(), bytes.data(), bytes.size());
  return all;
}

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_OVER_DEVICE_RANK_AGREEMENT_H_
