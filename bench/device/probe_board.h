// bench/device/probe_board.h - the memory that the processes of one trial share.
#ifndef LMDBIO_BENCH_DEVICE_PROBE_BOARD_H_
#define LMDBIO_BENCH_DEVICE_PROBE_BOARD_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "lmdbio/device/device_event.h"
#include "lmdbio/device/device_memory.h"

namespace lmdbio::probe {

inline constexpr int kRolesMax = 2;

// The options of the probe that trials look at.
struct TrialOptions {
  int ordinal = 0;
  int sample_count = 20;
  uint64_t size_bytes_max = 0;
  double drain_seconds = 5;
};

// Made by the first process of the probe, in memory that the others map.
struct ProbeBoard {
  static constexpr size_t kMarkBytes = 65536;  // whole pages of every kernel

  TrialOptions options;
  // The last step that each role has reached, from 1.
  std::array<std::atomic<uint64_t>, kRolesMax> steps;
  // A role that is set here is to be killed by the first process.
  std::array<std::atomic<uint32_t>, kRolesMax> wants_kill;
  // Processes that have ended, and were reaped.
  std::array<std::atomic<uint32_t>, kRolesMax> is_gone;

  std::atomic<uint32_t> has_memory;
  std::array<std::atomic<uint32_t>, kRolesMax> has_event;
  device::MemoryTicket memory;
  std::array<device::EventTicket, kRolesMax> events;  // of each role

  alignas(kMarkBytes) std::array<std::byte, kMarkBytes> marks;
};

}  // namespace lmdbio::probe
#endif  // LMDBIO_BENCH_DEVICE_PROBE_BOARD_H_
