#include "lmdbio/file/provenance/fingerprint.h"

#include <bit>

#include <fmt/format.h>
#include <xxhash.h>

namespace lmdbio::file {
namespace {

constexpr uint32_t kNameBytesMax = 4096;

// Hashes the bytes without parsing them: any difference, damage included, shows as another hash.
// All pages are read at once, because each read of remote storage takes a millisecond.
Result<std::vector<uint64_t>> HashPages(const PageReader& pages, std::span<const PageNo> page_nos) {
  const uint64_t page_bytes = pages.page_format().page_size_bytes();
  std::vector<std::byte> buffer(page_nos.size() * page_bytes);
  std::vector<ReadRequest> requests;
  for (const PageNo page_no : page_nos) {
    LMDBIO_TRY_VOID(pages.CheckPageNo(page_no));
    requests.push_back({page_no.value * page_bytes,
                        MutableBytes(buffer).subspan(requests.size() * page_bytes, page_bytes)});
  }
  LMDBIO_TRY_VOID(pages.source().ReadMany(requests).map_error(
      [&](Error&& error) { return std::move(error).Within(pages.source().name()); }));
  std::vector<uint64_t> hashes;
  hashes.reserve(requests.size());
  for (const ReadRequest& request : requests) {
    hashes.push_back(XXH64(request.destination.data(), page_bytes, 0));
  }
  return hashes;
}

Status Compare(const Database& database, std::string_view field, uint64_t recorded,
               uint64_t actual) {
  if (recorded == actual) return {};
  return Fail(ErrorCode::kStale,
              fmt::format("{}: {} is {}, the provenance file was made for {}",
                          database.pages().source().name(), field, actual, recorded));
}

}  // namespace

Result<Fingerprint> TakeFingerprint(const Database& database, std::span<const PageNo> leaves) {
  const Snapshot& snapshot = database.pages().snapshot();
  Fingerprint fingerprint;
  fingerprint.page_format = snapshot.page_format;
  fingerprint.file_size_bytes = snapshot.file_size_bytes;
  fingerprint.transaction_id = snapshot.meta.transaction_id;
  fingerprint.last_page = snapshot.meta.last_page;
  fingerprint.record = database.record();
  fingerprint.database_name = database.name();
  const size_t count = std::min(leaves.size(), kSamplesMax);
  std::vector<PageNo> sampled;
  for (size_t i = 0; i < count; ++i) {
    // The first and the last leaf, and the others evenly between them.
    sampled.push_back(leaves[count == 1 ? 0 : i * (leaves.size() - 1) / (count - 1)]);
  }
  LMDBIO_TRY(const std::vector<uint64_t> hashes, HashPages(database.pages(), sampled));
  for (size_t i = 0; i < count; ++i) fingerprint.samples.push_back({sampled[i], hashes[i]});
  return fingerprint;
}

Status CheckFingerprint(const Fingerprint& fingerprint, const Database& database) {
  const Snapshot& snapshot = database.pages().snapshot();
  if (fingerprint.database_name != database.name()) {
    return Fail(
        ErrorCode::kStale,
        fmt::format("{}: database name is '{}', the provenance file was made for '{}'",
                    database.pages().source().name(), database.name(), fingerprint.database_name));
  }
  const DatabaseRecord& then = fingerprint.record;
  const DatabaseRecord& now = database.record();
  struct FingerprintField {
    std::string_view name;
    uint64_t recorded, actual;
  };
  // The first difference is reported. So the transaction stands before the counters that it
  // changes. The hashes cost reads and come last.
  const FingerprintField fields[] = {
      {"data version", static_cast<uint64_t>(fingerprint.page_format.version()),
       static_cast<uint64_t>(snapshot.page_format.version())},
      {"page size", fingerprint.page_format.page_size_bytes(),
       snapshot.page_format.page_size_bytes()},
      {"transaction id", fingerprint.transaction_id, snapshot.meta.transaction_id},
      {"entry count", then.entry_count, now.entry_count},
      {"root page", then.root.value, now.root.value},
      {"last page", fingerprint.last_page.value, snapshot.meta.last_page.value},
      {"file size", fingerprint.file_size_bytes, snapshot.file_size_bytes},
      {"tree depth", then.depth, now.depth},
      {"flags", then.flags, now.flags},
      {"branch page count", then.branch_pages, now.branch_pages},
      {"leaf page count", then.leaf_pages, now.leaf_pages},
      {"overflow page count", then.overflow_pages, now.overflow_pages},
  };
  for (const FingerprintField& field : fields) {
    LMDBIO_TRY_VOID(Compare(database, field.name, field.recorded, field.actual));
  }
  std::vector<PageNo> sampled;
  for (const LeafSample& sample : fingerprint.samples) sampled.push_back(sample.page);
  LMDBIO_TRY(const std::vector<uint64_t> hashes, HashPages(database.pages(), sampled));
  for (size_t i = 0; i < sampled.size(); ++i) {
    LMDBIO_TRY_VOID(Compare(database, fmt::format("hash of leaf page {}", sampled[i].value),
                            fingerprint.samples[i].hash, hashes[i]));
  }
  return {};
}

void EncodeFingerprint(const Fingerprint& fingerprint, ByteWriter& out) {
  const DatabaseRecord& record = fingerprint.record;
  out.Put(static_cast<uint32_t>(fingerprint.page_format.version()));
  out.Put(fingerprint.page_format.page_size_bytes());
  out.Put(fingerprint.file_size_bytes);
  out.Put(fingerprint.transaction_id);
  out.Put(fingerprint.last_page.value);
  out.Put(record.item_bytes);
  out.Put(record.flags);
  out.Put(record.depth);
  out.Put(record.branch_pages);
  out.Put(record.leaf_pages);
  out.Put(record.overflow_pages);
  out.Put(record.entry_count);
  out.Put(record.root.value);
  out.Put(static_cast<uint32_t>(fingerprint.database_name.size()));
  out.Put(static_cast<uint32_t>(fingerprint.samples.size()));
  out.PutString(fingerprint.database_name);
  for (const LeafSample& sample : fingerprint.samples) {
    out.Put(sample.page.value);
    out.Put(sample.hash);
  }
}

Result<Fingerprint> DecodeFingerprint(ByteReader& in) {
  const auto corrupt = [](std::string_view what) {
    return Fail(ErrorCode::kCorruption, fmt::format("fingerprint: {}", what));
  };
  Fingerprint fingerprint;
  const uint32_t version = in.Get<uint32_t>();
  const uint32_t page_bytes = in.Get<uint32_t>();
  if (version != static_cast<uint32_t>(DataVersion::k1) &&
      version != static_cast<uint32_t>(DataVersion::k3)) {
    return corrupt(fmt::format("data version {} is unknown", version));
  }
  if (!std::has_single_bit(page_bytes) || page_bytes < file::kPageBytesMin ||
      page_bytes > file::kPageBytesMax) {
    return corrupt(fmt::format("page size {} is invalid", page_bytes));
  }
  fingerprint.page_format = PageFormat(static_cast<DataVersion>(version), page_bytes);
  fingerprint.file_size_bytes = in.Get<uint64_t>();
  fingerprint.transaction_id = in.Get<uint64_t>();
  fingerprint.last_page = PageNo{in.Get<uint64_t>()};
  DatabaseRecord& record = fingerprint.record;
  record.item_bytes = in.Get<uint32_t>();
  record.flags = in.Get<uint16_t>();
  record.depth = in.Get<uint16_t>();
  record.branch_pages = in.Get<uint64_t>();
  record.leaf_pages = in.Get<uint64_t>();
  record.overflow_pages = in.Get<uint64_t>();
  record.entry_count = in.Get<uint64_t>();
  record.root = PageNo{in.Get<uint64_t>()};
  const uint32_t name_bytes = in.Get<uint32_t>();
  const uint32_t sample_count = in.Get<uint32_t>();
  if (!in.ok() || name_bytes > kNameBytesMax || sample_count > kSamplesMax) {
    return corrupt("impossible lengths");
  }
  fingerprint.database_name = in.GetString(name_bytes);
  for (uint32_t i = 0; i < sample_count; ++i) {
    const PageNo page{in.Get<uint64_t>()};
    fingerprint.samples.push_back({page, in.Get<uint64_t>()});
  }
  if (!in.ok()) return corrupt("ends early");
  return fingerprint;
}

}  // namespace lmdbio::file
