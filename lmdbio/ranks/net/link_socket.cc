#include "lmdbio/ranks/net/link_socket.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <string_view>

#include "lmdbio/ranks/shm/call_failure.h"

namespace lmdbio::ranks {
namespace {

constexpr size_t kMappedBytes = 12;  // the prefix of an IPv4 address that is mapped into IPv6

tl::unexpected<Error> Failed(std::string_view call) {
  return CallFailed(ErrorCode::kIo, call, errno);
}

// The address in the form that the kernel takes. An IPv4 address gets a socket of its own family,
// because a host may have no IPv6.
struct SocketAddress {
  explicit SocketAddress(const PeerAddress& address) {
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(address.port);
    std::memcpy(&v6.sin6_addr, address.ip.data(), address.ip.size());
    if (!IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr)) return;
    v4.sin_family = AF_INET;
    v4.sin_port = htons(address.port);
    std::memcpy(&v4.sin_addr, &address.ip[kMappedBytes], sizeof v4.sin_addr);
  }
  bool is_v4() const { return v4.sin_family == AF_INET; }
  sockaddr* get() {
    return is_v4() ? reinterpret_cast<sockaddr*>(&v4) : reinterpret_cast<sockaddr*>(&v6);
  }
  socklen_t size_bytes() const { return is_v4() ? sizeof v4 : sizeof v6; }

  sockaddr_in v4{};
  sockaddr_in6 v6{};
};

Result<UniqueFd> MakeSocket(const SocketAddress& address) {
  UniqueFd made(::socket(address.is_v4() ? AF_INET : AF_INET6,
                         SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!made) return Failed("socket");
  return made;
}

// No delay: the messages are short and the receiver waits for each. Keepalive: a host that vanishes
// sends no end of file. A socket works without the options, so failures are ignored.
void SetLinkOptions(const UniqueFd& socket) {
  const auto set = [&](int level, int option, int value) {
    ::setsockopt(socket.get(), level, option, &value, sizeof value);
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, static_cast<int>(kKeepaliveIdle.count()));
  set(IPPROTO_TCP, TCP_KEEPINTVL, static_cast<int>(kKeepaliveInterval.count()));
  set(IPPROTO_TCP, TCP_KEEPCNT, kKeepaliveProbes);
}

Status Listen(const UniqueFd& listener, SocketAddress& here) {
  if (::bind(listener.get(), here.get(), here.size_bytes()) != 0) return Failed("bind");
  // All ranks may connect at the same moment.
  if (::listen(listener.get(), SOMAXCONN) != 0) return Failed("listen");
  return {};
}

}  // namespace

Result<UniqueFd> BeginConnect(const PeerAddress& address) {
  SocketAddress there(address);
  LMDBIO_TRY(UniqueFd socket, MakeSocket(there));
  SetLinkOptions(socket);
  const int rc = ::connect(socket.get(), there.get(), there.size_bytes());
  if (rc != 0 && errno != EINPROGRESS) return Failed("connect");
  return socket;
}

Result<UniqueFd> ListenAtPort(const PeerAddress& address) {
  SocketAddress here(address);
  LMDBIO_TRY(UniqueFd listener, MakeSocket(here));
  const int yes = 1;
  ::setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  LMDBIO_TRY_VOID(Listen(listener, here));
  return listener;
}

Result<UniqueFd> ListenAt(PeerAddress& address) {
  address.port = 0;
  SocketAddress here(address);
  LMDBIO_TRY(UniqueFd listener, MakeSocket(here));
  LMDBIO_TRY_VOID(Listen(listener, here));
  socklen_t length = here.size_bytes();
  if (::getsockname(listener.get(), here.get(), &length) != 0) return Failed("getsockname");
  address.port = ntohs(here.is_v4() ? here.v4.sin_port : here.v6.sin6_port);
  return listener;
}

UniqueFd AcceptLink(const UniqueFd& listener) {
  UniqueFd socket(::accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (socket) SetLinkOptions(socket);
  return socket;
}

}  // namespace lmdbio::ranks
