#include "bench/sync/gradient_sync.h"

#include <fmt/format.h>

namespace lmdbio::bench {
namespace {

bool IsSynchronizer(std::string_view name) { return name.starts_with("lmdbio:"); }

}  // namespace

Result<Variant> ParseVariant(const std::string& name) {
  if (name == "none" || name == "mpi" || name == "mpi-fused") return Variant{.name = name};
  if (name == "gloo") return Variant{.name = name, .has_helper = true};
  if (IsSynchronizer(name)) return ParseSynchronizerName(name);
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
