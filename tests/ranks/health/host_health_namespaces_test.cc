// Goal: HostHealth takes no process of its own pid namespace for a rank of another one.
// Method: a rank in a new pid namespace, where another process has the other rank's number, and
// ends.
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstring>
#include <string>

#include "lmdbio/ranks/health/host_health.h"
#include "tests/ranks/forked_ranks.h"
#include "tests/ranks/pid_namespaces.h"
#include "tests/support/catch.h"
#include "tests/support/check_in_child.h"

namespace lmdbio::ranks {
namespace {

using namespace std::chrono_literals;
using test::Verdict;

// Rank 1, in a namespace of its own.
Verdict StaysHealthy(Group& group, pid_t number_of_rank_0) {
  const pid_t other = test::StartNumbered(number_of_rank_0);
  CHILD_CHECK(other == number_of_rank_0);
  const auto health = HostHealth::Create(group, 60s);
  CHILD_CHECK(health);
  ::kill(other, SIGKILL);
  CHILD_CHECK(::waitpid(other, nullptr, 0) == other);
  const Status status = (*health)->Check();
  if (!status) std::fprintf(stderr, "%s\n", status.error().message().c_str());
  CHILD_CHECK(status);
  return Verdict::kRight;
}

TEST_CASE("HostHealth takes no process of the same number for a rank of another pid namespace",
          "[comm][health]") {
  if (!test::HasPidNamespaces()) {
    WARN("skipped: no pid namespaces can be made here");
    return;
  }
  test::ForkedJob job(2, 2);
  job.Start([](Group& group, test::ForkedJob&) -> std::string {
    const pid_t mine = ::getpid();
    const auto pids = *group.AllGather(std::as_bytes(std::span(&mine, 1)));
    pid_t number_of_rank_0 = 0;
    std::memcpy(&number_of_rank_0, pids.data(), sizeof number_of_rank_0);
    if (group.rank() == 0) {
      const auto health = HostHealth::Create(group, 60s);
      if (!health) return "no health";
      static_cast<void>(group.Barrier());  // rank 1 has looked
      return "";
    }
    const Verdict verdict =
        test::InNewPidNamespace([&] { return StaysHealthy(group, number_of_rank_0); });
    static_cast<void>(group.Barrier());
    return verdict == Verdict::kRight ? "" : "a rank was taken for gone";
  });
  CHECK(job.EndOf(0) == "");
  CHECK(job.EndOf(1) == "");
}

}  // namespace
}  // namespace lmdbio::ranks
