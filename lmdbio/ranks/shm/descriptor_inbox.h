// lmdbio/ranks/shm/descriptor_inbox.h - passes a file descriptor between two processes of a host.
//
// The receiver opens an inbox: a Unix socket with a random name outside of the file system. It
// sends the address to the sender by other means. The sender puts the descriptor in and notifies
// the receiver, also by other means; then the receiver takes it out. No call waits.
//
// Every process of the host can read the names of such sockets in /proc/net/unix. So both sides
// check that the other process belongs to their own user (SO_PEERCRED), and the receiver accepts
// only a descriptor that comes with the secret of its inbox.
#ifndef LMDBIO_RANKS_SHM_DESCRIPTOR_INBOX_H_
#define LMDBIO_RANKS_SHM_DESCRIPTOR_INBOX_H_

#include <array>
#include <cstddef>
#include <type_traits>

#include "lmdbio/base/status.h"
#include "lmdbio/base/unique_fd.h"

namespace lmdbio::ranks {

class DescriptorInbox {
 public:
  struct Address {
    std::array<std::byte, 16> name{};
    std::array<std::byte, 16> secret{};
  };
  static_assert(std::is_trivially_copyable_v<Address>);

  // Errors: kUnsupported        the system refuses such sockets; names the call and the reason
  //         kResourceExhausted  no descriptor is left
  static Result<DescriptorInbox> Open();

  const Address& address() const { return address_; }

  // The descriptor that SendDescriptor put in. Other connections are closed.
  // Requires: SendDescriptor has returned success
  // Errors: kUnsupported        it has not arrived; names the reason
  //         kResourceExhausted  no descriptor is left
  Result<UniqueFd> Take();

 private:
  DescriptorInbox(UniqueFd socket, const Address& address)
      : socket_(std::move(socket)), address_(address) {}

  UniqueFd socket_;
  Address address_;
};

// The receiver gets a duplicate of `descriptor`; this one may be closed afterwards.
// Requires: both processes are in the same network namespace
// Errors: as DescriptorInbox::Open
Status SendDescriptor(const DescriptorInbox::Address& to, const UniqueFd& descriptor);

}  // namespace lmdbio::ranks
#endif  // LMDBIO_RANKS_SHM_DESCRIPTOR_INBOX_H_
