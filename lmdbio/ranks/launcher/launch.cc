#include "lmdbio/ranks/launcher/launch.h"

#include <charconv>
#include <cstdlib>
#include <limits>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "lmdbio/base/digest.h"

namespace lmdbio::ranks {
namespace {

// The ports behind MASTER_PORT that may serve as the meeting point. MASTER_PORT itself is taken:
// torchrun, or rank 0 of torch.distributed, listens there.
constexpr uint16_t kPortCount = 16;
constexpr int kPortMax = 65535;

// For srun, without MASTER_PORT: below the ports that Linux gives to outgoing connections.
constexpr int kSlurmPortFirst = 16384;
constexpr int kSlurmPortGroups = 1000;

tl::unexpected<Error> Wrong(std::string text) {
  return Fail(ErrorCode::kInvalidArgument, std::move(text));
}

class VariableReader {
 public:
  explicit VariableReader(const Variables& variables) : variables_(variables) {}

  std::optional<std::string> Text(const char* name) const {
    std::optional<std::string> value = variables_(name);
    if (value && value->empty()) return std::nullopt;
    return value;
  }
  bool has(const char* name) const { return Text(name).has_value(); }

  // The number in a variable that is set.
  Result<int> Number(const char* name, int least, int most) const {
    const std::string text = Text(name).value_or("");
    int value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size()) {
      return Wrong(fmt::format("{} is '{}'; expected a whole number", name, text));
    }
    if (value < least || value > most) {
      return Wrong(fmt::format("{} is {}; expected {} to {}", name, value, least, most));
    }
    return value;
  }

  // Whether both variables are set, or none of them.
  Result<bool> HasBoth(const char* one, const char* other, std::string_view who) const {
    if (has(one) == has(other)) return has(one);
    const bool has_one = has(one);
    return Wrong(fmt::format("{} is set, but {} is not: {}", has_one ? one : other,
                             has_one ? other : one, who));
  }

 private:
  const Variables& variables_;
};

Status ReadRank(const VariableReader& reader, const char* rank_name, const char* size_name,
                Launch& launch) {
  LMDBIO_TRY(launch.size, reader.Number(size_name, 1, std::numeric_limits<int>::max()));
  LMDBIO_TRY(launch.rank, reader.Number(rank_name, 0, std::numeric_limits<int>::max()));
  if (launch.rank < launch.size) return {};
  return Wrong(fmt::format("{} is {}, but {} is {}: ranks are numbered from 0", rank_name,
                           launch.rank, size_name, launch.size));
}

// "host:port", or "[fe80::1]:port".
Status ReadMeetingPoint(const std::string& text, Launch& launch) {
  const size_t colon = text.rfind(':');
  int port = 0;
  bool is_right = colon != std::string::npos && colon > 0;
  if (is_right) {
    const char* const end = text.data() + text.size();
    const auto read = std::from_chars(text.data() + colon + 1, end, port);
    is_right = read.ec == std::errc() && read.ptr == end && port >= 1 && port <= kPortMax;
  }
  if (!is_right) {
    return Wrong(fmt::format("LMDBIO_MEETING is '{}'; expected HOST:PORT", text));
  }
  launch.host = text.substr(0, colon);
  if (launch.host.size() > 2 && launch.host.front() == '[' && launch.host.back() == ']') {
    launch.host = launch.host.substr(1, launch.host.size() - 2);
  }
  launch.first_port = static_cast<uint16_t>(port);
  launch.port_count = 1;
  return {};
}

Status ReadMaster(const VariableReader& reader, Launch& launch) {
  launch.host = *reader.Text("MASTER_ADDR");
  LMDBIO_TRY(const int port, reader.Number("MASTER_PORT", 1, kPortMax));
  const bool has_room_behind = port + kPortCount <= kPortMax;
  launch.first_port = static_cast<uint16_t>(has_room_behind ? port + 1 : port - kPortCount);
  launch.port_count = kPortCount;
  return {};
}

// The first host of the step has rank 0. The port follows from the numbers of job and step, so
// steps of one host seldom have the same.
Status ReadSlurmPoint(const VariableReader& reader, Launch& launch) {
  std::optional<std::string> hosts = reader.Text("SLURM_STEP_NODELIST");
  if (!hosts) hosts = reader.Text("SLURM_JOB_NODELIST");
  const std::optional<std::string> job = reader.Text("SLURM_JOB_ID");
  if (!hosts || !job) {
    return Wrong(
        fmt::format("{} is not set, and neither are MASTER_ADDR and MASTER_PORT: the ranks know no "
                    "host to meet at",
                    hosts ? "SLURM_JOB_ID" : "SLURM_STEP_NODELIST"));
  }
  LMDBIO_TRY(launch.host, FirstHostOf(*hosts));
  const uint64_t digest = TextDigest(reader.Text("SLURM_STEP_ID").value_or(""), TextDigest(*job));
  launch.first_port =
      static_cast<uint16_t>(kSlurmPortFirst + digest % kSlurmPortGroups * kPortCount);
  launch.port_count = kPortCount;
  return {};
}

Status ReadPoint(const VariableReader& reader, bool is_slurm, Launch& launch) {
  if (const auto text = reader.Text("LMDBIO_MEETING")) return ReadMeetingPoint(*text, launch);
  LMDBIO_TRY(const bool has_master, reader.HasBoth("MASTER_ADDR", "MASTER_PORT",
                                                   "the ranks meet at MASTER_ADDR, at a port "
                                                   "behind MASTER_PORT"));
  if (has_master) return ReadMaster(reader, launch);
  if (is_slurm) return ReadSlurmPoint(reader, launch);
  return Wrong("MASTER_ADDR and MASTER_PORT are not set: the ranks know no host to meet at");
}

// Of the variables that all ranks of a job share, and others do not. Addresses are left out,
// because each host may know rank 0 by another one.
uint64_t JobDigest(const VariableReader& reader) {
  uint64_t digest = 0;
  for (const char* const name : {"TORCHELASTIC_RUN_ID", "SLURM_JOB_ID", "SLURM_STEP_ID",
                                 "MASTER_PORT", "LMDBIO_JOB_SECRET"}) {
    digest = TextDigest(fmt::format("{}={}", name, reader.Text(name).value_or("")), digest);
  }
  return digest;
}

}  // namespace

std::optional<std::string> EnvironmentVariable(const char* name) {
  const char* const value = std::getenv(name);
  if (value == nullptr) return std::nullopt;
  return value;
}

Result<std::string> FirstHostOf(std::string_view slurm_list) {
  const auto wrong = [slurm_list] {
    return Wrong(fmt::format("'{}' is no list of hosts as Slurm writes it", slurm_list));
  };
  std::string host;
  for (size_t at = 0; at < slurm_list.size() && slurm_list[at] != ',';) {
    if (slurm_list[at] != '[') {
      host += slurm_list[at++];
      continue;
    }
    // Of "[07-09,12]" the first number.
    const size_t close = slurm_list.find(']', at);
    if (close == std::string_view::npos) return wrong();
    const std::string_view numbers = slurm_list.substr(at + 1, close - at - 1);
    const std::string_view first = numbers.substr(0, numbers.find_first_of("-,"));
    if (first.empty()) return wrong();
    host += first;
    at = close + 1;
  }
  if (host.empty()) return wrong();
  return host;
}

Result<Launch> ReadLaunch(const Variables& variables) {
  const VariableReader reader(variables);
  Launch launch;
  LMDBIO_TRY(const bool is_torchrun,
             reader.HasBoth("RANK", "WORLD_SIZE", "a launcher as torchrun sets both"));
  bool is_slurm = false;
  if (is_torchrun) {
    LMDBIO_TRY_VOID(ReadRank(reader, "RANK", "WORLD_SIZE", launch));
  } else {
    // SLURM_NTASKS may be that of the whole job.
    const char* const size_name =
        reader.has("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
    LMDBIO_TRY(is_slurm, reader.HasBoth("SLURM_PROCID", size_name, "start the program with srun"));
    if (!is_slurm) {
      return Wrong(
          "no launcher has set RANK and WORLD_SIZE (torchrun), or SLURM_PROCID and SLURM_NTASKS "
          "(srun)");
    }
    LMDBIO_TRY_VOID(ReadRank(reader, "SLURM_PROCID", size_name, launch));
  }
  if (reader.has("LMDBIO_MEETING_LIMIT_S")) {
    LMDBIO_TRY(const int limit_s, reader.Number("LMDBIO_MEETING_LIMIT_S", 1, 1'000'000));
    launch.limit = std::chrono::seconds(limit_s);
  }
  launch.job = JobDigest(reader);
  if (launch.size > 1) LMDBIO_TRY_VOID(ReadPoint(reader, is_slurm, launch));
  return launch;
}

}  // namespace lmdbio::ranks
