#include "bench/sync/gradient_sync.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

namespace lmdbio::bench {
namespace {

constexpr std::string_view kWindow = "+window";
// The variants without windows: they have nothing to wait for, or reduce all gradients together.
constexpr std::array<std::string_view, 4> kPlainNames = {"none", "mpi", "mpi-fused", "gloo"};

bool IsSynchronizer(std::string_view name) { return name.starts_with("lmdbio:"); }

bool IsPlain(std::string_view name) {
  return std::ranges::find(kPlainNames, name) != kPlainNames.end();
}

}  // namespace

Result<Variant> ParseVariant(const std::string& name) {
  if (IsPlain(name)) return Variant{.name = name, .has_helper = name == "gloo"};
  if (IsSynchronizer(name)) return ParseSynchronizerName(name);
  if (name.ends_with(kWindow) && IsPlain(name.substr(0, name.size() - kWindow.size()))) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("variant '{}': '+window' is for lmdbio variants only, because no other "
                            "one can wait for the gradients of one layer",
                            name));
  }
  return Fail(ErrorCode::kInvalidArgument,
              fmt::format("variant '{}' is unknown; expected one of none, mpi, mpi-fused, gloo, "
                          "lmdbio:COORDINATOR[:PACING[:COLLECTIVE[:TRANSPORT]]]",
                          name));
}

// The names of absent variants are valid, so that one command line serves all builds.
std::string WhyAbsent(const Variant& variant) {
#ifndef LMDBIO_BENCH_HAS_GLOO
  if (variant.name == "gloo") return "this build has no Gloo; install libgloo-dev and build again";
#endif
  return variant.name.empty() ? "the variant has no name" : "";
}

Result<std::unique_ptr<GradientSync>> MakeSync(const Variant& variant, const SyncContext& context) {
  if (variant.name == "mpi") return MakeMpiSync(context);
  if (variant.name == "mpi-fused") return MakeFusedMpiSync(context);
  if (IsSynchronizer(variant.name)) return MakeSynchronizerSync(variant.name, context);
  const std::string absence = WhyAbsent(variant);
  if (!absence.empty()) {
    return Fail(ErrorCode::kUnsupported, fmt::format("{}: {}", variant.name, absence));
  }
#ifdef LMDBIO_BENCH_HAS_GLOO
  if (variant.name == "gloo") return MakeGlooSync(context);
#endif
  return Fail(ErrorCode::kInvalidArgument,
              fmt::format("{}: this variant synchronises no gradients", variant.name));
}

}  // namespace lmdbio::bench
