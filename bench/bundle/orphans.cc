#include "bench/bundle/orphans.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

namespace lmdbio::bundle {
namespace {

constexpr auto kSecondsMax = std::chrono::seconds(2);

// 0: unknown.
pid_t ParentOf(const std::string& pid) {
  std::ifstream file("/proc/" + pid + "/stat");
  std::string text;
  std::getline(file, text);
  const size_t name_end = text.rfind(')');  // the name may have any character
  if (name_end == std::string::npos || name_end + 4 > text.size()) return 0;
  return std::atoi(text.c_str() + name_end + 4);  // ") S PARENT"
}

std::vector<pid_t> Children() {
  std::vector<pid_t> children;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", ignored)) {
    const std::string name = entry.path().filename();
    const pid_t pid = std::atoi(name.c_str());
    if (pid > 0 && ParentOf(name) == ::getpid()) children.push_back(pid);
  }
  return children;
}

}  // namespace

void AdoptOrphans() { ::prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); }

int EndOrphans() {
  const auto limit = std::chrono::steady_clock::now() + kSecondsMax;
  int ended_count = 0;
  for (auto children = Children(); !children.empty(); children = Children()) {
    for (const pid_t child : children) {
      ::kill(child, SIGKILL);
      if (::waitpid(child, nullptr, WNOHANG) == child) ++ended_count;
    }
    if (std::chrono::steady_clock::now() > limit) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return ended_count;
}

}  // namespace lmdbio::bundle
