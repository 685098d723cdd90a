#include "lmdbio/sync/graph/named_times.h"

#include "lmdbio/base/check.h"

namespace lmdbio::sync {

NamedTimes::NamedTimes(const std::vector<std::string>& names) : times_(names.size()) {
  for (size_t i = 0; i < names.size(); ++i) {
    LMDBIO_CHECK(tensors_.try_emplace(names[i], NamedTensor{.index = i}).second);
  }
}

void NamedTimes::SkipNext(std::string_view name) {
  const auto found = tensors_.find(std::string(name));
  if (found != tensors_.end()) found->second.skips_next = true;
}

void NamedTimes::OnSubmit(std::string_view name, int64_t program_ns) {
  const auto found = tensors_.find(std::string(name));
  if (found == tensors_.end()) return;
  NamedTensor& tensor = found->second;
  if (tensor.skips_next) {
    tensor.skips_next = false;
    return;
  }
  tensor.is_submitted = true;
  times_.OnSubmit(tensor.index, program_ns);
}

void NamedTimes::OnWaited(std::string_view name, int64_t program_ns) {
  const auto found = tensors_.find(std::string(name));
  if (found == tensors_.end() || !found->second.is_submitted) return;
  times_.OnWaited(found->second.index, program_ns);
}

TensorTimes NamedTimes::TimesOf(std::string_view name) const {
  return times_.tensors()[tensors_.at(std::string(name)).index];
}

}  // namespace lmdbio::sync
