// lmdbio/ranks/shm/futex.h - sleep until a word of shared memory changes.
//
// Works between processes: the word may lie in memory that several of them map.
#ifndef LMDBIO_RANKS_SHM_FUTEX_H_
#define LMDBIO_RANKS_SHM_FUTEX_H_

#include <atomic>
#include <chrono>
#include <cstdint>

namespace lmdbio {

// Sleeps until FutexWake is called on `word`, `timeout` has passed, or a signal arrives; returns at
// once if `word` is not `expected`. May return for no reason: look at the word again.
void FutexWait(const std::atomic<uint32_t>& word, uint32_t expected,
               std::chrono::milliseconds timeout);

// Wakes everybody who sleeps on `word`.
void FutexWake(const std::atomic<uint32_t>& word);

}  // namespace lmdbio
#endif  // LMDBIO_RANKS_SHM_FUTEX_H_
