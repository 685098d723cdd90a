#include "lmdbio/ranks/shm/descriptor_inbox.h"

#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <optional>
#include <string>

#include <fmt/format.h>

#include "lmdbio/ranks/shm/call_failure.h"

namespace lmdbio::ranks {
namespace {

using Address = DescriptorInbox::Address;
using Secret = std::array<std::byte, 16>;

// One sender is expected. The rest of the queue holds foreign connections until they are closed.
constexpr int kQueueLength = 16;

tl::unexpected<Error> Refused(std::string_view call) {
  return CallFailed(ErrorCode::kUnsupported, call, errno);
}

// A zero before the name keeps the socket out of all directories (unix(7), abstract sockets).
struct SocketName {
  explicit SocketName(const Address& address) {
    std::string text = "lmdbio-";
    for (const std::byte one : address.name) {
      text += fmt::format("{:02x}", std::to_integer<unsigned>(one));
    }
    socket_address.sun_family = AF_UNIX;
    text.copy(&socket_address.sun_path[1], sizeof socket_address.sun_path - 1);
    length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&socket_address); }

  sockaddr_un socket_address{};
  socklen_t length = 0;
};

Result<UniqueFd> MakeSocket() {
  UniqueFd made(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!made) return Refused("socket");
  return made;
}

Status CheckUser(const UniqueFd& socket) {
  ucred other{};
  socklen_t length = sizeof other;
  if (::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &other, &length) != 0) {
    return Refused("SO_PEERCRED");
  }
  if (other.uid == ::geteuid()) return {};
  return Fail(ErrorCode::kUnsupported,
              fmt::format("the socket belongs to user {}, not to user {}: all ranks of a host must "
                          "run as one user",
                          other.uid, ::geteuid()));
}

// A message of a secret and one descriptor.
struct DescriptorMessage {
  DescriptorMessage() {
    head.msg_iov = &piece;
    head.msg_iovlen = 1;
    head.msg_control = control.data();
    head.msg_controllen = CMSG_LEN(sizeof(int));  // not one descriptor more
  }
  DescriptorMessage(const DescriptorMessage&) = delete;
  DescriptorMessage& operator=(const DescriptorMessage&) = delete;

  Secret secret{};
  iovec piece{secret.data(), secret.size()};
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(int))> control{};
  msghdr head{};
};

// The descriptor of one connection, if its sender knows the secret.
Result<std::optional<UniqueFd>> Receive(const UniqueFd& connection, const Secret& secret) {
  DescriptorMessage message;
  const ssize_t got = ::recvmsg(connection.get(), &message.head, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  if (got < 0 && errno == EAGAIN) return std::nullopt;
  if (got < 0) return Refused("recvmsg");
  UniqueFd descriptor;
  const cmsghdr* const about = CMSG_FIRSTHDR(&message.head);
  if (about != nullptr && about->cmsg_level == SOL_SOCKET && about->cmsg_type == SCM_RIGHTS &&
      about->cmsg_len == CMSG_LEN(sizeof(int))) {
    int number = -1;
    std::memcpy(&number, CMSG_DATA(about), sizeof number);
    descriptor = UniqueFd(number);
  }
  if (got != static_cast<ssize_t>(secret.size()) || message.secret != secret) return std::nullopt;
  // The kernel drops the descriptor if this process has no free number for it.
  if (!descriptor) return CallFailed(ErrorCode::kUnsupported, "recvmsg", EMFILE);
  return descriptor;
}

}  // namespace

Result<DescriptorInbox> DescriptorInbox::Open() {
  Address address;
  if (::getrandom(&address, sizeof address, 0) != sizeof address) return Refused("getrandom");
  LMDBIO_TRY(UniqueFd socket, MakeSocket());
  const SocketName name(address);
  if (::bind(socket.get(), name.get(), name.length) != 0) return Refused("bind");
  if (::listen(socket.get(), kQueueLength) != 0) return Refused("listen");
  return DescriptorInbox(std::move(socket), address);
}

Result<UniqueFd> DescriptorInbox::Take() {
  // Bounds the loop: foreign connections may arrive as fast as they are closed.
  for (int i = 0; i < 4 * kQueueLength; ++i) {
    const UniqueFd connection(
        ::accept4(socket_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!connection && errno == EAGAIN) break;
    if (!connection) return Refused("accept");
    if (!CheckUser(connection)) continue;
    LMDBIO_TRY(std::optional<UniqueFd> received, Receive(connection, address_.secret));
    if (received) return std::move(*received);
  }
  return Fail(ErrorCode::kUnsupported, "no descriptor arrived in the inbox");
}

Status SendDescriptor(const Address& to, const UniqueFd& descriptor) {
  LMDBIO_TRY(const UniqueFd socket, MakeSocket());
  const SocketName name(to);
  if (::connect(socket.get(), name.get(), name.length) != 0) return Refused("connect");
  LMDBIO_TRY_VOID(CheckUser(socket));
  DescriptorMessage message;
  message.secret = to.secret;
  cmsghdr* const about = CMSG_FIRSTHDR(&message.head);
  about->cmsg_level = SOL_SOCKET;
  about->cmsg_type = SCM_RIGHTS;
  about->cmsg_len = CMSG_LEN(sizeof(int));
  const int number = descriptor.get();
  std::memcpy(CMSG_DATA(about), &number, sizeof number);
  if (::sendmsg(socket.get(), &message.head, MSG_NOSIGNAL | MSG_DONTWAIT) !=
      static_cast<ssize_t>(message.secret.size())) {
    return Refused("sendmsg");
  }
  return {};
}

}  // namespace lmdbio::ranks
