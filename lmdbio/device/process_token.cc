#include "lmdbio/device/process_token.h"

#include <unistd.h>

#include <random>

namespace lmdbio::device {

// Process ids tell processes of one pid namespace apart, and the random number tells those of
// different namespaces apart.
uint64_t ProcessToken() {
  static const uint64_t kRandom = [] {
    std::random_device source;
    return (uint64_t{source()} << 32) | source();
  }();
  return kRandom ^ (static_cast<uint64_t>(::getpid()) * 0x9E3779B97F4A7C15U);
}

}  // namespace lmdbio::device
