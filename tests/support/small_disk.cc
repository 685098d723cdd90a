#include "tests/support/small_disk.h"

#include <sched.h>
#include <sys/mount.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace lmdbio::test {

SmallDisk::SmallDisk(uint64_t size_bytes) {
  const std::string options = "size=" + std::to_string(size_bytes);
  const bool is_mounted =
      (::unshare(CLONE_NEWNS) == 0 || ::unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0) &&
      ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
      ::mount("tmpfs", path().c_str(), "tmpfs", 0, options.c_str()) == 0;
  if (is_mounted) return;
  std::fprintf(stderr, "skipped: cannot mount a small disk: %s\n", std::strerror(errno));
  std::filesystem::remove(path());  // exit runs no destructor of this object
  std::exit(77);
}

SmallDisk::~SmallDisk() { ::umount(path().c_str()); }

}  // namespace lmdbio::test
