// lmdbio/order/stream_state.h - where a stream stands, in words that outlive the program.
//
// Nothing of ranks, hosts, engines or buffers is in it: a stream goes on anywhere.
//
// Source: docs/order.md "State".
#ifndef LMDBIO_ORDER_STREAM_STATE_H_
#define LMDBIO_ORDER_STREAM_STATE_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "lmdbio/base/status.h"
#include "lmdbio/order/schedule.h"

namespace lmdbio::order {

// Which records a stream is about.
struct DatasetMark {
  std::string database_name;    // empty: the main database
  uint64_t transaction_id = 0;  // that committed it last
  uint64_t root_page = 0;       // of the database
  uint64_t page_bytes = 0;
};

struct StreamState {
  DatasetMark dataset;
  ScheduleOptions schedule;
  uint64_t next_batch = 0;  // its number
};

// At most so long, whatever the state is, for database names of up to 256 bytes.
inline constexpr size_t kStreamStateBytesMax = 1000;

// One JSON object, in one line.
std::string EncodeStreamState(const StreamState& state);

// Errors: kInvalidArgument  no JSON, a field that is missing, wrong or contradicts the others, or a
//                           version that is not known; names the field
Result<StreamState> DecodeStreamState(std::string_view text);

// Where a stream with these options goes on where `saved` stands: what `wanted` leaves at 0
// (block_records, group_batches) and where the batches are counted out from is as it was saved.
// Errors: kStale            another dataset
//         kInvalidArgument  another order, or batches of another size where these are part of it;
//                           names the field and both values
Result<StreamState> ContinueStream(const StreamState& saved, const StreamState& wanted);

}  // namespace lmdbio::order
#endif  // LMDBIO_ORDER_STREAM_STATE_H_
