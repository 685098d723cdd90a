#include "lmdbio/sync/over_device/stream_order.h"

#include <array>
#include <utility>

#include <fmt/format.h>

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
    choice.note =
        fmt::format("the order '{}' of streams is not built; 'host' is used", NameOf(wanted));
  }
  LMDBIO_TRY(choice.order, MakeHostOrder(group, gpu, std::move(check)));
  return choice;
}

}  // namespace lmdbio::sync
