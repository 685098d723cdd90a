#include "tests/campaign/campaign_run.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <fstream>

#include <fmt/format.h>

namespace lmdbio::test {
namespace {

// For the handler, which may not format.
std::atomic<const char*> g_words_of_hang{""};

void OnHang(int /*signal*/) {
  const char* const words = g_words_of_hang.load();
  static_cast<void>(::write(STDOUT_FILENO, words, std::strlen(words)));
  ::_exit(3);
}

}  // namespace

CampaignArguments ReadArguments(int argc, char** argv) {
  CampaignArguments arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    const bool is_first = word == "--first-seed";
    if ((is_first || word == "--seeds") && i + 1 < argc) {
      (is_first ? arguments.first_seed : arguments.seed_count) = std::stoull(argv[++i]);
    } else {
      arguments.rest.push_back(word);
    }
  }
  return arguments;
}

uint64_t RunSeeds(const CampaignArguments& arguments, const std::filesystem::path& folder,
                  unsigned limit_s, const std::function<std::string(uint64_t seed)>& try_seed) {
  ::signal(SIGALRM, OnHang);
  uint64_t finding_count = 0;
  for (uint64_t i = 0; i < arguments.seed_count; ++i) {
    const uint64_t seed = arguments.first_seed + i;
    const std::string words = fmt::format("finding: seed {}: not over after {} s\n", seed, limit_s);
    std::ofstream(folder / "seed") << seed << '\n';
    g_words_of_hang.store(words.c_str());
    ::alarm(limit_s);
    const std::string finding = try_seed(seed);
    ::alarm(0);
    g_words_of_hang.store("");
    if (finding.empty()) continue;
    ++finding_count;
    fmt::print("finding: seed {}: {}\n", seed, finding);
    std::fflush(stdout);
  }
  return finding_count;
}

bool IsRefusal(ErrorCode code) {
  return code == ErrorCode::kInvalidArgument || code == ErrorCode::kUnsupported ||
         code == ErrorCode::kNotFound || code == ErrorCode::kResourceExhausted;
}

}  // namespace lmdbio::test
