// tests/sync/transport/exchange_checks.h - checks that every Transport must pass.
//
// Oracle: a loop over the contributions of all ranks.
#ifndef LMDBIO_TESTS_SYNC_TRANSPORT_EXCHANGE_CHECKS_H_
#define LMDBIO_TESTS_SYNC_TRANSPORT_EXCHANGE_CHECKS_H_

#include "lmdbio/sync/transport/transport.h"

namespace lmdbio::test {

enum class ExchangeWait { kAsleep, kByTests };

// Collective over the transport's ranks. Makes exchanges of all kinds, scopes and sizes, and counts
// the wrong replies.
int WrongExchanges(sync::Transport& transport, ExchangeWait waiting);

}  // namespace lmdbio::test
#endif  // LMDBIO_TESTS_SYNC_TRANSPORT_EXCHANGE_CHECKS_H_
