#include "lmdbio/file/source/memory_room.h"

#include <sys/sysinfo.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>

namespace lmdbio::file {
namespace {

// The number after `name` in a file of lines "name value ...".
std::optional<uint64_t> ValueOf(const std::string& path, const std::string& name) {
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    std::istringstream words(line);
    std::string word;
    uint64_t value = 0;
    if (words >> word && word == name && words >> value) return value;
  }
  return std::nullopt;
}

// The number in the file at `path`; nullopt if the file is missing or contains "max".
std::optional<uint64_t> NumberIn(const std::filesystem::path& path) {
  std::ifstream file(path);
  uint64_t value = 0;
  if (file >> value) return value;
  return std::nullopt;
}

// The bytes that one control group leaves: its limit minus its memory other than cached files. The
// kernel can drop cached files at any time, but not shared memory, which it counts among them.
std::optional<uint64_t> RoomOfGroup(const std::filesystem::path& group, const char* limit_name,
                                    const char* current_name, const char* file_name) {
  const auto limit = NumberIn(group / limit_name);
  if (!limit) return std::nullopt;
  const uint64_t current = NumberIn(group / current_name).value_or(0);
  const std::string counts = (group / "memory.stat").string();
  const uint64_t files = ValueOf(counts, file_name).value_or(0);
  const uint64_t shared = std::min(files, ValueOf(counts, "shmem").value_or(0));
  const uint64_t fixed = current - std::min(current, files - shared);
  return *limit - std::min(*limit, fixed);
}

// The smallest of these over a group and all groups around it.
uint64_t RoomOfGroups(std::filesystem::path group, const std::filesystem::path& root,
                      bool is_version_1) {
  uint64_t room = ~uint64_t{0};
  while (true) {
    const auto left =
        is_version_1 ? RoomOfGroup(group, "memory.limit_in_bytes", "memory.usage_in_bytes", "cache")
                     : RoomOfGroup(group, "memory.max", "memory.current", "file");
    room = std::min(room, left.value_or(room));
    if (group == root || !group.has_relative_path()) return room;
    group = group.parent_path();
  }
}

// Memory that nobody uses, without the cached files: less than what is available.
uint64_t UnusedBytes() {
  struct sysinfo found = {};
  return ::sysinfo(&found) == 0 ? uint64_t{found.freeram} * found.mem_unit : 0;
}

}  // namespace

uint64_t MemoryRoomBytes(const MemoryFiles& files) {
  const auto available_kib = ValueOf(files.meminfo, "MemAvailable:");
  uint64_t room = available_kib ? *available_kib * 1024 : UnusedBytes();
  std::ifstream groups(files.cgroup_of_process);
  std::string line;
  // Lines "0::/path" of version 2, "N:controllers:/path" of version 1.
  while (std::getline(groups, line)) {
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    std::filesystem::path root = files.cgroup_root;
    if (controllers == "memory") root /= "memory";
    if (!controllers.empty() && controllers != "memory") continue;
    const std::filesystem::path inside = line.substr(second + 1);
    const std::filesystem::path group =
        inside.has_relative_path() ? root / inside.relative_path() : root;
    room = std::min(room, RoomOfGroups(group.lexically_normal(), root, !controllers.empty()));
  }
  return room;
}

}  // namespace lmdbio::file
