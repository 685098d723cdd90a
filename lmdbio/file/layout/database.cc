#include "lmdbio/file/layout/database.h"

#include <fmt/format.h>

#include "lmdbio/file/layout/cursor.h"

namespace lmdbio::file {

namespace {

// Version 3 keeps the name's terminating zero byte as part of the key.
std::string KeyOfName(DataVersion version, std::string_view name) {
  std::string key(name);
  if (version == DataVersion::k3) key += '\0';
  return key;
}

std::string NameOfKey(DataVersion version, Bytes key) {
  std::string name(reinterpret_cast<const char*>(key.data()), key.size());
  if (version == DataVersion::k3 && name.ends_with('\0')) name.pop_back();
  return name;
}

}  // namespace

Result<Environment> Environment::Open(const ByteSource& source) {
  LMDBIO_TRY(const Snapshot snapshot, TakeSnapshot(source));
  return Environment(PageReader(source, snapshot));
}

Result<Database> Environment::FreeList() const {
  DatabaseRecord record = snapshot().meta.free_list;
  // The free list's record holds environment flags and the page size in the fields for flags and
  // item size.
  record.flags = file::kIntegerKey;
  record.item_bytes = 0;
  Status sound = CheckTree(record, snapshot().page_format, snapshot().meta.last_page);
  if (!sound) {
    return pages_.Corrupt(snapshot().meta.page_no,
                          fmt::format("free list: {}", sound.error().message()));
  }
  return Database(pages_, "", record);
}

Result<Database> Environment::Named(std::string_view name) const {
  const auto where = [&] { return fmt::format("{}: database '{}'", pages_.source().name(), name); };
  Cursor cursor(Main());
  const std::string key_text = KeyOfName(snapshot().page_format.version(), name);
  const Bytes key = std::as_bytes(std::span(key_text));
  LMDBIO_TRY(const bool found, cursor.SeekKey(key));
  // SeekKey stops at the first key that is not less than the name.
  if (!found || !std::ranges::equal(cursor.key(), key)) {
    return Fail(ErrorCode::kNotFound, where() + ": not found");
  }
  if (!cursor.is_named_database()) {
    return Fail(ErrorCode::kInvalidArgument, where() + ": is a record, not a database");
  }
  LMDBIO_TRY(const Bytes bytes, cursor.Value());
  const DatabaseRecord record = LoadDatabaseRecord(bytes);
  // The cursor has checked the size of the record only. Its fields come from the file, and later
  // walks rely on root and depth.
  Status sound = CheckTree(record, snapshot().page_format, snapshot().meta.last_page);
  if (sound) sound = CheckUserFlags(record);
  if (!sound) return Fail(std::move(sound).error().Within(where()));
  return Database(pages_, std::string(name), record);
}

Result<std::vector<std::string>> Environment::Names() const {
  std::vector<std::string> names;
  Cursor cursor(Main());
  LMDBIO_TRY(bool found, cursor.First());
  while (found) {
    if (cursor.is_named_database()) {
      names.push_back(NameOfKey(snapshot().page_format.version(), cursor.key()));
    }
    // NextKey skips duplicates, because the record of a named database never is one.
    LMDBIO_TRY(found, cursor.NextKey());
  }
  return names;
}

}  // namespace lmdbio::file
