#include "lmdbio/sync/on_device/staged_work.h"

#include <algorithm>

namespace lmdbio::sync {

using device::DeviceSpan;

StagedSpans SpansOf(const StagedWork& work, CopyWay way, uint64_t chunk) {
  StagedSpans spans;
  for (const StagedPart& part : work.chunks.PartsOf(chunk)) {
    const StagedTensor& tensor = work.tensors[part.tensor];
    const DeviceSpan& whole = way == CopyWay::kOut ? tensor.input : tensor.output;
    if (whole.size_bytes == 0) continue;
    spans.tensors.push_back({whole.begin + part.tensor_offset, part.size_bytes});
    spans.offsets.push_back(part.chunk_offset);
    spans.size_bytes += part.size_bytes;
  }
  return spans;
}

uint64_t TensorCountOf(const StagedWork& work) {
  return static_cast<uint64_t>(std::ranges::count_if(work.tensors, [](const StagedTensor& tensor) {
    return tensor.input.size_bytes > 0 || tensor.output.size_bytes > 0;
  }));
}

}  // namespace lmdbio::sync
