#include "tests/emulated_gpu/device_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <new>
#include <random>
#include <string>

namespace lmdbio::test {
namespace {

[[noreturn]] void Die(const char* what) {
  std::perror(what);
  std::abort();
}

// "%g" in a path is the process group.
int OpenFile(const char* path) {
  if (path == nullptr) return ::memfd_create("emulated gpu", MFD_CLOEXEC);
  std::string named = path;
  const size_t at = named.find("%g");
  if (at != std::string::npos) named.replace(at, 2, std::to_string(::getpgrp()));
  return ::open(named.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
}

std::byte* MapOrDie(void* at, uint64_t size_bytes, int protection, int flags, int file,
                    uint64_t offset) {
  void* const mapped =
      ::mmap(at, size_bytes, protection, flags | MAP_NORESERVE, file, static_cast<off_t>(offset));
  if (mapped == MAP_FAILED) Die("the emulated GPU cannot map memory");
  return static_cast<std::byte*>(mapped);
}

}  // namespace

DeviceFile::DeviceFile(const char* path) : file_(OpenFile(path)) {
  struct stat found = {};
  if (!file_ || ::flock(file_.get(), LOCK_EX) != 0 || ::fstat(file_.get(), &found) != 0) {
    Die("the file of the emulated GPU");
  }
  const bool is_new = found.st_size == 0;
  if (is_new && ::ftruncate(file_.get(), kFileBytes) != 0) Die("the file of the emulated GPU");
  view_ = MapOrDie(nullptr, kFileBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_.get(), 0);
  if (is_new) {
    FileHead* const made = new (view_) FileHead();
    made->identity = (uint64_t{std::random_device()()} << 32) | 1;
    made->next_offset = (sizeof(FileHead) + kPageBytes - 1) / kPageBytes * kPageBytes;
  }
  ::flock(file_.get(), LOCK_UN);
  next_address_ = reinterpret_cast<uint64_t>(
      MapOrDie(nullptr, kAddressBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  end_address_ = next_address_ + kAddressBytes;
}

uint64_t DeviceFile::TakeSpace(uint64_t size_bytes) {
  const uint64_t offset = head().next_offset.fetch_add(size_bytes);
  if (offset + size_bytes > kFileBytes) Die("the file of the emulated GPU is full");
  return offset;
}

void DeviceFile::Discard(uint64_t offset, uint64_t size_bytes) {
  ::fallocate(file_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
              static_cast<off_t>(size_bytes));
}

uint64_t DeviceFile::TakeAddresses(uint64_t size_bytes) {
  const uint64_t address = next_address_;
  next_address_ += size_bytes;
  if (next_address_ > end_address_) Die("the emulated GPU has no addresses left");
  return address;
}

void DeviceFile::Map(uint64_t address, uint64_t offset, uint64_t size_bytes) {
  MapOrDie(reinterpret_cast<void*>(address), size_bytes, PROT_NONE, MAP_SHARED | MAP_FIXED,
           file_.get(), offset);
}

void DeviceFile::Unmap(uint64_t address, uint64_t size_bytes) {
  MapOrDie(reinterpret_cast<void*>(address), size_bytes, PROT_NONE,
           MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
}

EventRecords* DeviceFile::TakeSharedEvent(uint64_t* place) {
  *place = head().next_event.fetch_add(1);
  return SharedEvent(*place);
}

EventRecords* DeviceFile::SharedEvent(uint64_t place) const {
  return place < kSharedEventsMax ? &head().events[place] : nullptr;
}

}  // namespace lmdbio::test
