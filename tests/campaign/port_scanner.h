// tests/campaign/port_scanner.h - a process that connects to each port of a network as soon as
// somebody listens there, and says nothing, half a word or rubbish.
#ifndef LMDBIO_TESTS_CAMPAIGN_PORT_SCANNER_H_
#define LMDBIO_TESTS_CAMPAIGN_PORT_SCANNER_H_

#include <sys/types.h>

#include <cstdint>

#include "tests/support/shared_bytes.h"

namespace lmdbio::test {

// Moves this process and its later children into a network of their own, with nothing but a
// loopback. So a scanner meets the ports of this program alone. False if the kernel refuses it.
bool TakeOwnNetwork();

class PortScanner {
 public:
  // Makes up to `connections_max` connections, most of which stay open, and then waits.
  // seed  draws the ports and the words
  PortScanner(uint64_t seed, uint64_t connections_max);
  // Ends the process, and with it its connections.
  ~PortScanner();
  PortScanner(const PortScanner&) = delete;
  PortScanner& operator=(const PortScanner&) = delete;

  uint64_t connection_count() const;

 private:
  struct ScanCount;
  void Run(uint64_t seed, uint64_t connections_max);

  SharedBytes memory_;
  ScanCount& board_;
  pid_t process_ = -1;
};

}  // namespace lmdbio::test
#endif  // LMDBIO_TESTS_CAMPAIGN_PORT_SCANNER_H_
