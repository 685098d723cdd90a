// tests/emulated_nccl/emulated_nccl.h - the control of the stand-in for NCCL, for tests.
//
// The stand-in is a shared library of the name libnccl.so.2. It has the functions of NcclTable, and
// the one exported function below. Its work runs on the streams of the stand-in for a driver
// (tests/emulated_gpu), which it opens as libcuda.so.1.
//
// As NCCL it refuses two ranks on one GPU. A call may be in progress when it returns, and its work
// is enqueued only when the state of the communicator has said that the call is done. Work on a
// stream waits for the other ranks until it is aborted, also if one of them is dead. Aborted work
// leaves other values. Values are added from the last rank to the first, and rounded each time.
//
// lmdbio/docs/device_nccl.md describes what it emulates.
#ifndef LMDBIO_TESTS_EMULATED_NCCL_EMULATED_NCCL_H_
#define LMDBIO_TESTS_EMULATED_NCCL_EMULATED_NCCL_H_

#include <cstdint>

#include "lmdbio/sync/over_nccl/nccl_table.h"

namespace lmdbio::test {

inline constexpr int kEmulatedNcclVersion = 22809;
// Codes of faults that no code of NCCL is: the call is in progress until it is aborted, or it kills
// the process.
inline constexpr sync::NcclCode kEndlessInNccl = -1;
inline constexpr sync::NcclCode kKillInNccl = -2;

// Names are those of NCCL, as "ncclAllReduce". Threads: any
struct EmulatedNcclControl {
  // Forgets counts, faults and settings.
  void (*Reset)();
  // The `nth` call from now on, from 1, returns `code` and does nothing.
  void (*FailCall)(const char* name, uint64_t nth, sync::NcclCode code);
  // The same, but the call is in progress when it returns, and the state of the communicator has
  // the code later.
  void (*FailLater)(const char* name, uint64_t nth, sync::NcclCode code);
  // The communicators of this process have failed with this code.
  void (*FailAll)(sync::NcclCode code);
  uint64_t (*FaultsLeft)();                 // that were not met yet
  uint64_t (*CallCount)(const char* name);  // since Reset
  // Communicators of this process that were neither destroyed nor aborted.
  uint64_t (*CommCount)();
  void (*SetVersion)(int version);
  // How often the state of a communicator says that a call is in progress; 0 at first.
  void (*SetLooks)(int looks);
};

}  // namespace lmdbio::test

extern "C" const lmdbio::test::EmulatedNcclControl* lmdbio_emulated_nccl_control();

#endif  // LMDBIO_TESTS_EMULATED_NCCL_EMULATED_NCCL_H_
