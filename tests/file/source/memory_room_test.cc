#include "lmdbio/file/source/memory_room.h"

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

namespace lmdbio::file {
namespace {

void Write(const std::filesystem::path& path, const std::string& text) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path) << text;
}

TEST_CASE("MemoryRoomBytes reads the free memory of this host", "[io][room]") {
  const uint64_t room = MemoryRoomBytes();
  CHECK(room > 0);
  CHECK(room < uint64_t{1} << 50);
}

TEST_CASE("MemoryRoomBytes returns the smallest limit", "[io][room]") {
  const test::TempDir dir;
  MemoryFiles files;
  files.meminfo = (dir.path() / "meminfo").string();
  files.cgroup_of_process = (dir.path() / "cgroup").string();
  files.cgroup_root = (dir.path() / "root").string();
  const std::filesystem::path root = files.cgroup_root;
  // No file reports memory, as without /proc: the kernel tells how much nobody uses.
  CHECK(MemoryRoomBytes(files) > 0);
  CHECK(MemoryRoomBytes(files) < uint64_t{1} << 50);

  Write(files.meminfo, "MemTotal: 100 kB\nMemAvailable: 50 kB\n");
  CHECK(MemoryRoomBytes(files) == 50 * 1024);

  Write(files.cgroup_of_process, "0::/job/step\n");
  Write(root / "job/step/memory.max", "max\n");
  CHECK(MemoryRoomBytes(files) == 50 * 1024);
  // A limit of 40,000 bytes. The group uses 10,000, of which 4,000 are cached files.
  Write(root / "job/memory.max", "40000\n");
  Write(root / "job/memory.current", "10000\n");
  Write(root / "job/memory.stat", "anon 6000\nfile 4000\n");
  CHECK(MemoryRoomBytes(files) == 34'000);
  // Shared memory counts among the files, and cannot be dropped.
  Write(root / "job/memory.stat", "anon 6000\nfile 4000\nshmem 1000\n");
  CHECK(MemoryRoomBytes(files) == 33'000);
  Write(root / "job/step/memory.max", "5000\n");
  Write(root / "job/step/memory.current", "9000\n");
  CHECK(MemoryRoomBytes(files) == 0);

  // Control groups of version 1.
  Write(files.cgroup_of_process, "5:cpu:/other\n4:memory:/job\n");
  Write(root / "memory/job/memory.limit_in_bytes", "30000\n");
  Write(root / "memory/job/memory.usage_in_bytes", "20000\n");
  Write(root / "memory/job/memory.stat", "cache 15000\nrss 5000\n");
  CHECK(MemoryRoomBytes(files) == 25'000);
}

}  // namespace
}  // namespace lmdbio::file
