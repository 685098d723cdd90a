// Goal: what launchers tell their ranks is read as they mean it; what they did not tell is an error
// that names the variable.
#include "lmdbio/ranks/launcher/launch.h"

#include <map>
#include <string>

#include "tests/support/catch.h"

namespace lmdbio::ranks {
namespace {

using Values = std::map<std::string, std::string>;

Result<Launch> Read(const Values& values) {
  return ReadLaunch([&values](const char* name) -> std::optional<std::string> {
    const auto found = values.find(name);
    if (found == values.end()) return std::nullopt;
    return found->second;
  });
}

std::string ErrorOf(const Values& values) {
  const Result<Launch> launch = Read(values);
  if (launch) return "no error";
  CHECK(launch.error().code() == ErrorCode::kInvalidArgument);
  return launch.error().message();
}

const Values kTorchrun = {{"RANK", "3"},
                          {"WORLD_SIZE", "8"},
                          {"LOCAL_RANK", "1"},
                          {"LOCAL_WORLD_SIZE", "2"},
                          {"MASTER_ADDR", "node-1"},
                          {"MASTER_PORT", "29500"},
                          {"TORCHELASTIC_RUN_ID", "abc"}};
const Values kSrun = {{"SLURM_PROCID", "5"},
                      {"SLURM_NTASKS", "64"},
                      {"SLURM_STEP_NUM_TASKS", "6"},
                      {"SLURM_LOCALID", "1"},
                      {"SLURM_JOB_ID", "4711"},
                      {"SLURM_STEP_ID", "0"},
                      {"SLURM_STEP_NODELIST", "node[07-09,12],gpu1"}};

Values With(Values values, const Values& more) {
  for (const auto& [name, value] : more) values[name] = value;
  return values;
}

TEST_CASE("ReadLaunch reads the variables of torchrun", "[launcher]") {
  const auto launch = Read(kTorchrun);
  REQUIRE(launch);
  CHECK(launch->rank == 3);
  CHECK(launch->size == 8);
  CHECK(launch->host == "node-1");
  // The port itself is taken by torchrun.
  CHECK(launch->first_port == 29501);
  CHECK(launch->port_count == 16);
  CHECK(launch->limit == kMeetingLimit);
  CHECK(launch->meeting == 0);
}

TEST_CASE("ReadLaunch reads the variables of srun", "[launcher]") {
  const auto launch = Read(kSrun);
  REQUIRE(launch);
  CHECK(launch->rank == 5);
  CHECK(launch->size == 6);  // of the step, not of the job
  CHECK(launch->host == "node07");
  CHECK(launch->first_port >= 16384);
  CHECK(launch->first_port + launch->port_count <= 32768);
  // All ranks find one port, and another step mostly finds another one.
  const auto other_rank = Read(With(kSrun, {{"SLURM_PROCID", "0"}}));
  const auto other_step = Read(With(kSrun, {{"SLURM_STEP_ID", "1"}}));
  REQUIRE(other_rank);
  REQUIRE(other_step);
  CHECK(other_rank->first_port == launch->first_port);
  CHECK(other_rank->job == launch->job);
  CHECK(other_step->first_port != launch->first_port);
  CHECK(other_step->job != launch->job);
  // Without a step of its own number, the tasks of the job count.
  Values without_step = kSrun;
  without_step.erase("SLURM_STEP_NUM_TASKS");
  const auto whole_job = Read(without_step);
  REQUIRE(whole_job);
  CHECK(whole_job->size == 64);
}

TEST_CASE("ReadLaunch prefers what is nearer to the program", "[launcher]") {
  // torchrun under srun, or a script that sets RANK itself.
  auto launch = Read(With(kSrun, kTorchrun));
  REQUIRE(launch);
  CHECK(launch->rank == 3);
  CHECK(launch->host == "node-1");
  // srun with the address that batch scripts usually set.
  launch = Read(With(kSrun, {{"MASTER_ADDR", "node07-ib"}, {"MASTER_PORT", "12345"}}));
  REQUIRE(launch);
  CHECK(launch->rank == 5);
  CHECK(launch->host == "node07-ib");
  CHECK(launch->first_port == 12346);
  for (const Values& values : {kSrun, kTorchrun}) {
    launch = Read(With(values, {{"LMDBIO_MEETING", "10.1.2.3:600"}}));
    REQUIRE(launch);
    CHECK(launch->host == "10.1.2.3");
    CHECK(launch->first_port == 600);
    CHECK(launch->port_count == 1);
  }
  launch =
      Read(With(kTorchrun, {{"LMDBIO_MEETING", "[fe80::1]:7"}, {"LMDBIO_MEETING_LIMIT_S", "9"}}));
  REQUIRE(launch);
  CHECK(launch->host == "fe80::1");
  CHECK(launch->first_port == 7);
  CHECK(launch->limit == std::chrono::seconds(9));
}

TEST_CASE("ReadLaunch finds ports beside the last ones", "[launcher]") {
  const auto launch = Read(With(kTorchrun, {{"MASTER_PORT", "65535"}}));
  REQUIRE(launch);
  CHECK(launch->first_port + launch->port_count - 1 < 65535);
}

TEST_CASE("A rank alone needs no place to meet", "[launcher]") {
  const auto launch = Read({{"RANK", "0"}, {"WORLD_SIZE", "1"}});
  REQUIRE(launch);
  CHECK(launch->size == 1);
}

TEST_CASE("ReadLaunch names variables that are missing", "[launcher]") {
  CHECK(ErrorOf({}) ==
        "no launcher has set RANK and WORLD_SIZE (torchrun), or SLURM_PROCID and SLURM_NTASKS "
        "(srun)");
  CHECK(ErrorOf({{"RANK", "1"}}) ==
        "RANK is set, but WORLD_SIZE is not: a launcher as torchrun sets both");
  CHECK(ErrorOf({{"WORLD_SIZE", "2"}, {"RANK", ""}}) ==
        "WORLD_SIZE is set, but RANK is not: a launcher as torchrun sets both");
  CHECK(ErrorOf({{"SLURM_NTASKS", "4"}}) ==
        "SLURM_NTASKS is set, but SLURM_PROCID is not: start the program with srun");
  CHECK(ErrorOf({{"SLURM_PROCID", "0"}}) ==
        "SLURM_PROCID is set, but SLURM_NTASKS is not: start the program with srun");
  CHECK(ErrorOf({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}}) ==
        "MASTER_ADDR is set, but MASTER_PORT is not: the ranks meet at MASTER_ADDR, at a port "
        "behind MASTER_PORT");
  CHECK(ErrorOf({{"RANK", "0"}, {"WORLD_SIZE", "2"}}) ==
        "MASTER_ADDR and MASTER_PORT are not set: the ranks know no host to meet at");
  CHECK(ErrorOf({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "2"}, {"SLURM_JOB_ID", "1"}}) ==
        "SLURM_STEP_NODELIST is not set, and neither are MASTER_ADDR and MASTER_PORT: the ranks "
        "know no host to meet at");
  CHECK(ErrorOf({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "2"}, {"SLURM_JOB_NODELIST", "a"}}) ==
        "SLURM_JOB_ID is not set, and neither are MASTER_ADDR and MASTER_PORT: the ranks know no "
        "host to meet at");
}

TEST_CASE("ReadLaunch names values that cannot be right", "[launcher]") {
  CHECK(ErrorOf(With(kTorchrun, {{"RANK", "three"}})) ==
        "RANK is 'three'; expected a whole number");
  CHECK(ErrorOf(With(kTorchrun, {{"RANK", "3 "}})) == "RANK is '3 '; expected a whole number");
  CHECK(ErrorOf(With(kTorchrun, {{"RANK", "8"}})) ==
        "RANK is 8, but WORLD_SIZE is 8: ranks are numbered from 0");
  CHECK(ErrorOf(With(kTorchrun, {{"RANK", "-1"}})) == "RANK is -1; expected 0 to 2147483647");
  CHECK(ErrorOf(With(kTorchrun, {{"WORLD_SIZE", "0"}})) ==
        "WORLD_SIZE is 0; expected 1 to 2147483647");
  CHECK(ErrorOf(With(kTorchrun, {{"MASTER_PORT", "70000"}})) ==
        "MASTER_PORT is 70000; expected 1 to 65535");
  CHECK(ErrorOf(With(kTorchrun, {{"LMDBIO_MEETING_LIMIT_S", "0"}})) ==
        "LMDBIO_MEETING_LIMIT_S is 0; expected 1 to 1000000");
  for (const char* const wrong : {"node", "node:", ":5", "node:0", "node:65536", "node:5x"}) {
    CHECK(ErrorOf(With(kTorchrun, {{"LMDBIO_MEETING", wrong}})) ==
          "LMDBIO_MEETING is '" + std::string(wrong) + "'; expected HOST:PORT");
  }
}

TEST_CASE("FirstHostOf reads Slurm's lists", "[launcher]") {
  const std::map<std::string, std::string> first = {
      {"node1", "node1"},         {"node1,node2", "node1"},    {"node[1-3]", "node1"},
      {"node[007,9]", "node007"}, {"n[1-2]-ib,m[3]", "n1-ib"}, {"a,b[1-2]", "a"},
      {"r[1-2]c[3-4]", "r1c3"}};
  for (const auto& [list, host] : first) {
    CAPTURE(list);
    const auto found = FirstHostOf(list);
    REQUIRE(found);
    CHECK(*found == host);
  }
  for (const char* const wrong : {"", ",a", "node[", "node[]", "node[1-"}) {
    CAPTURE(wrong);
    CHECK_FALSE(FirstHostOf(wrong));
  }
}

}  // namespace
}  // namespace lmdbio::ranks
