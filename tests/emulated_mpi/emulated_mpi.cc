// An MPI that takes memory of GPUs of the stand-in (tests/emulated_gpu), by MPI's profiling
// interface: values are copied to the host, MPI works on them there, and they are copied back.
//
// As Open MPI, it takes such memory in blocking calls only; the operation must be one of its own;
// and it needs a current context. Else it returns an error, where MPI itself would end the process.
#include <dlfcn.h>

#include <vector>

#include <mpi.h>

#include "tests/emulated_gpu/emulated_gpu.h"

namespace {

// Null: this process has not opened the stand-in.
const lmdbio::test::EmulatedControl* OpenedControl() {
  using Get = decltype(&lmdbio_emulated_gpu_control);
  void* const library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
  if (library == nullptr) return nullptr;
  const auto get = reinterpret_cast<Get>(::dlsym(library, "lmdbio_emulated_gpu_control"));
  return get != nullptr ? get() : nullptr;
}

// Memory of a device, copied to the host.
class CopyOnHost {
 public:
  CopyOnHost(void* place, int count, MPI_Datatype type) : place_(place) {
    int element_bytes = 0;
    MPI_Type_size(type, &element_bytes);
    bytes_.resize(static_cast<size_t>(count) * static_cast<size_t>(element_bytes));
    is_on_device_ = control_ != nullptr && !bytes_.empty() &&
                    control_->Peek(bytes_.data(), address(), bytes_.size());
  }

  bool is_on_device() const { return is_on_device_; }
  bool has_context() const { return control_->CurrentDevice() >= 0; }
  void* data() { return bytes_.data(); }
  int PutBack(int code) {
    if (code == MPI_SUCCESS) control_->Poke(address(), bytes_.data(), bytes_.size());
    return code;
  }

 private:
  uint64_t address() const { return reinterpret_cast<uintptr_t>(place_); }

  const lmdbio::test::EmulatedControl* const control_ = OpenedControl();
  void* const place_;
  std::vector<char> bytes_;
  bool is_on_device_ = false;
};

bool IsOfMpi(MPI_Op op) {
  return op == MPI_SUM || op == MPI_PROD || op == MPI_MIN || op == MPI_MAX;
}

}  // namespace

extern "C" {

int MPIX_Query_cuda_support(void);
int MPIX_Query_cuda_support(void) { return 1; }

int MPI_Allreduce(const void* from, void* to, int count, MPI_Datatype type, MPI_Op op,
                  MPI_Comm communicator) {
  CopyOnHost copy(to, count, type);
  if (!copy.is_on_device()) return PMPI_Allreduce(from, to, count, type, op, communicator);
  if (from != MPI_IN_PLACE || !IsOfMpi(op) || !copy.has_context()) return MPI_ERR_BUFFER;
  return copy.PutBack(PMPI_Allreduce(MPI_IN_PLACE, copy.data(), count, type, op, communicator));
}

int MPI_Bcast(void* place, int count, MPI_Datatype type, int root, MPI_Comm communicator) {
  CopyOnHost copy(place, count, type);
  if (!copy.is_on_device()) return PMPI_Bcast(place, count, type, root, communicator);
  if (!copy.has_context()) return MPI_ERR_BUFFER;
  return copy.PutBack(PMPI_Bcast(copy.data(), count, type, root, communicator));
}

int MPI_Iallreduce(const void* from, void* to, int count, MPI_Datatype type, MPI_Op op,
                   MPI_Comm communicator, MPI_Request* request) {
  if (CopyOnHost(to, count, type).is_on_device()) return MPI_ERR_BUFFER;
  return PMPI_Iallreduce(from, to, count, type, op, communicator, request);
}

}  // extern "C"
