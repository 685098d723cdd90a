// bench/delayed_mount.cc - storage with a delay and little else, for benchmarks of single pages.
//
//   delayed_mount --file data.mdb --mountpoint DIR --delay-us 1000 --requests 64
//   delayed_mount --file data.mdb --mountpoint DIR --error 5 --one-in 10
//
// Shows FILE as DIR/data.mdb. Each read of the mount waits for the delay, and --requests of them at
// the same time. It is one process that answers out of a map of FILE, so only the kernel copies:
// real storage would use no processor of the reader's machine at all. Two cores give some 40,000
// pages of 4 KiB a second, eight times as many as scripts/remote-storage, which counts, limits the
// rate and makes errors. With --error, one of so many reads, which chance chooses, fails with this
// errno. It ends with the mount (umount), or by SIGTERM.
#define FUSE_USE_VERSION 312

#include <fcntl.h>
#include <fuse_lowlevel.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include <boost/program_options.hpp>

namespace {

constexpr char kName[] = "data.mdb";
constexpr fuse_ino_t kFile = 2;
constexpr double kKnownForSeconds = 3600;  // names and sizes: nothing changes
constexpr uint32_t kReadBytesMax = 1 << 20;
constexpr uint32_t kReadAheadBytes = 128 << 10;  // the default of Linux
constexpr unsigned long kTimerSlackNs = 1000;    // the default adds 50 us to each delay

struct Storage {
  const char* bytes = nullptr;  // the file
  struct stat stat = {};
  std::chrono::microseconds delay{0};
  uint32_t request_count = 1;
  int error_number = 0;  // of reads that fail; 0: none
  uint64_t one_in = 1;   // so many reads, one fails
};
Storage storage;  // constant while the mount exists
std::atomic<uint64_t> read_count{0};

// The multiplication of Fibonacci hashing spreads the failures over the reads.
bool Fails() {
  if (storage.error_number == 0) return false;
  const uint64_t number = read_count.fetch_add(1) * 0x9E3779B97F4A7C15U;
  return (number >> 32) % storage.one_in == 0;
}

struct stat StatOf(fuse_ino_t inode) {
  struct stat found = {};
  found.st_ino = inode;
  found.st_nlink = 1;
  found.st_mtim = storage.stat.st_mtim;
  found.st_mode = S_IFDIR | 0555;
  if (inode == kFile) {
    found.st_mode = S_IFREG | 0444;
    found.st_size = storage.stat.st_size;
  }
  return found;
}

void Init(void* /*data*/, fuse_conn_info* connection) {
  connection->max_read = kReadBytesMax;
  connection->max_readahead = kReadAheadBytes;
  // So many reads the kernel passes on before it makes readers wait.
  connection->max_background = 2 * storage.request_count;
  connection->congestion_threshold = connection->max_background;
  connection->want |= connection->capable & FUSE_CAP_ASYNC_DIO;
}

void LookUp(fuse_req_t request, fuse_ino_t parent, const char* name) {
  if (parent != FUSE_ROOT_ID || std::strcmp(name, kName) != 0) {
    fuse_reply_err(request, ENOENT);
    return;
  }
  fuse_entry_param entry = {};
  entry.ino = kFile;
  entry.attr = StatOf(kFile);
  entry.attr_timeout = entry.entry_timeout = kKnownForSeconds;
  fuse_reply_entry(request, &entry);
}

void GetAttributes(fuse_req_t request, fuse_ino_t inode, fuse_file_info* /*file*/) {
  const struct stat found = StatOf(inode);
  fuse_reply_attr(request, &found, kKnownForSeconds);
}

// The page cache of the mount is dropped, as keep_cache is not set.
void Open(fuse_req_t request, fuse_ino_t inode, fuse_file_info* file) {
  if (inode != kFile) {
    fuse_reply_err(request, EISDIR);
  } else if ((file->flags & O_ACCMODE) != O_RDONLY) {
    fuse_reply_err(request, EROFS);
  } else {
    fuse_reply_open(request, file);
  }
}

void Read(fuse_req_t request, fuse_ino_t /*inode*/, size_t size, off_t offset,
          fuse_file_info* /*file*/) {
  thread_local bool has_slack = false;
  if (!has_slack) has_slack = ::prctl(PR_SET_TIMERSLACK, kTimerSlackNs, 0, 0, 0) == 0;
  if (storage.delay.count() > 0) std::this_thread::sleep_for(storage.delay);
  if (Fails()) {
    fuse_reply_err(request, storage.error_number);
    return;
  }
  const off_t left = std::max<off_t>(storage.stat.st_size - offset, 0);
  fuse_reply_buf(request, left > 0 ? storage.bytes + offset : nullptr,
                 std::min(size, static_cast<size_t>(left)));
}

// Maps the file, with all its pages. Returns false with errno if that fails.
bool Map(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0 || ::fstat(fd, &storage.stat) != 0) return false;
  void* const map = ::mmap(nullptr, static_cast<size_t>(storage.stat.st_size), PROT_READ,
                           MAP_SHARED | MAP_POPULATE, fd, 0);
  if (map == MAP_FAILED) return false;
  storage.bytes = static_cast<const char*>(map);
  return true;
}

void ReadFolder(fuse_req_t request, fuse_ino_t /*inode*/, size_t size, off_t offset,
                fuse_file_info* /*file*/) {
  std::vector<char> bytes(size);
  const struct stat found = StatOf(kFile);
  const size_t used =
      offset == 0 ? fuse_add_direntry(request, bytes.data(), size, kName, &found, 1) : 0;
  fuse_reply_buf(request, bytes.data(), std::min(used, size));
}

// Returns the exit code.
int Serve(const std::string& mountpoint) {
  fuse_lowlevel_ops operations = {};
  operations.init = Init;
  operations.lookup = LookUp;
  operations.getattr = GetAttributes;
  operations.open = Open;
  operations.read = Read;
  operations.readdir = ReadFolder;
  std::string name = "delayed_mount";
  std::string flag = "-o";
  std::string settings = "ro,default_permissions,max_read=" + std::to_string(kReadBytesMax);
  std::vector<char*> words = {name.data(), flag.data(), settings.data(), nullptr};
  fuse_args arguments = FUSE_ARGS_INIT(3, words.data());
  fuse_session* const session =
      fuse_session_new(&arguments, &operations, sizeof operations, nullptr);
  fuse_opt_free_args(&arguments);
  if (session == nullptr) return 1;
  int code = 1;
  if (fuse_set_signal_handlers(session) == 0) {
    if (fuse_session_mount(session, mountpoint.c_str()) == 0) {
      fuse_loop_config* const loop = fuse_loop_cfg_create();
      fuse_loop_cfg_set_clone_fd(loop, 1);
      fuse_loop_cfg_set_max_threads(loop, storage.request_count);
      fuse_loop_cfg_set_idle_threads(loop, storage.request_count);
      code = fuse_session_loop_mt(session, loop) < 0 ? 1 : 0;
      fuse_loop_cfg_destroy(loop);
      fuse_session_unmount(session);
    }
    fuse_remove_signal_handlers(session);
  }
  fuse_session_destroy(session);
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  namespace po = boost::program_options;
  std::string path;
  std::string mountpoint;
  int64_t delay_us = 0;
  po::options_description options("delayed_mount: shows a file as storage with a delay");
  options.add_options()("help", "print this")("file", po::value(&path)->required(),
                                              "the file to show as data.mdb")(
      "mountpoint", po::value(&mountpoint)->required(), "an empty folder")(
      "delay-us", po::value(&delay_us)->default_value(1000), "microseconds of each read")(
      "requests", po::value(&storage.request_count)->default_value(64), "reads at once")(
      "error", po::value(&storage.error_number)->default_value(0), "errno of reads; 0: none fails")(
      "one-in", po::value(&storage.one_in)->default_value(1), "of so many reads, one fails");
  try {
    po::variables_map given;
    po::store(po::parse_command_line(argc, argv, options), given);
    if (given.count("help") != 0) {
      std::cout << options;
      return 0;
    }
    po::notify(given);
  } catch (const std::exception& error) {
    std::cerr << "delayed_mount: " << error.what() << '\n';
    return 2;
  }
  const bool is_known = storage.error_number >= 0 && storage.one_in >= 1;
  if (delay_us < 0 || storage.request_count < 1 || storage.request_count > 1024 || !is_known) {
    std::cerr
        << "delayed_mount: --delay-us and --error are at least 0, --one-in is at least 1, and "
           "--requests 1 to 1024\n";
    return 2;
  }
  storage.delay = std::chrono::microseconds(delay_us);
  if (!Map(path)) {
    std::cerr << "delayed_mount: " << path << ": " << std::strerror(errno) << '\n';
    return 1;
  }
  return Serve(mountpoint);
}
