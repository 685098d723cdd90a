#include "lmdbio/load/slots/loader_memory.h"

#include <sys/mman.h>

#include <utility>

namespace lmdbio::load {
namespace {

// Collective over the host.
Result<std::unique_ptr<ranks::SharedMemory>> Allocate(ranks::Group& host, uint64_t size_bytes,
                                                      WindowMemoryUse kind) {
  return kind == WindowMemoryUse::kMpi ? host.AllocateMpiWindow(size_bytes)
                                       : host.AllocateShared(size_bytes);
}

// Systems that allow huge pages of shared memory on request then give them at the first touch.
void AdviseHugePages(const ranks::SharedMemory& memory, HugePageUse use) {
  ::madvise(memory.bytes().data(), memory.bytes().size(),
            use == HugePageUse::kOff ? MADV_NOHUGEPAGE : MADV_HUGEPAGE);
}

}  // namespace

// Huge pages need the states behind the memory.
Status LoaderMemory::AllocateWindow(ranks::Group& host, uint64_t size_bytes, WindowMemoryUse kind,
                                    HugePageUse huge_pages) {
  LMDBIO_TRY(window_.memory, Allocate(host, size_bytes + ExtraBytes(size_bytes), kind));
  window_.size_bytes = size_bytes;
  AdviseHugePages(*window_.memory, huge_pages);
  return {};
}

Status LoaderMemory::AllocateLayout(ranks::Group& host, uint64_t size_bytes,
                                    const LoaderOptions& options) {
  LMDBIO_TRY(layout_.memory, Allocate(host, size_bytes, options.window_memory));
  layout_.size_bytes = size_bytes;
  return {};
}

Status LoaderMemory::AllocateFileCache(ranks::Group& host, uint64_t size_bytes,
                                       const LoaderOptions& options) {
  LMDBIO_TRY(file_cache_.memory,
             Allocate(host, size_bytes + ExtraBytes(size_bytes), options.window_memory));
  file_cache_.size_bytes = size_bytes;
  AdviseHugePages(*file_cache_.memory, options.huge_pages);
  return {};
}

std::string_view LoaderMemory::window_note() const {
  return window_.memory ? window_.memory->note() : std::string_view();
}

void LoaderMemory::SharedPart::UseHuge(uint64_t used_bytes, ranks::HugePageOptions options) {
  huge = std::make_unique<ranks::HugePages>(
      pages().first(used_bytes), memory->bytes().subspan(size_bytes), std::move(options));
}

void LoaderMemory::UseHugeWindow(uint64_t used_bytes, ranks::HugePageOptions options) {
  window_.UseHuge(used_bytes, std::move(options));
}

void LoaderMemory::UseHugeFileCache(ranks::HugePageOptions options) {
  file_cache_.UseHuge(file_cache_.size_bytes, std::move(options));
}

void LoaderMemory::Abandon() {
  for (const SharedPart* part : {&file_cache_, &window_, &layout_}) {
    if (part->memory) part->memory->Abandon();
  }
}

}  // namespace lmdbio::load
