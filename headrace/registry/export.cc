// SPDX-License-Identifier: Apache-2.0
// Export and import of chosen versions as one tar; docs/formats/export.md.
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <map>

#include "headrace/registry/fault.h"
#include "headrace/registry/import.h"
#include "headrace/registry/limits.h"
#include "headrace/registry/mapping.h"
#include "headrace/registry/tar.h"
#include "headrace/registry/version_json.h"

namespace headrace::registry {

namespace {

constexpr std::string_view kExportFormat = "headrace-export/1";
constexpr int64_t kManifestBytesMax = int64_t{1} << 30;
constexpr size_t kRowsPerTransaction = 256;
constexpr size_t kCopyBytes = 1 << 20;

Result<void> write_entry(int fd, const TarEntry& entry, std::span<const std::byte> bytes,
                         const Path& file) {
  const TarBlock header = tar_header(entry);
  HR_TRY(base::write_all(fd, std::string_view(header.data(), header.size()), file));
  HR_TRY(base::write_all(fd, bytes, file));
  return base::write_all(fd, std::string(static_cast<size_t>(tar_padding(entry.bytes)), '\0'),
                         file);
}

/// Reads a tar from front to back, counting.
class TarStream {
 public:
  static Result<TarStream> open(const Path& file) {
    HR_TRY(auto fd, base::open_file(file, O_RDONLY));
    return TarStream(std::move(fd), file);
  }

  Result<std::optional<TarEntry>> next() {
    HR_TRY(skip(padding_));
    TarBlock block;
    HR_TRY(read_exactly(std::as_writable_bytes(std::span(block))));
    HR_TRY(auto entry, parse_tar_header(block, kFileBytesMax));
    if (entry) {
      padding_ = tar_padding(entry->bytes);
    }
    return entry;
  }

  int64_t position() const { return total_; }

  /// Go back to the content of an entry that was read before.
  Result<void> seek(int64_t position) {
    if (::lseek(fd_.get(), position, SEEK_SET) != position) {
      return errno_error(errno, "going back in " + file_.string());
    }
    total_ = position;
    return {};
  }

  Result<void> read_exactly(std::span<std::byte> out) {
    total_ += static_cast<int64_t>(out.size());
    if (total_ > kExportBytesMax) {
      return Error{Errc::corrupt, "registry: " + file_.string() + " is larger than " +
                                      std::to_string(kExportBytesMax) + " bytes"};
    }
    while (!out.empty()) {
      const ssize_t count = ::read(fd_.get(), out.data(), out.size());
      if (count < 0 && errno == EINTR) {
        continue;
      }
      if (count < 0) {
        return errno_error(errno, "reading " + file_.string());
      }
      if (count == 0) {
        return Error{Errc::corrupt,
                     "registry: " + file_.string() + " ends in the middle of an entry; it was cut"};
      }
      out = out.subspan(static_cast<size_t>(count));
    }
    return {};
  }

 private:
  TarStream(base::Fd fd, Path file) : fd_(std::move(fd)), file_(std::move(file)) {}
  Result<void> skip(int64_t bytes) {
    std::vector<std::byte> rest(static_cast<size_t>(bytes));
    return read_exactly(rest);
  }

  base::Fd fd_;
  Path file_;
  int64_t padding_ = 0;
  int64_t total_ = 0;
};

struct Manifest {
  std::vector<ForeignVersion> versions;
  std::map<std::string, int64_t> objects;  // hash to size
};

Result<Manifest> read_manifest(TarStream* tar) {
  HR_TRY(const auto entry, tar->next());
  if (!entry || entry->name != "manifest.json" || entry->bytes > kManifestBytesMax) {
    return Error{Errc::corrupt,
                 "registry: the file does not begin with manifest.json: it is no "
                 "export of headrace"};
  }
  std::string text(static_cast<size_t>(entry->bytes), '\0');
  HR_TRY(tar->read_exactly(std::as_writable_bytes(std::span(text))));
  HR_TRY(const Json json, parse_json(text, "manifest.json", {.depth_max = 64}));
  if (json.get_string("format") != kExportFormat) {
    return Error{Errc::unsupported, "registry: the export has format " +
                                        json_quote(json.get_string("format")) +
                                        "; this headrace reads " + std::string(kExportFormat)};
  }
  const Json* versions = json.find("versions");
  if (versions == nullptr || !versions->is_array()) {
    return Error{Errc::corrupt, "registry: manifest.json has no list of versions"};
  }
  Manifest manifest;
  for (const Json& row : versions->items()) {
    HR_TRY(auto foreign, foreign_from_json(row));
    for (const StoredArtifact& artifact : foreign.artifacts) {
      const auto [at, added] = manifest.objects.emplace(artifact.hash, artifact.bytes);
      if (!added && at->second != artifact.bytes) {
        return Error{Errc::corrupt,
                     "registry: manifest.json gives object " + artifact.hash + " two sizes"};
      }
    }
    manifest.versions.push_back(std::move(foreign));
  }
  return manifest;
}

/// Copy the object that the stream has next into the store; its hash must fit.
Result<void> copy_object(TarStream* tar, const ObjectFile& expected, const ObjectStore& store,
                         std::set<Path>* folders) {
  HR_TRY(auto file, TempFile::create(store.tmp_folder()));
  std::vector<std::byte> buffer(kCopyBytes);
  for (int64_t left = expected.bytes; left > 0;) {
    const auto piece = std::span(buffer).first(
        static_cast<size_t>(std::min<int64_t>(left, static_cast<int64_t>(buffer.size()))));
    HR_TRY(tar->read_exactly(piece));
    HR_TRY(file.write(piece));
    left -= static_cast<int64_t>(piece.size());
  }
  HR_TRY(const ObjectFile object, file.finish());
  if (object.hash != expected.hash) {
    return Error{Errc::corrupt, "registry: objects/" + expected.hash + " has content of hash " +
                                    object.hash + "; the export is damaged"};
  }
  return store.publish(file.path(), object, folders);
}

/// Take one object in; its name must be expected, its size and hash must fit. Where it lies in the
/// tar goes to `places`.
Result<void> take_object(TarStream* tar, const TarEntry& entry, const ObjectStore& store,
                         Manifest* manifest, std::map<std::string, int64_t>* places,
                         std::set<Path>* folders) {
  const std::string hash =
      entry.name.substr(0, 8) == "objects/" ? entry.name.substr(8) : std::string();
  const auto expected = manifest->objects.find(hash);
  if (expected == manifest->objects.end()) {
    return Error{Errc::corrupt, "registry: the export holds " + json_quote(entry.name) +
                                    ", which manifest.json does not name (or names once only)"};
  }
  if (expected->second != entry.bytes) {
    return Error{Errc::corrupt, "registry: " + entry.name + " has " + std::to_string(entry.bytes) +
                                    " bytes, manifest.json says " +
                                    std::to_string(expected->second)};
  }
  places->emplace(hash, tar->position());
  HR_TRY(copy_object(tar, {hash, entry.bytes}, store, folders));
  fault::point("import.object");
  manifest->objects.erase(expected);
  return {};
}

Result<void> write_tar(const base::FileReplacement& file, const std::string& manifest,
                       const std::map<std::string, int64_t>& objects, const ObjectStore& store) {
  const Path& part = file.temporary();
  HR_TRY(write_entry(file.fd(), {"manifest.json", static_cast<int64_t>(manifest.size())},
                     std::as_bytes(std::span(manifest)), part));
  for (const auto& [hash, bytes] : objects) {
    HR_TRY(const auto mapping, Mapping::open(store.path_of(hash), false));
    if (static_cast<int64_t>(mapping->bytes().size()) != bytes) {
      return Error{Errc::corrupt, "registry: object " + hash + " has " +
                                      std::to_string(mapping->bytes().size()) +
                                      " bytes instead of " + std::to_string(bytes) +
                                      "; run headrace models verify"};
    }
    HR_TRY(write_entry(file.fd(), {"objects/" + hash, bytes}, mapping->bytes(), part));
  }
  return base::write_all(file.fd(), std::string(2 * kTarBlock, '\0'), part);
}

}  // namespace

Result<int64_t> Registry::export_file(const Query& query, const Path& file, bool overwrite) const {
  Json versions = Json::array();
  std::map<std::string, int64_t> objects;
  Query all = query;
  all.with_header = true;
  all.with_details = true;
  const auto collect = [&](const Version& version) -> Result<void> {
    for (const StoredArtifact& artifact : version.artifacts) {
      objects.emplace(artifact.hash, artifact.bytes);
    }
    versions.push_back(foreign_json({as_new(version), version.uid, version.created, version.version,
                                     version.artifacts, version.aliases}));
    return {};
  };
  HR_TRY(base::check_replaceable(file));
  HR_TRY(check_target(state_->folder, file, overwrite));
  HR_TRY(for_each(all, collect));
  const auto count = static_cast<int64_t>(versions.items().size());
  const std::string manifest =
      Json::object({{"format", kExportFormat}, {"versions", std::move(versions)}}).dump(0, true);
  HR_TRY(auto replacement, base::FileReplacement::begin(file));
  HR_TRY(write_tar(replacement, manifest, objects, state_->store));
  HR_TRY(replacement.commit());
  return count;
}

Result<ImportReport> Registry::import_file(const Path& file, const TarOptions& options) {
  HR_TRY(state_->check_writable());
  HR_TRY(auto tar, TarStream::open(file));
  HR_TRY(Manifest manifest, read_manifest(&tar));
  const ObjectStore& store = state_->store;
  std::set<Path> folders;
  std::map<std::string, int64_t> places;  // of objects in the tar
  for (;;) {
    HR_TRY(const auto entry, tar.next());
    if (!entry) {
      break;
    }
    HR_TRY(take_object(&tar, *entry, store, &manifest, &places, &folders));
  }
  for (const auto& [hash, bytes] : manifest.objects) {
    if (store.size_of(hash) != bytes) {
      return Error{Errc::corrupt, "registry: the export lacks object " + hash +
                                      ", which manifest.json names; nothing was imported"};
    }
  }
  HR_TRY(sync_all(folders));
  const auto put_back = [&](const StoredArtifact& artifact) -> Result<void> {
    const auto place = places.find(artifact.hash);
    if (place == places.end()) {  // it was here before
      return Error{Errc::busy, "registry: gc took object " + artifact.hash +
                                   " before its row was there; import again"};
    }
    std::set<Path> changed;
    HR_TRY(tar.seek(place->second));
    HR_TRY(copy_object(&tar, {artifact.hash, artifact.bytes}, store, &changed));
    return sync_all(changed);
  };
  fault::point("import.before_rows");
  ImportReport total;
  const std::span<const ForeignVersion> rows(manifest.versions);
  for (size_t begin = 0; begin < rows.size(); begin += kRowsPerTransaction) {
    HR_TRY(const ImportReport report,
           insert_foreign(state_.get(),
                          rows.subspan(begin, std::min(kRowsPerTransaction, rows.size() - begin)),
                          options, put_back));
    total.added += report.added;
    total.known += report.known;
    fault::point("import.rows");
  }
  return total;
}

}  // namespace headrace::registry
