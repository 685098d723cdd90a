// tests/sync/over_nccl/nccl_control.h - finds the control of the stand-in for NCCL.
#ifndef LMDBIO_TESTS_SYNC_OVER_NCCL_NCCL_CONTROL_H_
#define LMDBIO_TESTS_SYNC_OVER_NCCL_NCCL_CONTROL_H_

#include <dlfcn.h>

#include <stdexcept>

#include "lmdbio/sync/over_nccl/nccl_table.h"
#include "tests/emulated_nccl/emulated_nccl.h"

namespace lmdbio::test {

// Throws std::runtime_error if NCCL is not the stand-in.
inline const EmulatedNcclControl& NcclControl() {
  using Get = decltype(&lmdbio_emulated_nccl_control);
  void* const library = ::dlopen(sync::kNcclLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw std::runtime_error(::dlerror());
  const auto get = reinterpret_cast<Get>(::dlsym(library, "lmdbio_emulated_nccl_control"));
  if (get == nullptr) throw std::runtime_error("libnccl.so.2 is not the stand-in");
  return *get();
}

}  // namespace lmdbio::test
#endif  // LMDBIO_TESTS_SYNC_OVER_NCCL_NCCL_CONTROL_H_
