// tests/sync/over_nccl/nccl_rank.h - ranks that reduce by the stand-in for NCCL
// (tests/emulated_nccl).
#ifndef LMDBIO_TESTS_SYNC_OVER_NCCL_NCCL_RANK_H_
#define LMDBIO_TESTS_SYNC_OVER_NCCL_NCCL_RANK_H_

#include <string>
#include <utility>

#include "lmdbio/sync/over_nccl/nccl_collectives.h"
#include "tests/sync/over_device/exact_values.h"
#include "tests/sync/over_device/rank_on_device.h"
#include "tests/sync/over_nccl/nccl_control.h"

namespace lmdbio::test {

// The GPUs of four ranks, and NCCL in its first state.
class EmulatedNccl {
 public:
  explicit EmulatedNccl(uint64_t seed = 1, int looks = 0) : gpu_(seed) {
    gpu_->SetDeviceCount(kEmulatedDevicesMax);
    NcclControl().Reset();
    NcclControl().SetLooks(looks);
  }

  const EmulatedGpu& gpu() const { return gpu_; }
  const EmulatedNcclControl* operator->() const { return &control_; }

 private:
  const EmulatedGpu gpu_;
  const EmulatedNcclControl& control_ = NcclControl();
};

// health  outlives the collectives
inline RankSetup::Maker ByNccl(ranks::Health& health, const char* library = sync::kNcclLibrary,
                               uint64_t arena_bytes = 64 << 10) {
  return
      [&health, library, arena_bytes](ranks::Group& group, const sync::DeviceCollectiveParts& parts)
          -> Result<std::unique_ptr<sync::ArenaCollectives>> {
        return sync::NcclCollectives::Make(
            group,
            {.gpu = parts.gpu,
             .kernels = parts.kernels,
             .meetings = parts.meetings,
             .check = parts.check,
             .give_up = [&health](const Error& why) { health.GiveUp(why); },
             .library = library},
            arena_bytes);
      };
}

}  // namespace lmdbio::test
#endif  // LMDBIO_TESTS_SYNC_OVER_NCCL_NCCL_RANK_H_
