#include "tests/emulated_gpu/peer_access.h"

#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>
#include <utility>

namespace lmdbio::test {
namespace {

// "FROM-TO", two ordinals.
std::pair<int, int> PairOf(const std::string& text) {
  std::istringstream parts(text);
  int from = -1;
  int to = -1;
  char dash = 0;
  const bool is_pair = parts >> from >> dash >> to && dash == '-' && parts.eof();
  const bool are_devices = from >= 0 && from < kEmulatedDevices && to >= 0 && to < kEmulatedDevices;
  if (!is_pair || !are_devices || from == to) {
    std::fprintf(stderr, "LMDBIO_EMULATED_GPU_UNREACHED: '%s' is no pair of GPUs\n", text.c_str());
    std::abort();
  }
  return {from, to};
}

}  // namespace

PeerAccess::PeerAccess() {
  const char* const text = std::getenv("LMDBIO_EMULATED_GPU_UNREACHED");
  if (text == nullptr) return;
  std::istringstream pairs(text);
  for (std::string pair; std::getline(pairs, pair, ',');) {
    const auto [from, to] = PairOf(pair);
    SetReach(from, to, false);
  }
}

bool PeerAccess::Enable(int from, int to) { return !std::exchange(At(from, to).is_enabled, true); }

bool PeerAccess::Allows(int from, int to) const {
  if (from == to) return true;
  const OneWay& access = At(from, to);
  return access.reaches && access.is_enabled;
}

void PeerAccess::Forget(int ordinal) {
  for (int other = 0; other < kEmulatedDevicesMax; ++other) {
    At(ordinal, other).is_enabled = false;
    At(other, ordinal).is_enabled = false;
  }
}

}  // namespace lmdbio::test
