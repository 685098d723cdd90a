#include "lmdbio/sync/over_device/stream_order.h"

#include <array>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "lmdbio/device/process_token.h"
#include "lmdbio/sync/over_device/rank_agreement.h"
#include "lmdbio/sync/over_device/stream_orders.h"

namespace lmdbio::sync {
namespace {

struct OrderName {
  OrderKind kind;
  std::string_view name;
};
constexpr std::array kOrderNames{OrderName{OrderKind::kHost, "host"},
                                 OrderName{OrderKind::kEvent, "event"},
                                 OrderName{OrderKind::kMark, "mark"}};

// The same on every rank.
// Errors: kUnsupported  two ranks are of the same process: their orders need nothing but the host
Status CheckProcesses(ranks::Group& group) {
  LMDBIO_TRY(const std::vector<uint64_t> processes, GatherFacts(group, device::ProcessToken()));
  for (size_t rank = 0; rank < processes.size(); ++rank) {
    for (size_t other = 0; other < rank; ++other) {
      if (processes[rank] != processes[other]) continue;
      return Fail(ErrorCode::kUnsupported,
                  fmt::format("ranks {} and {} are threads of one process", other, rank));
    }
  }
  return {};
}

Result<std::unique_ptr<StreamOrder>> MakeBetweenProcesses(ranks::Group& group, device::Device& gpu,
                                                          OrderKind wanted) {
  LMDBIO_TRY_VOID(CheckProcesses(group));
  return wanted == OrderKind::kEvent ? MakeEventOrder(group, gpu) : MakeMarkOrder(group, gpu);
}

}  // namespace

std::string_view NameOf(OrderKind kind) { return kOrderNames[static_cast<size_t>(kind)].name; }

Result<OrderKind> ParseOrder(std::string_view name) {
  std::string names;
  for (const OrderName& order : kOrderNames) {
    if (order.name == name) return order.kind;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", order.name);
  }
  return Fail(ErrorCode::kInvalidArgument,
              fmt::format("no order of streams is called '{}'; there are {}", name, names));
}

Result<StreamOrderChoice> MakeStreamOrder(ranks::Group& group, device::Device& gpu,
                                          OrderKind wanted, std::function<Status()> check) {
  StreamOrderChoice choice;
  if (wanted != OrderKind::kHost) {
    auto made = MakeBetweenProcesses(group, gpu, wanted);
    if (made) {
      choice.order = *std::move(made);
      return choice;
    }
    if (made.error().code() != ErrorCode::kUnsupported) return Fail(std::move(made).error());
    choice.note = fmt::format("streams wait in the order 'host', not '{}': {}", NameOf(wanted),
                              made.error().message());
  }
  LMDBIO_TRY(choice.order, MakeHostOrder(group, gpu, std::move(check)));
  return choice;
}

}  // namespace lmdbio::sync
