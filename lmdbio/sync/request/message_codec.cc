// The two messages, with counts before all lists:
//
//   requests    "ASK1", is_ending, asks (request, ranks, group digest), stalled names
//   responses   "RSP1", is_ended, responses (requests, error, rows, last_joined)
//
// docs/coordinators.md "Messages" lists the fields of a request. The writer and the reader of each
// message go through the fields in the same order.
#include "lmdbio/sync/request/message_codec.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>

#include <fmt/format.h>

#include "lmdbio/base/check.h"
#include "lmdbio/sync/request/request_checks.h"

namespace lmdbio::sync {
namespace {

// Numbers are copied one by one, without padding. So the layout of structs does not matter, but the
// byte order does.
static_assert(std::endian::native == std::endian::little, "numbers travel as they lie in memory");

constexpr uint32_t kAskMagic = 0x314B5341;       // "ASK1"
constexpr uint32_t kResponseMagic = 0x31505352;  // "RSP1"

// The smallest encoded sizes. They bound the allocation of a decoder for a given count. A request
// has 48 bytes of numbers and element counts, and a name of one byte or more.
constexpr size_t kRequestBytesMin = 49;
constexpr size_t kAskBytesMin = kRequestBytesMin + 4 + 4 + 8;
constexpr size_t kResponseBytesMin = 4 + kRequestBytesMin + 4 + 4 + 4;

// Appends numbers, and arrays behind their element count.
class MessageWriter {
 public:
  template <typename T>
  void Number(T number) {
    static_assert(std::is_arithmetic_v<T>);
    const size_t end = bytes_.size();
    bytes_.resize(end + sizeof number);
    std::memcpy(bytes_.data() + end, &number, sizeof number);
  }
  template <typename T>
  void Array(const T* values, size_t count) {
    LMDBIO_CHECK(count <= UINT32_MAX);
    Number(static_cast<uint32_t>(count));
    const size_t end = bytes_.size();
    bytes_.resize(end + count * sizeof(T));
    if (count > 0) std::memcpy(bytes_.data() + end, values, count * sizeof(T));
  }
  void Text(const std::string& text) { Array(text.data(), text.size()); }
  template <typename T>
  void Array(const std::vector<T>& values) {
    Array(values.data(), values.size());
  }
  void Count(size_t count) {
    LMDBIO_CHECK(count <= UINT32_MAX);
    Number(static_cast<uint32_t>(count));
  }
  std::vector<std::byte> Take() && { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

// Reads from the front. After the first error all numbers are 0 and all arrays are empty.
class MessageReader {
 public:
  explicit MessageReader(Bytes bytes) : bytes_(bytes) {}

  bool is_good() const { return what_ == nullptr; }
  // Keeps the first error. It is the cause; later ones may be its consequence.
  void Damage(const char* what) {
    if (what_ == nullptr) what_ = what;
  }
  tl::unexpected<Error> Failure(const char* list) const {
    return Fail(ErrorCode::kInternal, fmt::format("{}: byte {} of {}: {}", list, place_,
                                                  bytes_.size(), is_good() ? "?" : what_));
  }

  template <typename T>
  T Number() {
    T number{};
    if (Has(sizeof number)) {
      std::memcpy(&number, bytes_.data() + place_, sizeof number);
      place_ += sizeof number;
    }
    return number;
  }
  bool Flag() {
    const auto number = Number<uint8_t>();
    // An encoder writes no other value, so each message has one encoding.
    if (number > 1) Damage("a flag is neither 0 nor 1");
    return number == 1;
  }
  // The count of a damaged message may be any number. It is compared with the bytes that follow
  // before memory is allocated for it, so a message costs memory in proportion to its size.
  // least_bytes  smallest encoded size of one element
  uint32_t Count(size_t least_bytes) {
    const auto count = Number<uint32_t>();
    if (!is_good()) return 0;
    if (count > (bytes_.size() - place_) / least_bytes) {
      Damage("a count exceeds the bytes that follow");
      return 0;
    }
    return count;
  }
  template <typename Container>
  Container Array() {
    using T = typename Container::value_type;
    Container values(Count(sizeof(T)), T{});
    if (!values.empty()) {
      std::memcpy(values.data(), bytes_.data() + place_, values.size() * sizeof(T));
      place_ += values.size() * sizeof(T);
    }
    return values;
  }
  void End() {
    if (place_ != bytes_.size()) Damage("bytes follow the end");
  }

 private:
  bool Has(size_t count) {
    if (!is_good()) return false;
    // `place_` never exceeds the size, so the difference does not wrap around.
    if (bytes_.size() - place_ < count) Damage("ends too early");
    return is_good();
  }

  Bytes bytes_;
  size_t place_ = 0;
  const char* what_ = nullptr;
};

void Write(MessageWriter& writer, const Request& request) {
  writer.Text(request.name);
  writer.Number(static_cast<uint8_t>(request.operation));
  writer.Number(static_cast<uint8_t>(request.type));
  writer.Number(static_cast<uint8_t>(request.reduce_op));
  writer.Number(static_cast<uint8_t>(request.memory));
  writer.Number(request.prescale);
  writer.Number(request.postscale);
  writer.Array(request.shape);
  writer.Number(request.root);
  writer.Array(request.splits);
  writer.Text(request.group);
  writer.Number(request.group_size);
  writer.Array(request.extra);
}

// The enumerations are assigned only if all of them are valid. So no later switch meets an unknown
// value, even if the rest of the message is damaged.
Request ReadRequest(MessageReader& reader) {
  Request request;
  request.name = reader.Array<std::string>();
  if (request.name.empty()) reader.Damage("a tensor has no name");
  const auto operation = reader.Number<uint8_t>();
  const auto type = reader.Number<uint8_t>();
  const auto reduce_op = reader.Number<uint8_t>();
  const auto memory = reader.Number<uint8_t>();
  if (!IsOperation(operation)) reader.Damage("unknown operation");
  if (!IsDataType(type)) reader.Damage("unknown type");
  if (!IsReduceOp(reduce_op)) reader.Damage("unknown reduction");
  if (!IsMemoryKind(memory)) reader.Damage("unknown memory kind");
  if (reader.is_good()) {
    request.operation = static_cast<Operation>(operation);
    request.type = static_cast<DataType>(type);
    request.reduce_op = static_cast<ReduceOp>(reduce_op);
    request.memory = static_cast<MemoryKind>(memory);
  }
  request.prescale = reader.Number<double>();
  request.postscale = reader.Number<double>();
  request.shape = reader.Array<std::vector<int64_t>>();
  request.root = reader.Number<int32_t>();
  request.splits = reader.Array<std::vector<int64_t>>();
  request.group = reader.Array<std::string>();
  request.group_size = reader.Number<uint32_t>();
  request.extra = reader.Array<std::vector<std::byte>>();
  return request;
}

RequestEntry ReadAsk(MessageReader& reader, int rank_count) {
  RequestEntry ask;
  ask.request = ReadRequest(reader);
  ask.ranks = reader.Array<std::vector<int32_t>>();
  ask.group_digest = reader.Number<uint64_t>();
  if (ask.ranks.empty()) reader.Damage("no rank requests a tensor");
  // Ascending ranks are the only encoding of a set, and no rank occurs twice.
  int32_t last = -1;
  for (const int32_t rank : ask.ranks) {
    if (rank <= last || rank >= rank_count) reader.Damage("invalid ranks");
    last = rank;
  }
  return ask;
}

// The number of row counts in a response to `tensor`. Only operations with rows of different sizes
// have them.
size_t RowCount(const Request& tensor, int rank_count) {
  const auto ranks = static_cast<size_t>(rank_count);
  if (tensor.operation == Operation::kAllGather) return ranks;
  return tensor.operation == Operation::kAllToAll ? ranks * ranks : 0;
}

// The answer of rank 0 is checked like any other message: the executor computes offsets and sizes
// from it. A response with an error is never executed, so its other fields do not matter.
void CheckResponse(MessageReader& reader, const Response& response, int rank_count) {
  if (response.tensors.empty()) reader.Damage("a response without a tensor");
  if (!reader.is_good() || !response.error.empty()) return;
  for (const Request& tensor : response.tensors) {
    if (!WhatIsWrong(tensor, rank_count).empty()) reader.Damage("an invalid tensor");
    if (response.tensors.size() > 1 && tensor.operation != Operation::kAllReduce) {
      reader.Damage("tensors that cannot share a response");
    }
  }
  const Request& first = response.tensors.front();
  const bool is_negative = std::ranges::any_of(response.rows, [](int64_t n) { return n < 0; });
  if (response.rows.size() != RowCount(first, rank_count) || is_negative) {
    reader.Damage("invalid row counts");
  }
  const bool is_join = first.operation == Operation::kJoin;
  if (is_join != (response.last_joined >= 0) || response.last_joined < -1 ||
      response.last_joined >= rank_count) {
    reader.Damage("an invalid rank that joined last");
  }
}

}  // namespace

std::vector<std::byte> Encode(const RequestList& list) {
  MessageWriter writer;
  writer.Number(kAskMagic);
  writer.Number(static_cast<uint8_t>(list.is_ending));
  writer.Count(list.asks.size());
  for (const RequestEntry& ask : list.asks) {
    Write(writer, ask.request);
    writer.Array(ask.ranks);
    writer.Number(ask.group_digest);
  }
  writer.Count(list.stalled.size());
  for (const std::string& name : list.stalled) writer.Text(name);
  return std::move(writer).Take();
}

std::vector<std::byte> Encode(const ResponseList& list) {
  MessageWriter writer;
  writer.Number(kResponseMagic);
  writer.Number(static_cast<uint8_t>(list.is_ended));
  writer.Count(list.responses.size());
  for (const Response& response : list.responses) {
    writer.Count(response.tensors.size());
    for (const Request& tensor : response.tensors) Write(writer, tensor);
    writer.Text(response.error);
    writer.Array(response.rows);
    writer.Number(response.last_joined);
  }
  return std::move(writer).Take();
}

// The reader returns zeros and empty arrays after an error, so the loops need no test of each
// field. They end early, and the error is returned once at the end.
Result<RequestList> DecodeAsks(Bytes bytes, int rank_count) {
  MessageReader reader(bytes);
  RequestList list;
  if (reader.Number<uint32_t>() != kAskMagic) reader.Damage("not a list of requests");
  list.is_ending = reader.Flag();
  const uint32_t ask_count = reader.Count(kAskBytesMin);
  list.asks.reserve(ask_count);
  for (uint32_t i = 0; i < ask_count && reader.is_good(); ++i) {
    list.asks.push_back(ReadAsk(reader, rank_count));
  }
  const uint32_t stalled_count = reader.Count(4);
  for (uint32_t i = 0; i < stalled_count && reader.is_good(); ++i) {
    list.stalled.push_back(reader.Array<std::string>());
  }
  reader.End();
  if (!reader.is_good()) return reader.Failure("requests");
  return list;
}

Result<ResponseList> DecodeResponses(Bytes bytes, int rank_count) {
  MessageReader reader(bytes);
  ResponseList list;
  if (reader.Number<uint32_t>() != kResponseMagic) reader.Damage("not a list of responses");
  list.is_ended = reader.Flag();
  const uint32_t response_count = reader.Count(kResponseBytesMin);
  list.responses.reserve(response_count);
  for (uint32_t i = 0; i < response_count && reader.is_good(); ++i) {
    Response response;
    const uint32_t tensor_count = reader.Count(kRequestBytesMin);
    for (uint32_t k = 0; k < tensor_count && reader.is_good(); ++k) {
      response.tensors.push_back(ReadRequest(reader));
    }
    response.error = reader.Array<std::string>();
    response.rows = reader.Array<std::vector<int64_t>>();
    response.last_joined = reader.Number<int32_t>();
    CheckResponse(reader, response, rank_count);
    list.responses.push_back(std::move(response));
  }
  reader.End();
  if (!reader.is_good()) return reader.Failure("responses");
  return list;
}

}  // namespace lmdbio::sync
