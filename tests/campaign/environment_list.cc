#include "tests/campaign/environment_list.h"

#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "tests/campaign/jumping_clock.h"

namespace lmdbio::test {
namespace {

namespace fs = std::filesystem;

using Enter = std::function<void(JobPlace& place, Helpers& helpers)>;
using EnterRank = std::function<void(int rank)>;

constexpr uid_t kNobody = 65534;

void Mount(const char* type, const fs::path& at, unsigned long flags, const std::string& options) {
  Need(::mount(type, at.c_str(), type, flags, options.c_str()) == 0,
       fmt::format("mounting {} at {}", type, at.string()));
}

void Bind(const fs::path& from, const fs::path& at, unsigned long flags) {
  Need(::mount(from.c_str(), at.c_str(), nullptr, MS_BIND, nullptr) == 0, "a bind mount");
  if (flags == 0) return;
  Need(::mount(nullptr, at.c_str(), nullptr, MS_BIND | MS_REMOUNT | flags, nullptr) == 0,
       "a bind mount without writing");
}

void WriteText(const fs::path& path, const std::string& text) {
  std::ofstream file(path);
  file << text;
  file.flush();
  Need(file.good(), "writing " + path.string());
}

// The rest of the program runs in a child, which is in the new namespaces of this process. This
// process ends as the child does.
void GoOnInChild() {
  const pid_t child = ::fork();
  Need(child >= 0, "fork");
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    return;
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  ::_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
}

void Unshare(int flags) { Need(::unshare(flags) == 0, "a new namespace"); }

// This user alone is in the new user namespace, as `inside`.
void UnshareUser(uid_t inside) {
  const uid_t user = ::geteuid();
  const gid_t group = ::getegid();
  Unshare(CLONE_NEWUSER);
  WriteText("/proc/self/setgroups", "deny");
  WriteText("/proc/self/uid_map", fmt::format("{} {} 1", inside, user));
  WriteText("/proc/self/gid_map", fmt::format("{} {} 1", inside, group));
}

void BecomeNobody() {
  Need(::setgid(kNobody) == 0 && ::setuid(kNobody) == 0, "another user");
  ::prctl(PR_SET_DUMPABLE, 1);  // as for a process that was started as this user
}

void Limit(__rlimit_resource resource, rlim_t value) {
  const rlimit limit = {value, value};
  Need(::setrlimit(resource, &limit) == 0, "a limit");
}

// The bytes that this process maps.
rlim_t MappedBytes() {
  uint64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * static_cast<rlim_t>(::sysconf(_SC_PAGESIZE));
}

void RaiseLoopback() {
  const int socket = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  ifreq request = {};
  std::strcpy(request.ifr_name, "lo");
  request.ifr_flags = IFF_UP | IFF_RUNNING;
  const bool is_up = socket >= 0 && ::ioctl(socket, SIOCSIFFLAGS, &request) == 0;
  ::close(socket);
  Need(is_up, "the loopback of a new network");
}

JobEnvironment Host(std::string name, Demand demand, Enter enter) {
  return {.name = std::move(name), .demand = demand, .enter = std::move(enter), .enter_rank = {}};
}

JobEnvironment Rank(std::string name, Demand demand, EnterRank enter_rank) {
  return {
      .name = std::move(name), .demand = demand, .enter = {}, .enter_rank = std::move(enter_rank)};
}

JobEnvironment OtherShm(std::string name, unsigned long flags, const std::string& options) {
  return Host("shm." + std::move(name), Demand::kRightBytes,
              [=](JobPlace&, Helpers&) { Mount("tmpfs", "/dev/shm", flags, options); });
}

void FillShm(JobPlace& /*place*/, Helpers& /*helpers*/) {
  Mount("tmpfs", "/dev/shm", 0, "size=1m");
  const std::string megabyte(1 << 20, 'x');
  std::ofstream("/dev/shm/filler") << megabyte;
}

// A folder /dev with the usual devices, and nothing else.
void EmptyDev(JobPlace& /*place*/, Helpers& /*helpers*/) {
  std::vector<std::pair<std::string, int>> devices;
  for (const char* name : {"null", "zero", "full", "random", "urandom"}) {
    devices.emplace_back(name, ::open(fmt::format("/dev/{}", name).c_str(), O_PATH | O_CLOEXEC));
  }
  Mount("tmpfs", "/dev", 0, "");
  for (const auto& [name, file] : devices) {
    WriteText("/dev/" + name, "");
    Bind(fmt::format("/proc/self/fd/{}", file), "/dev/" + name, 0);
    ::close(file);
  }
}

void AddShm(std::vector<JobEnvironment>& list) {
  list.push_back(OtherShm("64m", 0, "size=64m"));
  list.push_back(OtherShm("1m", 0, "size=1m"));
  list.push_back(Host("shm.full", Demand::kRightBytes, FillShm));
  list.push_back(OtherShm("read-only", MS_RDONLY, ""));
  list.push_back(OtherShm("no-inodes", 0, "nr_inodes=1"));
  list.push_back(Host("shm.absent", Demand::kRightBytes, EmptyDev));
}

JobEnvironment LimitOf(std::string name, __rlimit_resource resource, rlim_t value) {
  return Rank("limit." + std::move(name), Demand::kBytesOrError,
              [=](int) { Limit(resource, value); });
}

// Root has no such limit, so the job runs as another user.
JobEnvironment LimitOfNobody(std::string name, __rlimit_resource resource, rlim_t value) {
  return Rank("limit." + std::move(name), Demand::kBytesOrError, [=](int) {
    Limit(resource, value);
    BecomeNobody();
  });
}

// The memory and the descriptors that sanitizers need are no matter of lmdbio.
JobEnvironment UnlessSanitized(JobEnvironment environment) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  environment.enter = [](JobPlace&, Helpers&) { throw NotHere("sanitizers need more"); };
#endif
  return environment;
}

JobEnvironment LimitOfMaps(uint64_t megabytes) {
  JobEnvironment environment =
      Rank(fmt::format("limit.address-space.{}m", megabytes), Demand::kBytesOrError,
           [=](int) { Limit(RLIMIT_AS, MappedBytes() + (megabytes << 20)); });
  environment.breaks_programs = true;
  return UnlessSanitized(std::move(environment));
}

// A control group whose memory is limited, of version 2 or 1.
void EnterSmallGroup(uint64_t megabytes, Helpers& helpers) {
  const bool is_new = fs::exists("/sys/fs/cgroup/cgroup.controllers");
  const fs::path group = fmt::format("/sys/fs/cgroup/{}lmdbio-test-{}", is_new ? "" : "memory/",
                                     static_cast<int>(::getpid()));
  std::error_code error;
  fs::create_directory(group, error);
  Need(!error, "a control group");
  // The group can go when its last process has left.
  const pid_t parent = ::getpid();
  const pid_t helper = ::fork();
  if (helper == 0) {
    ::signal(SIGTERM, [](int) {});
    ::pause();
    std::ofstream(group.parent_path() / "cgroup.procs") << parent;
    for (int tries = 0; tries < 100 && ::rmdir(group.c_str()) != 0; ++tries) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    ::_exit(0);
  }
  helpers.push_back(helper);
  WriteText(group / (is_new ? "memory.max" : "memory.limit_in_bytes"),
            std::to_string(megabytes << 20));
  WriteText(group / "cgroup.procs", std::to_string(::getpid()));
}

void AddLimits(std::vector<JobEnvironment>& list) {
  for (const unsigned count : {4U, 8U, 12U, 16U, 24U, 32U, 64U}) {
    list.push_back(
        UnlessSanitized(LimitOf(fmt::format("descriptors.{}", count), RLIMIT_NOFILE, count)));
  }
  for (const unsigned megabytes : {1U, 16U, 64U, 128U, 256U, 300U, 512U}) {
    list.push_back(LimitOfMaps(megabytes));
  }
  list.push_back(LimitOf("file-size.0", RLIMIT_FSIZE, 0));
  list.back().breaks_programs = true;  // their output is a file here
  list.push_back(LimitOf("file-size.1m", RLIMIT_FSIZE, 1 << 20));
  list.push_back(LimitOf("stack.64k", RLIMIT_STACK, 64 << 10));
  list.push_back(LimitOfNobody("locked-memory.0", RLIMIT_MEMLOCK, 0));
  list.push_back(LimitOfNobody("signals.0", RLIMIT_SIGPENDING, 0));
  list.push_back(LimitOfNobody("processes.1", RLIMIT_NPROC, 1));
  list.push_back(LimitOfNobody("processes.6", RLIMIT_NPROC, 6));
  for (const unsigned megabytes : {64U, 128U}) {
    list.push_back(Host(fmt::format("limit.group-memory.{}m", megabytes), Demand::kRightBytes,
                        [=](JobPlace&, Helpers& helpers) { EnterSmallGroup(megabytes, helpers); }));
  }
  list.push_back(Rank("one-core", Demand::kRightBytes, [](int) {
    cpu_set_t cores;
    CPU_ZERO(&cores);
    CPU_SET(::sched_getcpu(), &cores);
    Need(::sched_setaffinity(0, sizeof cores, &cores) == 0, "one core");
  }));
}

// The first process of a pid namespace, without which the others end.
void EnterPidNamespace(JobPlace& /*place*/, Helpers& helpers) {
  Unshare(CLONE_NEWPID);
  const pid_t first = ::fork();
  if (first == 0) {
    ::signal(SIGTERM, [](int) { ::_exit(0); });
    while (true) ::pause();
  }
  helpers.push_back(first);
}

void ShiftClock(int days) {
  Unshare(CLONE_NEWTIME);
  const int seconds = days * 86'400;
  WriteText("/proc/self/timens_offsets", fmt::format("monotonic {0} 0\nboottime {0} 0\n", seconds));
}

void AddNamespaces(std::vector<JobEnvironment>& list) {
  const auto right = Demand::kRightBytes;
  const auto any = Demand::kBytesOrError;
  list.push_back(Host("pid-namespace", right, EnterPidNamespace));
  list.push_back(Rank("pid-namespace-of-rank", right, [](int) {
    Unshare(CLONE_NEWPID);
    GoOnInChild();
  }));
  list.push_back(Host("user-namespace", right, [](JobPlace&, Helpers&) { UnshareUser(0); }));
  list.push_back(Rank("user-namespace-of-rank", any,
                      [](int rank) { UnshareUser(static_cast<uid_t>(1000 + rank)); }));
  list.push_back(Host("network.loopback", right, [](JobPlace&, Helpers&) {
    Unshare(CLONE_NEWNET);
    RaiseLoopback();
  }));
  list.push_back(Rank("ipc-namespace-of-rank", right, [](int) { Unshare(CLONE_NEWIPC); }));
  list.push_back(Rank("host-name-of-rank", right, [](int rank) {
    Unshare(CLONE_NEWUTS);
    const std::string name = fmt::format("host-{}", rank);
    Need(::sethostname(name.c_str(), name.size()) == 0, "a host name");
  }));
  list.push_back(Rank("user.nobody", right, [](int) { BecomeNobody(); }));
  list.push_back(Rank("user.each-rank", any, [](int rank) {
    const auto user = static_cast<uid_t>(20'000 + rank);
    Need(::setgid(user) == 0 && ::setuid(user) == 0, "another user");
  }));
}

JobEnvironment Without(const char* folder, Demand demand) {
  JobEnvironment environment =
      Host(fmt::format("no{}", folder), demand,
           [folder](JobPlace&, Helpers&) { Mount("tmpfs", folder, 0, "mode=755"); });
  std::replace(environment.name.begin(), environment.name.end(), '/', '-');
  return environment;
}

void AddMissingFolders(std::vector<JobEnvironment>& list) {
  list.push_back(Without("/proc", Demand::kRightBytes));
  list.push_back(Without("/sys", Demand::kRightBytes));
  list.push_back(Without("/etc", Demand::kRightBytes));
  list.push_back(Without("/dev", Demand::kRightBytes));
  list.push_back(Host("hidden-processes", Demand::kRightBytes,
                      [](JobPlace&, Helpers&) { Mount("proc", "/proc", 0, "hidepid=2"); }));
  list.back().enter_rank = [](int) { BecomeNobody(); };
}

void CopyDatabase(JobPlace& place, const fs::path& folder) {
  fs::create_directories(folder);
  fs::copy(place.database, folder, fs::copy_options::recursive);
  place.database = folder;
}

void OnTmpfs(JobPlace& place, Helpers& /*helpers*/) {
  Mount("tmpfs", "/mnt", 0, "size=32m,mode=755");
  CopyDatabase(place, "/mnt/database");
}

// The database is in the lower layer.
void OnOverlay(JobPlace& place, Helpers& /*helpers*/) {
  Mount("tmpfs", "/mnt", 0, "mode=755");
  for (const char* name : {"upper", "work", "merged"})
    fs::create_directory(fs::path("/mnt") / name);
  Mount("overlay", "/mnt/merged", 0,
        fmt::format("lowerdir={},upperdir=/mnt/upper,workdir=/mnt/work", place.database.string()));
  place.database = "/mnt/merged";
}

void WithoutWriting(JobPlace& place, Helpers& /*helpers*/) {
  Bind(place.database, place.database, MS_RDONLY);
}

void WithoutPermission(JobPlace& place, Helpers& /*helpers*/) {
  Mount("tmpfs", "/mnt", 0, "size=32m,mode=755");
  CopyDatabase(place, "/mnt/database");
  fs::permissions(place.database / "data.mdb", fs::perms::owner_read);
}

// Shows the database through FUSE. One of `one_in` reads fails with `error_number`; 0: none does.
void OnFuse(JobPlace& place, Helpers& helpers, int error_number, uint64_t one_in) {
  const fs::path program = place.programs / "delayed_mount";
  Need(fs::exists(program) && fs::exists("/dev/fuse"), "delayed_mount");
  Mount("tmpfs", "/mnt", 0, "mode=755");
  fs::create_directory("/mnt/database");
  const fs::path file = place.database / "data.mdb";
  const fs::path provenance = place.database / "data.mdb.prov";
  const std::string error = std::to_string(error_number);
  const std::string often = std::to_string(one_in);
  const pid_t helper = ::fork();
  if (helper == 0) {
    ::execl(program.c_str(), "delayed_mount", "--file", file.c_str(), "--mountpoint",
            "/mnt/database", "--delay-us", "0", "--error", error.c_str(), "--one-in", often.c_str(),
            nullptr);
    ::_exit(127);
  }
  helpers.push_back(helper);
  for (int tries = 0; !fs::exists("/mnt/database/data.mdb"); ++tries) {
    Need(tries < 300, "a mount of FUSE");
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  place.database = "/mnt/database";
  if (!fs::exists(provenance)) return;
  // Only the data file is behind the mount.
  fs::copy_file(provenance, "/mnt/data.mdb.prov");
  fs::create_symlink("/mnt/database/data.mdb", "/mnt/data.mdb");
  place.database = "/mnt";
}

JobEnvironment Fuse(std::string name, int error_number, uint64_t one_in) {
  JobEnvironment environment = Host(
      "fuse." + std::move(name), error_number == 0 ? Demand::kRightBytes : Demand::kBytesOrError,
      [=](JobPlace& place, Helpers& helpers) { OnFuse(place, helpers, error_number, one_in); });
  environment.loses_pages = error_number != 0;
  return environment;
}

void AddStorage(std::vector<JobEnvironment>& list) {
  list.push_back(Host("storage.tmpfs", Demand::kRightBytes, OnTmpfs));
  list.push_back(Host("storage.overlay", Demand::kRightBytes, OnOverlay));
  list.push_back(Host("storage.read-only", Demand::kRightBytes, WithoutWriting));
  list.push_back(Host("storage.unreadable", Demand::kBytesOrError, WithoutPermission));
  list.back().enter_rank = [](int) { BecomeNobody(); };
  list.push_back(Host("full-disk", Demand::kBytesOrError, [](JobPlace& place, Helpers&) {
    Mount("tmpfs", place.folder, 0, "size=64k");
  }));
  list.push_back(Fuse("sound", 0, 1));
  list.push_back(Fuse("eio.some", EIO, 10));
  list.push_back(Fuse("eio.all", EIO, 1));
  list.push_back(Fuse("estale.some", ESTALE, 10));
  list.push_back(Fuse("estale.all", ESTALE, 1));
}

void AddClocks(std::vector<JobEnvironment>& list) {
  list.push_back(Rank("clock.jumps", Demand::kRightBytes, [](int) { LetClockJump(); }));
  list.push_back(Host("clock.monotonic-ahead", Demand::kRightBytes,
                      [](JobPlace&, Helpers&) { ShiftClock(1000); }));
  list.push_back(Rank("clock.monotonic-of-rank", Demand::kRightBytes, [](int rank) {
    ShiftClock(1000 * (rank + 1));
    GoOnInChild();
  }));
}

// Ranks that cannot reach each other wait until their limit, so these take the longest.
void AddParted(std::vector<JobEnvironment>& list) {
  list.push_back(Host("network.none", Demand::kBytesOrError,
                      [](JobPlace&, Helpers&) { Unshare(CLONE_NEWNET); }));
  list.push_back(Rank("network-of-rank", Demand::kBytesOrError, [](int) {
    Unshare(CLONE_NEWNET);
    RaiseLoopback();
  }));
}

}  // namespace

void Need(bool is_done, std::string_view action) {
  if (is_done) return;
  throw NotHere(fmt::format("{}: {}", action, std::strerror(errno)));
}

std::vector<JobEnvironment> FixedEnvironments() {
  std::vector<JobEnvironment> list;
  list.push_back(Host("plain", Demand::kRightBytes, {}));
  AddShm(list);
  AddLimits(list);
  AddNamespaces(list);
  AddMissingFolders(list);
  AddStorage(list);
  AddClocks(list);
  AddParted(list);
  return list;
}

bool TakeOwnMounts() {
  if (::unshare(CLONE_NEWNS) != 0) {
    try {
      UnshareUser(0);
    } catch (const NotHere&) {
      return false;
    }
    if (::unshare(CLONE_NEWNS) != 0) return false;
  }
  return ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
         ::mount("tmpfs", "/dev/shm", "tmpfs", 0, "size=256m") == 0;
}

}  // namespace lmdbio::test
