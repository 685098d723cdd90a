// tests/fuzz/rounds_fuzz.cc - rounds of a coordinator whose other ranks answer anything.
//
// Input: the kind of coordinator, the ranks and hosts, and the rank that is tried; then what it
// submits, and the answer to each of its exchanges. An answer is either any bytes or a list of
// requests or responses made from them, so that it reaches the tables behind the decoders.
// Oracle: the sanitizers; a round ends or fails with one line; the responses that rank 0 makes of
// requests of other ranks are such that these ranks can decode them. The exchanges of a round and
// its memory are bounded by the input.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lmdbio/sync/control/coordinator.h"
#include "lmdbio/sync/control/rank_topology.h"
#include "lmdbio/sync/graph/plan_proposal.h"
#include "lmdbio/sync/request/message_codec.h"
#include "tests/fuzz/decode_check.h"
#include "tests/fuzz/input_parts.h"

namespace lmdbio::test {
namespace {

using sync::Exchange;
using sync::ExchangeKind;
using sync::Request;

constexpr int kRoundsMax = 12;
constexpr int kExchangesMax = 6;  // of a round, by docs/coordinators.md

// One of a few names, so that ranks ask for the same tensors.
std::string NameFrom(InputParts& in) {
  return std::string(1, static_cast<char>('a' + in.TakeBelow(6)));
}

Request RequestFrom(InputParts& in, uint64_t rank_count) {
  Request request;
  request.name = NameFrom(in);
  request.operation = static_cast<sync::Operation>(1 + in.TakeBelow(8));
  request.type = in.TakeBelow(4) == 0 ? sync::DataType::kInt64 : sync::DataType::kFloat32;
  request.reduce_op = in.TakeBelow(8) == 0 ? sync::ReduceOp::kMax : sync::ReduceOp::kSum;
  const uint64_t dimension_count = in.TakeBelow(3);
  request.shape.assign(dimension_count, in.Take<int8_t>());
  request.root = static_cast<int32_t>(in.TakeBelow(rank_count + 1));
  if (request.operation == sync::Operation::kAllToAll) {
    const uint64_t split_count = in.TakeBelow(rank_count + 2);
    request.splits.assign(split_count, static_cast<int64_t>(in.TakeBelow(4)));
  }
  if (in.TakeBelow(4) == 0) {
    request.group = NameFrom(in);
    request.group_size = static_cast<uint32_t>(1 + in.TakeBelow(3));
  }
  if (in.TakeBelow(4) == 0) request.postscale = in.Take<double>();
  if (request.operation == sync::Operation::kAdoptPlan) {
    const Bytes extra = in.TakeShort();
    request.extra.assign(extra.begin(), extra.end());
  }
  return request;
}

std::vector<std::byte> RequestsFrom(InputParts& in, uint64_t rank_count) {
  sync::RequestList list;
  list.is_ending = in.TakeBelow(32) == 1;
  for (uint64_t i = in.TakeBelow(6); i > 0; --i) {
    sync::RequestEntry ask;
    ask.request = RequestFrom(in, rank_count);
    const auto first = static_cast<int32_t>(in.TakeBelow(rank_count));
    ask.ranks.push_back(first);
    if (in.TakeBelow(4) == 0) ask.ranks.push_back(first + 1);
    ask.group_digest = ask.request.group.empty() ? 0 : 1 + in.TakeBelow(2);
    list.asks.push_back(std::move(ask));
  }
  for (uint64_t i = in.TakeBelow(3); i > 0; --i) list.stalled.push_back(NameFrom(in));
  return Encode(list);
}

std::vector<std::byte> ResponsesFrom(InputParts& in, uint64_t rank_count) {
  sync::ResponseList list;
  list.is_ended = in.TakeBelow(32) == 1;
  for (uint64_t i = in.TakeBelow(6); i > 0; --i) {
    sync::Response response;
    for (uint64_t k = 1 + in.TakeBelow(2); k > 0; --k) {
      response.tensors.push_back(RequestFrom(in, rank_count));
    }
    if (in.TakeBelow(4) == 0) response.error = "it failed";
    const sync::Operation operation = response.tensors.front().operation;
    if (operation == sync::Operation::kAllGather) response.rows.assign(rank_count, 1);
    if (operation == sync::Operation::kAllToAll) {
      response.rows.assign(rank_count * rank_count, static_cast<int64_t>(in.TakeBelow(3)));
    }
    if (operation == sync::Operation::kJoin) response.last_joined = 0;
    list.responses.push_back(std::move(response));
  }
  return Encode(list);
}

// The answer of the other ranks to an exchange. This rank sees its own message unchanged, as in a
// real exchange.
class ForeignRanks {
 public:
  ForeignRanks(const sync::RankTopology& layout, InputParts& in) : layout_(layout), in_(in) {}

  sync::Reply Answer(Exchange exchange) {
    const std::vector<int>& members = layout_.Members(exchange.scope);
    const bool is_first = members.front() == layout_.rank();
    sync::Reply reply;
    if (exchange.kind == ExchangeKind::kIntersect) {
      reply.words = std::move(exchange.words);
      // Usually a subset of the own words, as the transport makes it.
      for (uint64_t& word : reply.words) word &= ~uint64_t{in_.Take<uint16_t>()};
      if (in_.TakeBelow(16) == 1) reply.words.push_back(in_.Take<uint64_t>());
    } else if (exchange.kind == ExchangeKind::kBroadcast) {
      reply.bytes = is_first ? std::move(exchange.bytes) : Message(ResponsesFrom);
    } else if (is_first) {
      for (const int member : members) {
        reply.gathered.push_back(member == layout_.rank() ? exchange.bytes : Message(RequestsFrom));
      }
      if (in_.TakeBelow(32) == 1) reply.gathered.pop_back();
    }
    return reply;
  }

 private:
  template <typename Make>
  std::vector<std::byte> Message(const Make& make) {
    if (in_.TakeBelow(8) != 1) return make(in_, static_cast<uint64_t>(layout_.size()));
    const Bytes any = in_.TakeLong();
    return {any.begin(), any.end()};
  }

  const sync::RankTopology& layout_;
  InputParts& in_;
};

class TriedRank {
 public:
  TriedRank(std::unique_ptr<sync::Coordinator> coordinator, const sync::RankTopology& layout)
      : coordinator_(std::move(coordinator)), layout_(layout) {}

  // Submits what a program may submit: each name once until it is answered.
  void Submit(InputParts& in) {
    for (uint64_t i = in.TakeBelow(4); i > 0 && !has_joined_; --i) {
      Request request = RequestFrom(in, static_cast<uint64_t>(layout_.size()));
      const bool is_in_flight = std::ranges::find(in_flight_, request.name) != in_flight_.end();
      if (is_in_flight || request.operation == sync::Operation::kAdoptPlan) continue;
      has_joined_ = request.operation == sync::Operation::kJoin;
      if (has_joined_) request.group.clear();
      if (!has_joined_) in_flight_.push_back(request.name);
      if (!request.group.empty()) in_groups_.push_back(request.name);
      coordinator_->Submit(std::move(request));
    }
    if (in.TakeBelow(8) == 1) coordinator_->MarkStalled({NameFrom(in)});
    if (in.TakeBelow(8) == 1) coordinator_->ReleaseHeld(NameFrom(in));
    if (in.TakeBelow(32) == 1) coordinator_->End();
  }

  // False after a failure, which ends the synchronizer.
  bool Round(ForeignRanks& others) {
    std::optional<Exchange> exchange = coordinator_->BeginRound();
    for (int count = 0; exchange; ++count) {
      LMDBIO_CHECK(count < kExchangesMax);
      CheckBroadcast(*exchange);
      auto next = coordinator_->Continue(others.Answer(std::move(*exchange)));
      if (!next) {
        CheckMessage(next.error());
        return false;
      }
      exchange = std::move(*next);
    }
    for (const sync::Response& response : coordinator_->TakeResponses()) Answered(response);
    for (const sync::Stall& stall : coordinator_->Stalls()) LMDBIO_CHECK(!stall.name.empty());
    return !coordinator_->is_ended();
  }

 private:
  // The decoders of the other ranks must accept the answers of this one.
  void CheckBroadcast(const Exchange& exchange) const {
    const bool is_mine = layout_.rank() == 0 && exchange.kind == ExchangeKind::kBroadcast;
    if (is_mine) LMDBIO_CHECK(sync::DecodeResponses(exchange.bytes, layout_.size()).has_value());
  }

  void Answered(const sync::Response& response) {
    for (const Request& tensor : response.tensors) {
      if (tensor.operation == sync::Operation::kJoin) {
        has_joined_ = false;  // a join has no name
        continue;
      }
      // A forged response may name a tensor that is held until its group is complete.
      const bool is_in_group = std::ranges::find(in_groups_, tensor.name) != in_groups_.end();
      if (!is_in_group) std::erase(in_flight_, tensor.name);
    }
  }

  std::unique_ptr<sync::Coordinator> coordinator_;
  const sync::RankTopology& layout_;
  std::vector<std::string> in_flight_;  // submitted, and not answered
  std::vector<std::string> in_groups_;  // submitted once in a group, and never again
  bool has_joined_ = false;
};

// Up to 5 ranks on up to 3 hosts.
sync::Ranks RanksFrom(InputParts& in) {
  sync::Ranks ranks;
  ranks.size = static_cast<int>(2 + in.TakeBelow(4));
  ranks.rank = static_cast<int>(in.TakeBelow(static_cast<uint64_t>(ranks.size)));
  const auto ranks_per_host = static_cast<int>(1 + in.TakeBelow(4));
  for (int rank = 0; rank < ranks.size; ++rank) ranks.host_of.push_back(rank / ranks_per_host);
  ranks.tree_arity = static_cast<int>(in.TakeBelow(3));
  return ranks;
}

void RunRounds(InputParts in) {
  constexpr const char* kKinds[] = {"horovod", "cache", "hierarchical"};
  sync::CoordinatorOptions options;
  options.kind = kKinds[in.TakeBelow(std::size(kKinds))];
  options.cache_capacity = static_cast<uint32_t>(in.TakeBelow(4));
  if (in.TakeBelow(2) == 0) options.merge = sync::MergeProposals;
  const sync::Ranks ranks = RanksFrom(in);
  const auto layout = sync::RankTopology::Create(ranks);
  auto coordinator = sync::Coordinator::Create(options, ranks);
  LMDBIO_CHECK(layout.has_value() && coordinator.has_value());
  ForeignRanks others(*layout, in);
  TriedRank tried(std::move(*coordinator), *layout);
  for (int round = 0; round < kRoundsMax && !in.at_end(); ++round) {
    tried.Submit(in);
    if (!tried.Round(others)) return;
  }
}

}  // namespace
}  // namespace lmdbio::test

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lmdbio;
  test::RunRounds(test::InputParts(std::as_bytes(std::span(data, size))));
  return 0;
}
