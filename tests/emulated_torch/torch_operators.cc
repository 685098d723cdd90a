// The operators of the backend: tensors without values, views and copies. All others run on the
// host, on copies.

#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <bit>
#include <utility>

#include "tests/emulated_torch/emulated_backend.h"

namespace lmdbio::test {
namespace {

using at::Tensor;

const c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);

c10::Device DeviceOf(std::optional<at::Device> device) {
  const c10::Device given = device.value_or(c10::Device(kBackend, CurrentDevice()));
  return {kBackend, given.has_index() ? given.index() : CurrentDevice()};
}

uint64_t AddressOf(const Tensor& tensor) {
  return std::bit_cast<uint64_t>(tensor.unsafeGetTensorImpl()->data());
}

Tensor Empty(at::IntArrayRef size, std::optional<at::ScalarType> type, std::optional<at::Layout>,
             std::optional<at::Device> device, std::optional<bool>,
             std::optional<at::MemoryFormat> format) {
  const c10::DeviceGuard guard(DeviceOf(device));
  return at::detail::empty_generic(size, &DeviceAllocator(), kKeys, c10::dtype_or_default(type),
                                   format);
}

Tensor EmptyStrided(at::IntArrayRef size, at::IntArrayRef stride,
                    std::optional<at::ScalarType> type, std::optional<at::Layout>,
                    std::optional<at::Device> device, std::optional<bool>) {
  const c10::DeviceGuard guard(DeviceOf(device));
  return at::detail::empty_strided_generic(size, stride, &DeviceAllocator(), kKeys,
                                           c10::dtype_or_default(type));
}

// Bytes from the first value to the last one.
size_t ExtentBytes(const Tensor& tensor) {
  if (tensor.numel() == 0) return 0;
  int64_t last = 0;
  for (int64_t i = 0; i < tensor.dim(); ++i) last += (tensor.size(i) - 1) * tensor.stride(i);
  return static_cast<size_t>(last + 1) * tensor.itemsize();
}

// A tensor of the host with the values and the strides of one on a device.
Tensor OnHost(const Tensor& tensor) {
  const size_t size = ExtentBytes(tensor);
  const Tensor whole = at::empty({static_cast<int64_t>(size / tensor.itemsize())},
                                 tensor.options().device(at::kCPU));
  CopyOut(tensor.device().index(), whole.data_ptr(), AddressOf(tensor), size);
  return whole.as_strided(tensor.sizes(), tensor.strides());
}

void FromHost(const Tensor& from, const Tensor& to) {
  if (to.numel() == 0) return;
  // Values between those of a tensor belong to others, and are written as they were.
  const Tensor values =
      to.is_non_overlapping_and_dense()
          ? at::empty_strided(to.sizes(), to.strides(), to.options().device(at::kCPU))
          : OnHost(to);
  values.copy_(from);
  CopyIn(to.device().index(), AddressOf(to), values.data_ptr(), ExtentBytes(to));
}

Tensor CopyFrom(const Tensor& from, const Tensor& to, bool) {
  const bool is_from_device = from.device().type() == kBackend;
  if (!is_from_device) {
    FromHost(from, to);
  } else if (to.device().type() != kBackend) {
    to.copy_(OnHost(from));
  } else if (from.scalar_type() == to.scalar_type() && from.sizes() == to.sizes() &&
             from.is_contiguous() && to.is_contiguous() && from.device() == to.device()) {
    const c10::DeviceGuard guard(to.device());
    if (to.nbytes() > 0) {
      Check(Driver().MemcpyDtoDAsync(AddressOf(to), AddressOf(from), to.nbytes(),
                                     HandleOf(CurrentStream(to.device().index()))),
            "cuMemcpyDtoDAsync");
    }
  } else {
    FromHost(OnHost(from), to);
  }
  return to;
}

const Tensor& Resize(const Tensor& self, at::IntArrayRef size, std::optional<at::MemoryFormat>) {
  c10::TensorImpl* const tensor = self.unsafeGetTensorImpl();
  tensor->set_sizes_contiguous(size);
  const size_t needed =
      (static_cast<size_t>(tensor->storage_offset()) + static_cast<size_t>(tensor->numel())) *
      self.itemsize();
  c10::StorageImpl* const storage = tensor->unsafe_storage().unsafeGetStorageImpl();
  if (storage->nbytes() >= needed) return self;
  const c10::DeviceGuard guard(self.device());
  c10::DataPtr grown = DeviceAllocator().allocate(needed);
  if (storage->nbytes() > 0) {
    Check(Driver().MemcpyDtoDAsync(std::bit_cast<uint64_t>(grown.get()),
                                   std::bit_cast<uint64_t>(storage->data()), storage->nbytes(),
                                   HandleOf(CurrentStream(self.device().index()))),
          "cuMemcpyDtoDAsync");
  }
  storage->set_data_ptr_noswap(std::move(grown));
  storage->set_nbytes(needed);
  return self;
}

Tensor CopyFromAndResize(const Tensor& from, const Tensor& to) {
  if (from.sizes() != to.sizes()) Resize(to, from.sizes(), std::nullopt);
  return CopyFrom(from, to, false);
}

at::Scalar LocalScalar(const Tensor& tensor) { return OnHost(tensor).item(); }

Tensor AsStrided(const Tensor& tensor, at::IntArrayRef size, at::IntArrayRef stride,
                 std::optional<int64_t> offset) {
  return at::native::as_strided_tensorimpl(tensor, size, stride, offset);
}

void RunOnHost(const c10::OperatorHandle& operation, torch::jit::Stack* stack) {
  at::native::cpu_fallback(operation, stack);
}

}  // namespace

TORCH_LIBRARY_IMPL(_, PrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&RunOnHost>());
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("empty.memory_format", Empty);
  library.impl("empty_strided", EmptyStrided);
  library.impl("as_strided", AsStrided);
  library.impl("view", at::native::view);
  library.impl("_reshape_alias", at::native::_reshape_alias);
  library.impl("set_.source_Storage_storage_offset", at::native::set_storage_cpu_);
  library.impl("resize_", Resize);
  library.impl("_copy_from", CopyFrom);
  library.impl("_copy_from_and_resize", CopyFromAndResize);
  library.impl("_local_scalar_dense", LocalScalar);
}

}  // namespace lmdbio::test
