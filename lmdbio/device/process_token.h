// lmdbio/device/process_token.h - tells the processes of a host apart.
#ifndef LMDBIO_DEVICE_PROCESS_TOKEN_H_
#define LMDBIO_DEVICE_PROCESS_TOKEN_H_

#include <cstdint>

namespace lmdbio::device {

// A number that no other process of this host has, and that stays the same until this one ends or
// forks. A ticket carries it, so that a process recognises its own tickets.
// Threads: any
uint64_t ProcessToken();

}  // namespace lmdbio::device
#endif  // LMDBIO_DEVICE_PROCESS_TOKEN_H_
