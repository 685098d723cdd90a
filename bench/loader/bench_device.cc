#include "bench/loader/bench_device.h"

#include <algorithm>
#include <memory>
#include <utility>

#include <mpi.h>

#include "bench/device/device_probe.h"
#include "bench/loader/job_run.h"
#include "lmdbio/ranks/mpi/mpi_memory.h"

namespace lmdbio::tools {
namespace {

constexpr uint64_t kWindowBytes = 64 << 20;

// A window of the ranks of this host, with a communicator of its own.
class HostWindow {
 public:
  // Collective over MPI_COMM_WORLD.
  HostWindow() {
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host_);
    MPI_Comm_set_errhandler(host_, MPI_ERRORS_RETURN);
    int rank_count = 0;
    MPI_Comm_size(host_, &rank_count);
    if (rank_count > 1) memory_ = ranks::AllocateWindowMemory(host_, kWindowBytes, "");
  }
  ~HostWindow() {
    memory_ = Memory();  // before its communicator
    MPI_Comm_free(&host_);
  }
  HostWindow(const HostWindow&) = delete;
  HostWindow& operator=(const HostWindow&) = delete;

  Result<MutableBytes> Take(uint64_t size_bytes) const {
    if (!memory_) return Fail(memory_.error().Copy());
    if (*memory_ != nullptr) return (*memory_)->bytes().first(std::min(size_bytes, kWindowBytes));
    return Fail(ErrorCode::kUnsupported, "this host has one rank, which takes no window");
  }

 private:
  using Memory = std::unique_ptr<ranks::SharedMemory>;

  MPI_Comm host_ = MPI_COMM_NULL;
  Result<Memory> memory_ = Memory();
};

}  // namespace

Status ProbeDevice(ranks::Group& group, const Invocation& invocation,
                   const std::string& command_line) {
  probe::CheckProbeOptions(invocation);
  probe::ProbeSetting setting = {.command_line = command_line};
  if (JobRun::IsLaunched() || group.size() == 1) {
    return group.rank() == 0 ? probe::RunProbe(invocation, setting) : Status();
  }
  const HostWindow window;
  setting.window = [&](uint64_t size_bytes) { return window.Take(size_bytes); };
  Status status = group.rank() == 0 ? probe::RunProbe(invocation, setting) : Status();
  return ranks::Agree(group, std::move(status));
}

}  // namespace lmdbio::tools
