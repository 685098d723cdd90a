#include "tests/sync/control/control_simulator.h"

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <stdexcept>
#include <unordered_map>
#include <utility>

#include "tests/support/random.h"

namespace lmdbio::test {
namespace {

using sync::Coordinator;
using sync::Exchange;
using sync::ExchangeKind;
using sync::ExchangeScope;
using sync::Operation;
using sync::Reply;
using sync::Request;
using sync::Response;

size_t At(int number) { return static_cast<size_t>(number); }

}  // namespace

FakeTransport::FakeTransport(int rank_count, std::vector<int> host_of, int tree_arity)
    : rank_count_(rank_count),
      host_of_(std::move(host_of)),
      tree_arity_(tree_arity),
      counts_(At(rank_count)),
      replies_(At(rank_count)),
      has_reply_(At(rank_count)) {
  if (host_of_.empty()) host_of_.assign(At(rank_count), 0);
  const auto make = [](std::vector<int> members) {
    const size_t count = members.size();
    return PendingExchange{std::move(members), std::vector<Exchange>(count),
                           std::vector<uint8_t>(count), 0};
  };
  std::vector<int> all;
  std::vector<std::vector<int>> hosts;
  std::vector<std::vector<int>> families;
  for (int rank = 0; rank < rank_count; ++rank) {
    const size_t host = At(host_of_[At(rank)]);
    if (host == hosts.size()) {
      hosts.emplace_back();
      families.push_back({rank});
      // The oracle of ParentHost: the first host whose family is not full.
      size_t parent = 0;
      while (tree_arity > 0 && families[parent].size() > At(tree_arity)) ++parent;
      if (host > 0) families[parent].push_back(rank);
      parent_of_.push_back(parent);
    }
    hosts[host].push_back(rank);
    all.push_back(rank);
  }
  all_ = make(all);
  for (auto& host : hosts) hosts_.push_back(make(host));
  for (auto& family : families) families_.push_back(make(family));
}

sync::Ranks FakeTransport::RanksOf(int rank) const {
  return {rank, rank_count_, host_of_, tree_arity_};
}

FakeTransport::PendingExchange& FakeTransport::MeetingOf(int rank, ExchangeScope scope) {
  const size_t host = At(host_of_[At(rank)]);
  if (scope == ExchangeScope::kAll) return all_;
  if (scope == ExchangeScope::kHost) return hosts_[host];
  return families_[scope == ExchangeScope::kChildren ? host : parent_of_[host]];
}

std::string FakeTransport::Post(int rank, Exchange exchange) {
  PendingExchange& meeting = MeetingOf(rank, exchange.scope);
  const auto place = std::ranges::find(meeting.members, rank) - meeting.members.begin();
  if (At(static_cast<int>(place)) == meeting.members.size()) return "no member of the scope";
  const size_t i = At(static_cast<int>(place));
  if (meeting.has_come[i] != 0) return "came twice";
  meeting.has_come[i] = 1;
  meeting.exchanges[i] = std::move(exchange);
  ++waiting_count_;
  if (++meeting.come_count < meeting.members.size()) return "";
  return Hold(meeting);
}

void FakeTransport::Count(const PendingExchange& meeting) {
  const bool is_of_host = meeting.exchanges.front().scope == ExchangeScope::kHost;
  MessageCounts& first = counts_[At(meeting.members.front())];
  (is_of_host ? first.from_host : first.from_children) += meeting.members.size() - 1;
  for (size_t i = 1; i < meeting.members.size(); ++i) {
    ++counts_[At(meeting.members[i])].from_first;
  }
}

std::string FakeTransport::Hold(PendingExchange& meeting) {
  Exchange& first = meeting.exchanges.front();
  std::vector<uint64_t> words = first.words;
  for (const Exchange& exchange : meeting.exchanges) {
    if (exchange.kind != first.kind) return "ranks came to different exchanges";
    if (exchange.words.size() != words.size()) return "ranks brought different numbers of words";
    for (size_t i = 0; i < words.size(); ++i) words[i] &= exchange.words[i];
  }
  for (size_t i = 0; i < meeting.members.size(); ++i) {
    Reply& reply = replies_[At(meeting.members[i])];
    reply = {};
    if (first.kind == ExchangeKind::kIntersect) reply.words = words;
    if (first.kind == ExchangeKind::kBroadcast) reply.bytes = first.bytes;
    if (first.kind == ExchangeKind::kGather && i == 0) {
      for (Exchange& exchange : meeting.exchanges) {
        reply.gathered.push_back(std::move(exchange.bytes));
      }
    }
    has_reply_[At(meeting.members[i])] = 1;
    meeting.has_come[i] = 0;
  }
  if (first.kind != ExchangeKind::kIntersect) Count(meeting);
  waiting_count_ -= static_cast<int>(meeting.come_count);
  meeting.come_count = 0;
  return "";
}

Reply FakeTransport::TakeReply(int rank) {
  has_reply_[At(rank)] = 0;
  return std::move(replies_[At(rank)]);
}

Ensemble::Ensemble(const sync::CoordinatorOptions& options, int rank_count,
                   const std::vector<int>& host_of, int tree_arity)
    : transport_(rank_count, host_of, tree_arity) {
  for (int rank = 0; rank < rank_count; ++rank) {
    auto coordinator = Coordinator::Create(options, transport_.RanksOf(rank));
    if (!coordinator) throw std::runtime_error(coordinator.error().message());
    coordinators_.push_back(std::move(*coordinator));
  }
}

std::vector<Response> Ensemble::Round() {
  const int rank_count = static_cast<int>(coordinators_.size());
  int in_round = 0;
  const auto post = [&](int rank, std::optional<Exchange> exchange) {
    if (!exchange) {
      --in_round;
      return;
    }
    const std::string failure = transport_.Post(rank, std::move(*exchange));
    if (!failure.empty()) throw std::runtime_error(failure);
  };
  for (int rank = 0; rank < rank_count; ++rank) {
    ++in_round;
    post(rank, (*this)[rank].BeginRound());
  }
  while (in_round > 0) {
    bool has_moved = false;
    for (int rank = 0; rank < rank_count; ++rank) {
      if (!transport_.HasReply(rank)) continue;
      has_moved = true;
      auto next = (*this)[rank].Continue(transport_.TakeReply(rank));
      if (!next) throw std::runtime_error(next.error().message());
      post(rank, std::move(*next));
    }
    if (!has_moved) throw std::runtime_error("ranks wait for each other");
  }
  std::vector<Response> responses = (*this)[0].TakeResponses();
  for (int rank = 1; rank < rank_count; ++rank) {
    if ((*this)[rank].TakeResponses() != responses) throw std::runtime_error("ranks differ");
  }
  return responses;
}

namespace {

// ---- the job ----

enum class Change { kShape, kType, kReduceOp, kScale, kOperation };

struct SimulatedTensor {
  std::string name;
  Operation operation = Operation::kAllReduce;
  sync::ReduceOp reduce_op = sync::ReduceOp::kSum;
  int group = -1;
  int first_iteration = 0;
  int shape_changes_at = -1;  // on every rank
  bool rows_vary = false;     // from iteration to iteration
  int root = 0;
  int differs_at = -1;  // one rank makes a different request
  int differs_rank = 0;
  Change change = Change::kShape;
};

struct TensorGroup {
  std::string name;
  int left_out_at = -1;  // one rank submits its tensors without a group
  int left_out_rank = 0;
  bool is_learned = false;  // its tensors are answered alone if a rank submits them without it
};

struct SimulatedJob {
  int rank_count = 1;
  std::vector<int> host_of;
  int iteration_count = 1;   // before all have joined
  int total_count = 1;       // and afterwards
  std::vector<int> batches;  // [ranks] iterations, before it joins
  bool has_join = false;
  std::vector<SimulatedTensor> tensors;
  std::vector<TensorGroup> groups;
};

bool HasBatch(const SimulatedJob& job, int iteration, int rank) {
  return iteration >= job.iteration_count || iteration < job.batches[At(rank)];
}
bool IsChanged(const SimulatedTensor& tensor, int iteration, int rank) {
  return tensor.differs_at == iteration && tensor.differs_rank == rank;
}
bool IsLeftOut(const SimulatedJob& job, const SimulatedTensor& tensor, int iteration, int rank) {
  if (tensor.group < 0) return false;
  const TensorGroup& group = job.groups[At(tensor.group)];
  return group.left_out_at == iteration && group.left_out_rank == rank;
}

uint32_t GroupSize(const SimulatedJob& job, int group, int iteration) {
  uint32_t size = 0;
  for (const SimulatedTensor& tensor : job.tensors) {
    if (tensor.group == group && tensor.first_iteration <= iteration) ++size;
  }
  return size;
}

Request RequestOf(const SimulatedJob& job, const SimulatedTensor& tensor, int iteration, int rank) {
  Request request;
  request.name = tensor.name;
  request.operation = tensor.operation;
  request.reduce_op = tensor.reduce_op;
  const bool has_grown = tensor.shape_changes_at >= 0 && iteration >= tensor.shape_changes_at;
  request.shape = {4, has_grown ? 3 : 2};
  const int shift = tensor.rows_vary ? iteration : 0;
  if (tensor.operation == Operation::kBroadcast) request.root = tensor.root;
  if (tensor.operation == Operation::kAllGather) request.shape[0] = (rank + shift) % 3;
  if (tensor.operation == Operation::kAllToAll) {
    request.shape[0] = 0;
    for (int to = 0; to < job.rank_count; ++to) {
      request.splits.push_back((rank + to + shift) % 3);
      request.shape[0] += request.splits.back();
    }
  }
  if (tensor.operation == Operation::kAdoptPlan) {
    request.extra = {std::byte(tensor.rows_vary ? rank : 7)};
  }
  if (tensor.group >= 0 && !IsLeftOut(job, tensor, iteration, rank)) {
    request.group = job.groups[At(tensor.group)].name;
    request.group_size = GroupSize(job, tensor.group, iteration);
  }
  if (!IsChanged(tensor, iteration, rank)) return request;
  if (tensor.change == Change::kShape) request.shape[1] += 5;
  if (tensor.change == Change::kType) request.type = sync::DataType::kInt64;
  if (tensor.change == Change::kReduceOp) request.reduce_op = sync::ReduceOp::kProduct;
  if (tensor.change == Change::kScale) request.prescale = 0.5;
  if (tensor.change == Change::kOperation) {
    request.operation =
        tensor.operation == Operation::kBarrier ? Operation::kAllReduce : Operation::kBarrier;
  }
  return request;
}

// The response that all ranks must get for a tensor in an iteration.
struct Expected {
  Request tensor;
  bool is_error = false;
  std::vector<int64_t> rows;
};

Expected ExpectedOf(const SimulatedJob& job, const SimulatedTensor& tensor, int iteration) {
  Expected expected;
  std::vector<int> submitters;
  for (int rank = 0; rank < job.rank_count; ++rank) {
    if (HasBatch(job, iteration, rank)) submitters.push_back(rank);
  }
  expected.tensor = RequestOf(job, tensor, iteration, submitters.front());
  const auto count_of = [&](auto holds) {
    return static_cast<size_t>(std::ranges::count_if(submitters, holds));
  };
  const size_t changed = count_of([&](int rank) { return IsChanged(tensor, iteration, rank); });
  const size_t left_out =
      count_of([&](int rank) { return IsLeftOut(job, tensor, iteration, rank); });
  const bool is_parted = left_out > 0 && left_out < submitters.size();
  const bool is_learned = tensor.group >= 0 && job.groups[At(tensor.group)].is_learned;
  expected.is_error = (changed > 0 && changed < submitters.size()) || (is_parted && !is_learned);
  if (is_parted && is_learned) sync::LeaveGroup(expected.tensor);
  const Operation operation = expected.tensor.operation;
  if (submitters.size() < At(job.rank_count)) {
    const bool is_reduction =
        operation == Operation::kAllReduce || operation == Operation::kReduceScatter;
    const bool has_root = std::ranges::count(submitters, expected.tensor.root) > 0;
    if (is_reduction && expected.tensor.reduce_op != sync::ReduceOp::kSum) {
      expected.is_error = true;
    }
    if (operation == Operation::kBroadcast && !has_root) expected.is_error = true;
    if (operation == Operation::kAdoptPlan) expected.is_error = true;
  }
  if (operation == Operation::kAdoptPlan && !expected.is_error) {
    // The merge of the test is the greatest byte.
    for (const int rank : submitters) {
      const Request request = RequestOf(job, tensor, iteration, rank);
      expected.tensor.extra[0] = std::max(expected.tensor.extra[0], request.extra[0]);
    }
  }
  for (int rank = 0; rank < job.rank_count && !expected.is_error; ++rank) {
    const bool has_asked = std::ranges::count(submitters, rank) > 0;
    const Request request = RequestOf(job, tensor, iteration, rank);
    if (operation == Operation::kAllGather) {
      expected.rows.push_back(has_asked ? request.shape[0] : 0);
    }
    for (int to = 0; to < job.rank_count && operation == Operation::kAllToAll; ++to) {
      expected.rows.push_back(has_asked ? request.splits[At(to)] : 0);
    }
  }
  return expected;
}

SimulatedJob RandomJob(Random& random, int rank_count) {
  SimulatedJob job;
  job.rank_count = rank_count;
  int host = 0;
  const uint64_t rarity = 1 + random.Below(3);  // of hosts; 1: each rank has its own
  for (int rank = 0; rank < rank_count; ++rank) {
    job.host_of.push_back(rank == 0 || random.Below(rarity) > 0
                              ? static_cast<int>(random.Below(static_cast<uint64_t>(host) + 1))
                              : ++host);
  }
  const auto any_rank = [&] { return static_cast<int>(random.Below(At(rank_count))); };
  job.iteration_count = 2 + static_cast<int>(random.Below(4));
  const auto any_iteration = [&] {
    return static_cast<int>(random.Below(At(job.iteration_count)));
  };
  job.has_join = random.Below(3) == 0;
  for (int rank = 0; rank < rank_count; ++rank) {
    job.batches.push_back(job.has_join ? 1 + any_iteration() : job.iteration_count);
  }
  job.iteration_count = *std::ranges::max_element(job.batches);
  job.total_count = job.iteration_count + (job.has_join ? static_cast<int>(random.Below(3)) : 0);
  const int group_count = random.Below(3) == 0 ? 1 + static_cast<int>(random.Below(2)) : 0;
  for (int group = 0; group < group_count; ++group) {
    const bool is_learned = random.Below(2) == 0;
    job.groups.push_back({(is_learned ? std::string(sync::kLearnedGroup) : "") +
                              std::string(1, static_cast<char>('g' + group)),
                          random.Below(4) == 0 ? any_iteration() : -1, any_rank(), is_learned});
  }
  const int tensor_count = 1 + static_cast<int>(random.Below(5));
  for (int i = 0; i < tensor_count; ++i) {
    constexpr Operation kOperations[] = {Operation::kAllReduce,     Operation::kBroadcast,
                                         Operation::kAllGather,     Operation::kAllToAll,
                                         Operation::kReduceScatter, Operation::kBarrier,
                                         Operation::kAdoptPlan};
    SimulatedTensor tensor;
    tensor.name = std::string(1, static_cast<char>('a' + i));
    if (random.Below(2) == 0) tensor.operation = kOperations[random.Below(7)];
    if (random.Below(8) == 0) tensor.reduce_op = sync::ReduceOp::kMin;
    if (group_count > 0 && random.Below(2) == 0) {
      tensor.group = static_cast<int>(random.Below(At(group_count)));
      tensor.operation = Operation::kAllReduce;
    }
    if (random.Below(4) == 0) tensor.first_iteration = any_iteration();
    if (random.Below(4) == 0) tensor.shape_changes_at = any_iteration();
    tensor.rows_vary = random.Below(2) == 0;
    tensor.root = any_rank();
    if (random.Below(5) == 0) tensor.differs_at = any_iteration();
    tensor.differs_rank = any_rank();
    tensor.change = static_cast<Change>(random.Below(5));
    job.tensors.push_back(tensor);
  }
  return job;
}

// ---- the run ----

constexpr int kJoinIteration = -1;

struct SimulatedSubmission {
  int iteration = 0;
  const SimulatedTensor* tensor = nullptr;  // null: kJoin
};

struct SimulatedRank {
  std::unique_ptr<Coordinator> coordinator;
  std::deque<SimulatedSubmission> program;
  std::unordered_map<std::string, SimulatedSubmission> under_way;
  std::vector<std::string> order;  // the unanswered names, oldest first
  std::vector<uint64_t> told;      // digests of responses
  uint64_t pace = 1;               // number of turns per submission
  bool is_eager = false;           // begins rounds without need
  bool is_in_round = false;
  bool is_joining = false;
  uint64_t round_count = 0;
  uint64_t join_round = 0;      // the round in which the others learn of its join
  uint64_t rounds_at_last = 0;  // round count when all ranks had submitted everything
};

constexpr const char* kJoinName = "join";
constexpr uint64_t kRoundsMax = 4;       // after the last submission
constexpr uint64_t kTurnsMax = 200'000;  // of a whole job

class SimulatedRun {
 public:
  SimulatedRun(const std::string& kind, int rank_count, uint64_t seed, int tree_arity)
      : random_(seed),
        job_(RandomJob(random_, rank_count)),
        transport_(rank_count, job_.host_of, tree_arity),
        players_(At(rank_count)) {
    sync::CoordinatorOptions options;
    options.kind = kind;
    constexpr uint32_t kCapacities[] = {1024, 0, 1, 2, 3};
    options.cache_capacity = kCapacities[random_.Below(5)];
    options.merge = [](Bytes a, Bytes b) -> Result<std::vector<std::byte>> {
      return std::vector<std::byte>{std::max(a[0], b[0])};
    };
    marks_stalled_ = random_.Below(3) == 0;
    takes_back_ = random_.Below(4) == 0;
    const bool are_learned =
        std::ranges::all_of(job_.groups, [](const TensorGroup& group) { return group.is_learned; });
    releases_ = are_learned && random_.Below(2) == 0;
    const bool all_eager = random_.Below(2) == 0;
    for (int rank = 0; rank < rank_count; ++rank) {
      SimulatedRank& player = players_[At(rank)];
      auto coordinator = Coordinator::Create(options, transport_.RanksOf(rank));
      if (!coordinator) throw std::runtime_error(coordinator.error().message());
      player.coordinator = std::move(*coordinator);
      player.pace = 1 + random_.Below(6);
      player.is_eager = all_eager || random_.Below(4) == 0;
      WriteProgram(rank);
    }
    for (const SimulatedTensor& tensor : job_.tensors) {
      for (int i = tensor.first_iteration; i < job_.total_count; ++i) {
        expected_.emplace(std::pair(tensor.name, i), ExpectedOf(job_, tensor, i));
      }
    }
  }

  std::string Go() {
    for (uint64_t turn = 0; !IsDone(); ++turn) {
      if (turn > kTurnsMax) return "hangs: " + Lacks();
      Turn(static_cast<int>(random_.Below(players_.size())));
      if (!failure_.empty()) return failure_;
    }
    if (const std::string failure = Ending(); !failure.empty()) return failure;
    for (const SimulatedRank& player : players_) {
      if (player.told != players_.front().told) return "ranks were told different things";
    }
    // Every operation of every iteration once, and nothing else.
    if (players_.front().told.size() != expected_.size() + (job_.has_join ? 1 : 0)) {
      return "ranks were told more or less than they asked for";
    }
    return "";
  }

 private:
  void WriteProgram(int rank) {
    SimulatedRank& player = players_[At(rank)];
    for (int i = 0; i < job_.total_count; ++i) {
      if (i == job_.iteration_count) player.program.push_back({kJoinIteration, nullptr});
      if (!HasBatch(job_, i, rank)) continue;
      const size_t begin = player.program.size();
      for (const SimulatedTensor& tensor : job_.tensors) {
        if (tensor.first_iteration <= i) player.program.push_back({i, &tensor});
      }
      for (size_t k = player.program.size(); k > begin + 1; --k) {
        std::swap(player.program[k - 1], player.program[begin + random_.Below(k - begin)]);
      }
    }
    if (job_.has_join && job_.total_count == job_.iteration_count) {
      player.program.push_back({kJoinIteration, nullptr});
    }
  }

  void Turn(int rank) {
    SimulatedRank& player = players_[At(rank)];
    if (random_.Below(player.pace) == 0) SubmitSome(rank);
    if (marks_stalled_ && random_.Below(16) == 0) player.coordinator->MarkStalled(player.order);
    if (transport_.HasReply(rank)) {
      auto next = player.coordinator->Continue(transport_.TakeReply(rank));
      if (!next) return Fail("rank " + std::to_string(rank) + ": " + next.error().message());
      return Post(rank, std::move(*next));
    }
    if (player.is_in_round) return;
    if (releases_ && random_.Below(8) == 0) {
      for (const TensorGroup& group : job_.groups) {
        static_cast<void>(player.coordinator->ReleaseHeld(group.name));
        if (player.coordinator->ReleaseHeld(group.name)) Fail("a group is still held");
      }
    }
    if (takes_back_ && !is_ending_ && random_.Below(8) == 0) TakeBack();
    const bool is_rung = is_ending_ && transport_.is_anybody_waiting();
    if (!player.coordinator->has_pending() && !player.is_eager && !is_rung) return;
    if (!player.coordinator->has_pending() && random_.Below(4) != 0) return;
    player.is_in_round = true;
    ++player.round_count;
    if (player.is_joining && player.join_round == 0) player.join_round = player.round_count;
    Post(rank, player.coordinator->BeginRound());
  }

  void Post(int rank, std::optional<Exchange> exchange) {
    if (exchange) {
      if (std::string failure = transport_.Post(rank, std::move(*exchange)); !failure.empty()) {
        Fail(failure);
      }
      return;
    }
    SimulatedRank& player = players_[At(rank)];
    player.is_in_round = false;
    const std::vector<Response> responses = player.coordinator->TakeResponses();
    for (const Response& response : responses) Take(rank, response);
    CheckGroups(responses);
    if (has_rounds_left_ && !releases_ && !player.under_way.empty() &&
        player.round_count > player.rounds_at_last + kRoundsMax) {
      Fail("needs too many rounds: " + Lacks());
    }
  }

  void SubmitSome(int rank) {
    SimulatedRank& player = players_[At(rank)];
    for (uint64_t count = 1 + random_.Below(4); count > 0 && !player.program.empty(); --count) {
      const SimulatedSubmission next = player.program.front();
      const std::string name = next.tensor == nullptr ? kJoinName : next.tensor->name;
      if (player.under_way.contains(name) || player.is_joining) return;
      player.program.pop_front();
      Submit(rank, name, next);
    }
    if (has_rounds_left_ || !AllSubmitted()) return;
    has_rounds_left_ = true;
    for (SimulatedRank& each : players_) each.rounds_at_last = each.round_count + 1;
  }

  void Submit(int rank, const std::string& name, const SimulatedSubmission& submission) {
    SimulatedRank& player = players_[At(rank)];
    player.under_way.emplace(name, submission);
    player.order.push_back(name);
    Request request;
    if (submission.tensor == nullptr) {
      player.is_joining = true;
      player.join_round = 0;
      request.name = name;
      request.operation = Operation::kJoin;
    } else {
      request = RequestOf(job_, *submission.tensor, submission.iteration, rank);
    }
    player.coordinator->Submit(std::move(request));
  }

  void Take(int rank, const Response& response) {
    SimulatedRank& player = players_[At(rank)];
    player.told.push_back(response.digest());
    if (response.tensors.size() != 1) return Fail("a response with several tensors");
    const Request& tensor = response.tensors.front();
    const auto found = player.under_way.find(tensor.name);
    if (found == player.under_way.end()) {
      if (!player.is_joining) Fail("told of '" + tensor.name + "', which was not submitted");
      return;
    }
    const SimulatedSubmission submission = found->second;
    player.under_way.erase(found);
    std::erase(player.order, tensor.name);
    if (submission.tensor == nullptr) return TakeJoin(rank, response);
    const Expected& expected = expected_.at({tensor.name, submission.iteration});
    if (response.error.empty() == expected.is_error) {
      return Fail("'" + tensor.name + "' fails or should: " + response.error);
    }
    if (expected.is_error && response.error.find("'" + tensor.name + "'") == std::string::npos) {
      return Fail("an error that names no tensor: " + response.error);
    }
    Request wanted = expected.tensor;
    if (releases_ && tensor.group.empty()) sync::LeaveGroup(wanted);  // some rank has released it
    if (expected.is_error) wanted.group_size = tensor.group_size;     // size of the rest of a group
    if (tensor != wanted) Fail("'" + tensor.name + "' is not what rank 0 asked for");
    if (response.rows != expected.rows) Fail("'" + tensor.name + "' has other rows");
  }

  // Tensors of one group are consecutive, and complete unless some fail.
  void CheckGroups(const std::vector<Response>& responses) {
    if (releases_) return;
    const auto group_at = [&](size_t i) { return responses[i].tensors.front().group; };
    for (size_t i = 0; i < responses.size(); ++i) {
      if (group_at(i).empty() || !responses[i].error.empty()) continue;
      size_t begin = i;
      size_t end = i + 1;
      while (begin > 0 && group_at(begin - 1) == group_at(i)) --begin;
      while (end < responses.size() && group_at(end) == group_at(i)) ++end;
      if (end - begin < responses[i].tensors.front().group_size) {
        return Fail("group '" + group_at(i) + "' is parted");
      }
    }
  }

  void TakeJoin(int rank, const Response& response) {
    SimulatedRank& player = players_[At(rank)];
    player.is_joining = false;
    int last = 0;
    for (int other = 0; other < job_.rank_count; ++other) {
      if (players_[At(other)].join_round >= players_[At(last)].join_round) last = other;
    }
    if (response.last_joined != last) Fail("another rank has joined last");
    if (!player.under_way.empty()) Fail("joined before all was done");
  }

  // If all ranks are after the same round, they take back their requests and submit them again.
  void TakeBack() {
    for (const SimulatedRank& player : players_) {
      if (player.is_in_round || player.round_count != players_.front().round_count) return;
    }
    for (int rank = 0; rank < job_.rank_count; ++rank) {
      SimulatedRank& player = players_[At(rank)];
      const std::vector<Request> taken = player.coordinator->TakePending();
      if (player.coordinator->has_pending()) Fail("something is left");
      if (taken.size() != player.order.size()) return Fail("took back another number");
      for (size_t i = 0; i < taken.size(); ++i) {
        if (taken[i].name != player.order[i]) return Fail("took back in another order");
      }
      for (Request request : taken) {
        if (request.operation == Operation::kJoin) player.join_round = 0;
        if (releases_ && IsInLearnedGroup(request)) LeaveGroup(request);
        player.coordinator->Submit(request);
      }
      player.rounds_at_last = std::max(player.rounds_at_last, player.round_count + 1);
    }
  }

  // One rank ends; all ranks learn it in the next round.
  std::string Ending() {
    is_ending_ = true;
    const int ending = static_cast<int>(random_.Below(players_.size()));
    SimulatedRank& player = players_[At(ending)];
    player.coordinator->End();
    if (!player.coordinator->has_pending()) return "nothing to do before the end";
    for (uint64_t turn = 0;; ++turn) {
      if (turn > kTurnsMax) return "hangs at the end";
      if (std::ranges::all_of(players_, [](const SimulatedRank& each) {
            return each.coordinator->is_ended() && !each.is_in_round;
          })) {
        return "";
      }
      const int rank = static_cast<int>(random_.Below(players_.size()));
      if (players_[At(rank)].coordinator->is_ended() && !players_[At(rank)].is_in_round) continue;
      Turn(rank);
      if (!failure_.empty()) return failure_;
    }
  }

  bool AllSubmitted() const {
    return std::ranges::all_of(players_,
                               [](const SimulatedRank& each) { return each.program.empty(); });
  }
  bool IsDone() const {
    return std::ranges::all_of(players_, [](const SimulatedRank& each) {
      return each.program.empty() && each.under_way.empty();
    });
  }
  std::string Lacks() const {
    std::string text;
    for (size_t rank = 0; rank < players_.size(); ++rank) {
      text += "rank " + std::to_string(rank) + " waits for";
      for (const std::string& name : players_[rank].order) text += " " + name;
      text += ", has " + std::to_string(players_[rank].program.size()) + " to submit; ";
    }
    return text;
  }
  void Fail(const std::string& text) {
    if (failure_.empty()) failure_ = text;
  }

  Random random_;
  SimulatedJob job_;
  FakeTransport transport_;
  std::vector<SimulatedRank> players_;
  std::map<std::pair<std::string, int>, Expected> expected_;
  bool marks_stalled_ = false;
  bool takes_back_ = false;
  bool releases_ = false;         // ranks release learned groups, now and then
  bool has_rounds_left_ = false;  // everything has been submitted
  bool is_ending_ = false;
  std::string failure_;
};

}  // namespace

std::string Simulate(const std::string& kind, int rank_count, uint64_t seed, int tree_arity) {
  return SimulatedRun(kind, rank_count, seed, tree_arity).Go();
}

}  // namespace lmdbio::test
