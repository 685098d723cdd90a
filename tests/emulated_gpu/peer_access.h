// tests/emulated_gpu/peer_access.h - which emulated devices may use the memory of which others.
#ifndef LMDBIO_TESTS_EMULATED_GPU_PEER_ACCESS_H_
#define LMDBIO_TESTS_EMULATED_GPU_PEER_ACCESS_H_

#include <array>
#include <cstddef>

#include "tests/emulated_gpu/emulated_gpu.h"

namespace lmdbio::test {

// Access goes one way, as on a GPU. Not for several threads at once.
class PeerAccess {
 public:
  // Every device reaches every other one, but for the pairs of LMDBIO_EMULATED_GPU_UNREACHED. Ends
  // the process if that variable names no pairs of devices.
  PeerAccess();

  void SetReach(int from, int to, bool reaches) { At(from, to).reaches = reaches; }
  bool Reaches(int from, int to) const { return At(from, to).reaches; }
  // False if it was enabled before.
  bool Enable(int from, int to);
  // Whether work of `from` may use memory that `to` has allocated in this process.
  bool Allows(int from, int to) const;
  // The context of a device has ended, and with it all access from it and to it.
  void Forget(int ordinal);

 private:
  struct OneWay {
    bool reaches = true;
    bool is_enabled = false;
  };

  OneWay& At(int from, int to) {
    return ways_.at(static_cast<size_t>(from)).at(static_cast<size_t>(to));
  }
  const OneWay& At(int from, int to) const {
    return ways_.at(static_cast<size_t>(from)).at(static_cast<size_t>(to));
  }

  std::array<std::array<OneWay, kEmulatedDevicesMax>, kEmulatedDevicesMax> ways_ = {};
};

}  // namespace lmdbio::test
#endif  // LMDBIO_TESTS_EMULATED_GPU_PEER_ACCESS_H_
