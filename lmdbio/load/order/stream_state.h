// lmdbio/load/order/stream_state.h - the saved state of a stream, as JSON.
//
// The state does not depend on ranks, hosts, engines or buffers, so a stream can continue on any
// other set of them.
//
// Source: docs/order.md "State".
#ifndef LMDBIO_LOAD_ORDER_STREAM_STATE_H_
#define LMDBIO_LOAD_ORDER_STREAM_STATE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lmdbio/base/status.h"
#include "lmdbio/load/order/schedule.h"

namespace lmdbio::load {

// Identifies one file of a list (docs/many_files.md).
struct FileIdentity {
  std::string name;           // the last part of its path
  std::string database_name;  // empty: the main database
  uint64_t record_count = 0;
  uint64_t transaction_id = 0;  // that committed it last
  uint64_t root_page = 0;       // of the database
  friend bool operator==(const FileIdentity&, const FileIdentity&) = default;
};

// Identifies the data set of a stream.
struct DatasetIdentity {
  std::string database_name;    // empty: the main database
  uint64_t transaction_id = 0;  // that committed it last; of a list: of its first file
  uint64_t root_page = 0;       // of the database; the same
  uint64_t page_bytes = 0;
  std::optional<uint64_t> view_digest = {};  // of the view; records are then its samples
  std::vector<FileIdentity> files = {};      // of a list; empty for a single file
};

// The first difference between two lists, in words that name the file: "has no file data.3.mdb,
// which THE_OTHER has as number 4 of 9". Nothing if there is none.
// here, other              of single files: empty
// name_here, name_other    the subject, for example "the loader", "the saved state"
std::optional<std::string> ListDifference(const std::vector<FileIdentity>& here,
                                          std::string_view name_here,
                                          const std::vector<FileIdentity>& other,
                                          std::string_view name_other);

struct StreamState {
  DatasetIdentity dataset;
  ScheduleOptions schedule;
  uint64_t next_batch = 0;  // its number
};

// The largest length of an encoded state of a single file, for database names of up to 256 bytes. A
// file of a list takes some 50 bytes more.
inline constexpr size_t kStreamStateBytesMax = 1000;

// One JSON object, in one line.
std::string EncodeStreamState(const StreamState& state);

// Errors: kInvalidArgument  not JSON; a field that is missing, invalid or contradicts the others;
//                           an unknown version. The message names the field
Result<StreamState> DecodeStreamState(std::string_view text);

// The state with which a stream of the options `wanted` continues from `saved`. The saved value is
// used for block_records and group_batches if they are 0 in `wanted`. The saved origin is kept,
// except that another batch size cuts batches from the saved position on.
// Errors: kStale            another dataset
//         kInvalidArgument  another order, or batches of another size where these are part of it;
//                           names the field and both values
Result<StreamState> ContinueStream(const StreamState& saved, const StreamState& wanted);

}  // namespace lmdbio::load
#endif  // LMDBIO_LOAD_ORDER_STREAM_STATE_H_
