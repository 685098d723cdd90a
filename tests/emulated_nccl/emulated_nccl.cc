// The exported functions of the stand-in: those of NCCL, and the control.

#include "tests/emulated_nccl/emulated_nccl.h"

#include <unistd.h>

#include <bit>
#include <csignal>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "tests/emulated_gpu/call_faults.h"
#include "tests/emulated_nccl/emulated_communicator.h"

namespace lmdbio::test {
namespace {

using sync::NcclCode;
using sync::NcclCommHandle;
using sync::NcclConfig;
using sync::NcclId;
namespace codes = nccl_codes;

// A fault of the state of a communicator is this and its code.
constexpr NcclCode kLater = 100;

struct NcclMachine {
  CallFaults faults;
  std::map<uint64_t, std::unique_ptr<EmulatedCommunicator>> communicators;
  uint64_t last_id = 0;
  int version = kEmulatedNcclVersion;
  int looks = 0;

  // Null: there is none.
  EmulatedCommunicator* Find(NcclCommHandle handle) const {
    const auto found = communicators.find(std::bit_cast<uint64_t>(handle));
    return found != communicators.end() ? found->second.get() : nullptr;
  }
};

std::mutex nccl_mutex;

// The mutex is held.
NcclMachine& Machine() {
  static NcclMachine& machine = *std::make_unique<NcclMachine>().release();
  return machine;
}

// `body` gets the machine, and the fault of a call that goes on.
template <typename Body>
NcclCode Serve(const char* name, Body&& body) {
  const std::lock_guard lock(nccl_mutex);
  NcclMachine& machine = Machine();
  const NcclCode fault = machine.faults.Meet(name);
  if (fault == test::kKillInNccl) std::raise(SIGKILL);
  if (fault > sync::nccl_code::kSuccess && fault < kLater) {
    return FailWith(fault, "a fault of the test");
  }
  return body(machine, fault);
}

// The same for calls of a communicator, which NCCL makes on the device of the current context.
template <typename Body>
NcclCode ServeComm(const char* name, NcclCommHandle handle, Body&& body) {
  return Serve(name, [&](NcclMachine& machine, NcclCode fault) {
    EmulatedCommunicator* const comm = machine.Find(handle);
    if (comm == nullptr) return FailWith(codes::kInvalidArgument, "no such communicator");
    return body(machine, *comm, fault);
  });
}

PendingCall PendingOf(const NcclMachine& machine, NcclCode fault, std::function<NcclCode()> step) {
  return {.step = std::move(step),
          .looks_left = machine.looks,
          .fails_with = fault >= kLater ? fault - kLater : sync::nccl_code::kSuccess,
          .is_endless = fault == test::kEndlessInNccl};
}

NcclCode BeginCall(const char* name, NcclCommHandle handle, const BoardCall& call, const void* from,
                   void* to, device::StreamHandle stream) {
  return ServeComm(
      name, handle,
      [&](const NcclMachine& machine, EmulatedCommunicator& comm, NcclCode fault) -> NcclCode {
        if (GpuControl().CurrentDevice() < 0) {
          return FailWith(codes::kUnhandledCudaError, "no context is current");
        }
        const auto enqueue = [&comm, name, call, stream, from = std::bit_cast<uint64_t>(from),
                              to = std::bit_cast<uint64_t>(to)] {
          return comm.Enqueue(name, call, from, to, stream);
        };
        return comm.Begin(PendingOf(machine, fault, enqueue));
      });
}

// Takes the communicator away.
NcclCode EndComm(const char* name, NcclCommHandle handle) {
  return ServeComm(name, handle, [&](NcclMachine& machine, EmulatedCommunicator& comm, NcclCode) {
    comm.Abort();
    machine.communicators.erase(std::bit_cast<uint64_t>(handle));
    return sync::nccl_code::kSuccess;
  });
}

const EmulatedNcclControl kNcclControl = {
    .Reset =
        [] {
          const std::lock_guard lock(nccl_mutex);
          NcclMachine& machine = Machine();
          machine.faults = CallFaults();
          machine.version = kEmulatedNcclVersion;
          machine.looks = 0;
        },
    .FailCall =
        [](const char* name, uint64_t nth, NcclCode code) {
          const std::lock_guard lock(nccl_mutex);
          Machine().faults.Add(name, nth, code);
        },
    .FailLater =
        [](const char* name, uint64_t nth, NcclCode code) {
          const std::lock_guard lock(nccl_mutex);
          Machine().faults.Add(name, nth, kLater + code);
        },
    .FailAll =
        [](NcclCode code) {
          const std::lock_guard lock(nccl_mutex);
          for (const auto& [id, comm] : Machine().communicators) comm->Fail(code);
        },
    .FaultsLeft =
        [] {
          const std::lock_guard lock(nccl_mutex);
          return Machine().faults.left();
        },
    .CallCount =
        [](const char* name) {
          const std::lock_guard lock(nccl_mutex);
          return Machine().faults.Count(name);
        },
    .CommCount = []() -> uint64_t {
      const std::lock_guard lock(nccl_mutex);
      return Machine().communicators.size();
    },
    .SetVersion =
        [](int version) {
          const std::lock_guard lock(nccl_mutex);
          Machine().version = version;
        },
    .SetLooks =
        [](int looks) {
          const std::lock_guard lock(nccl_mutex);
          Machine().looks = looks;
        },
};

}  // namespace
}  // namespace lmdbio::test

#define LMDBIO_NCCL_EXPORT extern "C" __attribute__((visibility("default")))

using lmdbio::device::StreamHandle;
using lmdbio::sync::NcclCode;
using lmdbio::sync::NcclCommHandle;
using lmdbio::sync::NcclConfig;
using lmdbio::sync::NcclId;
using lmdbio::sync::NcclOp;
using lmdbio::sync::NcclType;
namespace nccl_code = lmdbio::sync::nccl_code;
namespace test = lmdbio::test;

LMDBIO_NCCL_EXPORT NcclCode ncclGetVersion(int* version);
LMDBIO_NCCL_EXPORT const char* ncclGetErrorString(NcclCode code);
LMDBIO_NCCL_EXPORT const char* ncclGetLastError(NcclCommHandle comm);
LMDBIO_NCCL_EXPORT NcclCode ncclGetUniqueId(NcclId* id);
LMDBIO_NCCL_EXPORT NcclCode ncclCommInitRankConfig(NcclCommHandle* comm, int size, NcclId id,
                                                   int rank, NcclConfig* config);
LMDBIO_NCCL_EXPORT NcclCode ncclCommGetAsyncError(NcclCommHandle comm, NcclCode* state);
LMDBIO_NCCL_EXPORT NcclCode ncclAllReduce(const void* from, void* to, size_t count, NcclType type,
                                          NcclOp op, NcclCommHandle comm, StreamHandle stream);
LMDBIO_NCCL_EXPORT NcclCode ncclBroadcast(const void* from, void* to, size_t count, NcclType type,
                                          int root, NcclCommHandle comm, StreamHandle stream);
LMDBIO_NCCL_EXPORT NcclCode ncclCommFinalize(NcclCommHandle comm);
LMDBIO_NCCL_EXPORT NcclCode ncclCommDestroy(NcclCommHandle comm);
LMDBIO_NCCL_EXPORT NcclCode ncclCommAbort(NcclCommHandle comm);
LMDBIO_NCCL_EXPORT const test::EmulatedNcclControl* lmdbio_emulated_nccl_control();

const test::EmulatedNcclControl* lmdbio_emulated_nccl_control() { return &test::kNcclControl; }

NcclCode ncclGetVersion(int* version) {
  return test::Serve("ncclGetVersion", [&](const test::NcclMachine& machine, NcclCode) {
    *version = machine.version;
    return nccl_code::kSuccess;
  });
}

const char* ncclGetErrorString(NcclCode code) {
  switch (code) {
    case test::nccl_codes::kUnhandledCudaError:
      return "unhandled cuda error";
    case nccl_code::kSystemError:
      return "unhandled system error";
    case test::nccl_codes::kInternalError:
      return "internal error";
    case test::nccl_codes::kInvalidArgument:
      return "invalid argument";
    case test::nccl_codes::kInvalidUsage:
      return "invalid usage";
    case nccl_code::kRemoteError:
      return "remote process exited or there was a network error";
    default:
      return "unknown result code";
  }
}

const char* ncclGetLastError(NcclCommHandle) { return test::LastWords(); }

NcclCode ncclGetUniqueId(NcclId* id) {
  return test::Serve("ncclGetUniqueId", [&](const test::NcclMachine&, NcclCode) {
    *id = test::NcclBoard::MakeId();
    return nccl_code::kSuccess;
  });
}

// A call that waits, waits until all ranks are there.
NcclCode ncclCommInitRankConfig(NcclCommHandle* comm, int size, NcclId id, int rank,
                                NcclConfig* config) {
  using namespace test;
  *comm = nullptr;
  NcclCode code =
      Serve("ncclCommInitRankConfig", [&](NcclMachine& machine, NcclCode fault) -> NcclCode {
        const int device = GpuControl().CurrentDevice();
        if (device < 0) return FailWith(codes::kUnhandledCudaError, "no context is current");
        if (config->magic != 0xCAFEBEEF || config->size_bytes < 20 || config->version < 21400 ||
            size > kBoardRanksMax) {
          return FailWith(codes::kInvalidArgument, "a configuration of another version");
        }
        std::shared_ptr<NcclBoard> board = NcclBoard::Open(id);
        if (board == nullptr) return FailWith(nccl_code::kSystemError, "rank 0 is gone");
        auto made = std::make_unique<EmulatedCommunicator>(std::move(board), rank, size, device);
        EmulatedCommunicator* const one = made.get();
        const uint64_t number = ++machine.last_id;
        machine.communicators[number] = std::move(made);
        *comm = std::bit_cast<NcclCommHandle>(number);
        return one->Begin(PendingOf(machine, fault, [one] { return one->Meet(); }));
      });
  while (config->is_blocking != 0 && code == nccl_code::kInProgress) {
    ncclCommGetAsyncError(*comm, &code);
  }
  return code;
}

NcclCode ncclCommGetAsyncError(NcclCommHandle comm, NcclCode* state) {
  return test::ServeComm("ncclCommGetAsyncError", comm,
                         [&](const test::NcclMachine&, test::EmulatedCommunicator& one, NcclCode) {
                           *state = one.Look();
                           return nccl_code::kSuccess;
                         });
}

NcclCode ncclAllReduce(const void* from, void* to, size_t count, NcclType type, NcclOp op,
                       NcclCommHandle comm, StreamHandle stream) {
  return test::BeginCall(
      "ncclAllReduce", comm,
      {.count = count, .type = static_cast<int>(type), .op = static_cast<int>(op)}, from, to,
      stream);
}

NcclCode ncclBroadcast(const void* from, void* to, size_t count, NcclType type, int root,
                       NcclCommHandle comm, StreamHandle stream) {
  return test::BeginCall("ncclBroadcast", comm,
                         {.count = count, .type = static_cast<int>(type), .root = root}, from, to,
                         stream);
}

NcclCode ncclCommFinalize(NcclCommHandle comm) {
  return test::ServeComm(
      "ncclCommFinalize", comm,
      [](const test::NcclMachine& machine, test::EmulatedCommunicator& one, NcclCode fault) {
        return one.Begin(test::PendingOf(machine, fault, [&one] { return one.Finish(); }));
      });
}

NcclCode ncclCommDestroy(NcclCommHandle comm) { return test::EndComm("ncclCommDestroy", comm); }

NcclCode ncclCommAbort(NcclCommHandle comm) { return test::EndComm("ncclCommAbort", comm); }
