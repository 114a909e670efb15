// SPDX-License-Identifier: Apache-2.0
#include "headrace/registry/bundle_part.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <limits>
#include <numeric>

#include "headrace/base/random.h"
#include "headrace/registry/fault.h"
#include "headrace/registry/half.h"
#include "headrace/registry/prepare.h"
#include "headrace/registry/version_json.h"

namespace headrace::registry {

namespace {

constexpr uint8_t kConfigRecord = 1;
constexpr uint8_t kItemRecord = 2;
constexpr uint8_t kFinishedRecord = 3;
constexpr size_t kReadBytes = 1 << 20;
constexpr int kCreateTriesMax = 100;

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

std::string key_hash(std::string_view key) {
  const uint64_t hash = base::xxh3_64(key);
  return base::hex(std::as_bytes(std::span(&hash, 1)));
}

Json texts_json(const std::vector<std::string>& texts) {
  Json out = Json::array();
  for (const std::string& text : texts) {
    out.push_back(text);
  }
  return out;
}

std::vector<std::string> texts_from(const Json& json, const char* name) {
  std::vector<std::string> texts;
  if (const Json* list = json.find(name); list != nullptr && list->is_array()) {
    for (const Json& text : list->items()) {
      texts.push_back(text.is_string() ? text.string() : "");
    }
  }
  return texts;
}

Json parameters_json(const std::vector<BundleParameter>& parameters) {
  Json out = Json::array();
  int64_t offset = 0;
  for (const BundleParameter& parameter : parameters) {
    Json shape = Json::array();
    int64_t count = 1;
    for (const int64_t extent : parameter.shape) {
      shape.push_back(extent);
      count *= extent;
    }
    out.push_back(
        Json::object({{"name", parameter.name}, {"shape", std::move(shape)}, {"offset", offset}}));
    offset += count;
  }
  return out;
}

Json config_json(const BundleOptions& options) {
  NewVersion common;
  common.kind = options.kind;
  common.header = options.header;
  common.lineage = options.lineage;
  return Json::object({{"key", options.key},
                       {"common", new_version_json(common)},
                       {"parameters", parameters_json(options.parameters)},
                       {"dtype", dtype_name(options.dtype)},
                       {"scalars", texts_json(options.scalars)},
                       {"metrics", texts_json(options.metrics)}});
}

Result<BundleOptions> config_from(std::string_view payload) {
  HR_TRY(const Json json, parse_json(payload, "bundle log"));
  BundleOptions options;
  options.key = json.get_string("key");
  const Json* common = json.find("common");
  const auto dtype = parse_dtype(json.get_string("dtype"));
  const Json* parameters = json.find("parameters");
  if (common == nullptr || !dtype || parameters == nullptr || !parameters->is_array()) {
    return Error{Errc::corrupt, "registry: the log of a bundle part has no configuration"};
  }
  HR_TRY(auto version, new_version_from_json(*common));
  options.kind = version.kind;
  options.header = version.header;
  options.lineage = version.lineage;
  options.dtype = *dtype;
  for (const Json& row : parameters->items()) {
    BundleParameter parameter{row.get_string("name"), {}};
    for (const Json& extent : row.at("shape").items()) {
      parameter.shape.push_back(extent.integer());
    }
    options.parameters.push_back(std::move(parameter));
  }
  options.scalars = texts_from(json, "scalars");
  options.metrics = texts_from(json, "metrics");
  return options;
}

std::vector<std::byte> encode_record(const PartShape& shape, std::span<const float> weights) {
  std::vector<std::byte> record(static_cast<size_t>(shape.record_bytes));
  if (shape.options.dtype == Dtype::f32) {
    std::copy_n(std::as_bytes(weights).begin(), weights.size_bytes(), record.begin());
    return record;
  }
  const bool brain = shape.options.dtype == Dtype::bf16;
  for (size_t i = 0; i < weights.size(); ++i) {
    const uint16_t half = brain ? to_bfloat16(weights[i]) : to_float16(weights[i]);
    std::copy_n(std::as_bytes(std::span(&half, 1)).begin(), sizeof half,
                record.begin() + static_cast<std::ptrdiff_t>(i * sizeof half));
  }
  return record;
}

Result<void> write_at(int fd, std::span<const std::byte> bytes, int64_t offset, const Path& path) {
  while (!bytes.empty()) {
    const ssize_t count = ::pwrite(fd, bytes.data(), bytes.size(), offset);
    if (count < 0 && errno == EINTR) {
      continue;
    }
    if (count < 0) {
      return errno_error(errno,
                         "writing " + std::to_string(bytes.size()) + " bytes to " + path.string());
    }
    bytes = bytes.subspan(static_cast<size_t>(count));
    offset += count;
  }
  return {};
}

Result<std::vector<std::byte>> read_at(int fd, int64_t bytes, int64_t offset, const Path& path) {
  std::vector<std::byte> data(static_cast<size_t>(bytes));
  size_t used = 0;
  while (used < data.size()) {
    const ssize_t count =
        ::pread(fd, data.data() + used, data.size() - used, offset + static_cast<int64_t>(used));
    if (count < 0 && errno == EINTR) {
      continue;
    }
    if (count <= 0) {
      return count < 0 ? errno_error(errno, "reading " + path.string())
                       : Error{Errc::corrupt, "registry: " + path.string() + " ends too early"};
    }
    used += static_cast<size_t>(count);
  }
  return data;
}

template <typename T>
std::span<const std::byte> bytes_of(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

}  // namespace

Result<PartShape> part_shape(BundleOptions options) {
  const auto bad = [](const std::string& what) {
    return Error{Errc::invalid_argument, "registry: bundle: " + what};
  };
  if (options.key.empty() || options.kind.empty() || !options.header.is_object()) {
    return bad("key, kind and a header object are needed");
  }
  const bool type_fits =
      options.dtype == Dtype::f32 || options.dtype == Dtype::f16 || options.dtype == Dtype::bf16;
  if (!type_fits || options.parameters.empty()) {
    return bad("parameters of type F32, F16 or BF16 are needed");
  }
  if (options.items_max < 1 || options.items_max > kBundleItemsMax) {
    return bad("1 to " + std::to_string(kBundleItemsMax) + " items fit in one");
  }
  PartShape shape;
  for (const BundleParameter& parameter : options.parameters) {
    const auto count = tensor_bytes(Dtype::u8, parameter.shape);
    if (!count || *count > kBundleBytesMax / 4 || parameter.name.empty()) {
      return bad("parameter " + json_quote(parameter.name) + " has an impossible shape");
    }
    shape.elements += *count;
  }
  const int64_t element = dtype_bits(options.dtype) / 8;
  shape.record_bytes = std::max<int64_t>(64, (shape.elements * element + 63) / 64 * 64);
  if (shape.record_bytes > std::min(options.bytes_max, kBundleBytesMax)) {
    return bad("one item has " + std::to_string(shape.record_bytes) + " bytes; a bundle may have " +
               std::to_string(std::min(options.bytes_max, kBundleBytesMax)));
  }
  shape.options = std::move(options);
  return shape;
}

Result<BundlePart> BundlePart::create(const ObjectStore& store, const PartShape& shape) {
  BundlePart part;
  part.store_ = &store;
  part.shape_ = shape;
  // The log first: a part without one is nobody's.
  HR_TRY(part.open_log());
  HR_TRY(part.fd_, base::open_file(part.path_, O_RDWR | O_CREAT | O_EXCL, 0600));
  HR_TRY(base::sync_folder(store.tmp_folder()));
  // Readers refuse zeros: the head comes last.
  if (::ftruncate(part.fd_.get(), kBundleReserveBytes) != 0) {
    return errno_error(errno, "reserving the head of " + part.path_.string());
  }
  HR_TRY(part.log_->append(kConfigRecord, config_json(shape.options).dump()));
  return part;
}

Result<void> BundlePart::open_log() {
  const auto nothing = [](uint8_t, std::string_view) { return Result<void>(); };
  for (int attempt = 0; attempt < kCreateTriesMax; ++attempt) {
    std::array<std::byte, 8> nonce = {};
    base::random_bytes(nonce);
    const std::string name = "bundle-" + key_hash(shape_.options.key) + "-" + base::hex(nonce);
    path_ = store_->tmp_folder() / (name + ".part");
    log_path_ = store_->tmp_folder() / (name + ".log");
    auto log = base::AppendLog::open(log_path_, {}, nothing);
    // Between its making and its lock somebody may have found an empty log, and removed it.
    std::error_code code;
    if (log.ok() && std::filesystem::exists(log_path_, code)) {
      log_ = *std::move(log);
      return {};
    }
    if (!log.ok() && log.error().code() != Errc::busy) {
      return std::move(log).error();
    }
  }
  return Error{Errc::busy, "registry: every new log in " + store_->tmp_folder().string() +
                               " is taken away before it can be locked"};
}

std::vector<Path> BundlePart::find_logs(const ObjectStore& store,
                                        const std::optional<std::string>& key) {
  std::vector<Path> logs;
  std::error_code code;
  const std::string prefix = "bundle-" + (key ? key_hash(*key) + "-" : std::string());
  for (const auto& entry : std::filesystem::directory_iterator(store.tmp_folder(), code)) {
    const std::string name = entry.path().filename().string();
    if (name.substr(0, prefix.size()) == prefix && entry.path().extension() == ".log") {
      logs.push_back(entry.path());
    }
  }
  std::sort(logs.begin(), logs.end());
  return logs;
}

Result<std::optional<BundlePart>> BundlePart::resume(const ObjectStore& store, const Path& path) {
  BundlePart part;
  part.store_ = &store;
  part.log_path_ = path;
  part.path_ = Path(path).replace_extension(".part");
  const auto replay = [&part](uint8_t type, std::string_view payload) -> Result<void> {
    if (type == kConfigRecord) {
      return part.read_config(payload);
    }
    if (type == kItemRecord) {
      return part.read_item(payload);
    }
    HR_TRY(const Json json, parse_json(payload, "bundle log"));
    part.finished_ = ObjectFile{json.get_string("hash"), json.get_integer("bytes")};
    const Json* wide = json.find("wide");
    part.wide_ = wide != nullptr && wide->is_bool() && wide->boolean();
    return {};
  };
  auto log = base::AppendLog::open(path, {}, replay);
  if (!log.ok()) {
    if (log.error().code() == Errc::busy || log.error().code() == Errc::not_found) {
      return std::optional<BundlePart>();
    }
    return std::move(log).error();
  }
  part.log_ = *std::move(log);
  if (!part.finished_) {
    auto fd = base::open_file(part.path_, O_RDWR);
    if (fd.ok()) {
      part.fd_ = *std::move(fd);
      HR_TRY(part.keep_proven());
    } else if (fd.error().code() == Errc::not_found) {
      part.items_.clear();  // died before anything was written
    } else {
      return std::move(fd).error();
    }
  }
  return std::optional<BundlePart>(std::move(part));
}

Result<void> BundlePart::read_config(std::string_view payload) {
  HR_TRY(auto options, config_from(payload));
  HR_TRY(shape_, part_shape(std::move(options)));
  return {};
}

Result<void> BundlePart::read_item(std::string_view payload) {
  HR_TRY(const Json json, parse_json(payload, "bundle log"));
  PartItem item;
  item.slot = json.get_integer("slot");
  item.key = json.get_string("key");
  item.uid = json.get_string("uid");
  item.created = base::Micros(json.get_integer("created"));
  HR_TRY(const auto checksum, doubles_from_hex(json.get_string("checksum")));
  HR_TRY(item.scalars, doubles_from_hex(json.get_string("scalars")));
  const Json* version = json.find("version");
  if (version == nullptr || checksum.size() != 1 || !parse_hash(item.uid + item.uid)) {
    return Error{Errc::corrupt, "registry: an item in the log of a bundle part is incomplete"};
  }
  item.checksum = std::bit_cast<uint64_t>(checksum[0]);
  finished_.reset();  // the writer was told of an error when it finished, and went on
  HR_TRY(item.version, new_version_from_json(*version));
  items_.push_back(std::move(item));
  return {};
}

/// Keep the items whose record is on disk as the log says, and close the gaps of others.
Result<void> BundlePart::keep_proven() {
  std::vector<PartItem> proven;
  std::sort(items_.begin(), items_.end(),
            [](const PartItem& a, const PartItem& b) { return a.slot < b.slot; });
  for (PartItem& item : items_) {
    const int64_t offset = kBundleReserveBytes + item.slot * shape_.record_bytes;
    const auto record = read_at(fd_.get(), shape_.record_bytes, offset, path_);
    if (record.ok() && base::xxh3_64(*record) == item.checksum) {
      const auto slot = static_cast<int64_t>(proven.size());
      if (slot != item.slot) {
        HR_TRY(
            write_at(fd_.get(), *record, kBundleReserveBytes + slot * shape_.record_bytes, path_));
        item.slot = slot;
      }
      proven.push_back(std::move(item));
    }
  }
  items_ = std::move(proven);
  if (::ftruncate(fd_.get(), kBundleReserveBytes + bytes()) != 0) {
    return errno_error(errno, "cutting " + path_.string());
  }
  return {};
}

Result<void> BundlePart::append(const ItemRecord& record, PartItem item) {
  HR_CHECK(!finished_, "a record would overwrite the index");
  const auto encoded = encode_record(shape_, record.weights);
  item.slot = static_cast<int64_t>(items_.size());
  item.checksum = base::xxh3_64(encoded);
  HR_TRY(
      write_at(fd_.get(), encoded, kBundleReserveBytes + item.slot * shape_.record_bytes, path_));
  fault::point("bundle.after_record");
  const double checksum = std::bit_cast<double>(item.checksum);
  unlogged_.push_back(Json::object({{"slot", item.slot},
                                    {"key", item.key},
                                    {"uid", item.uid},
                                    {"created", int64_t{item.created.count()}},
                                    {"checksum", doubles_hex(std::span(&checksum, 1))},
                                    {"scalars", doubles_hex(item.scalars)},
                                    {"version", new_version_json(item.version)}})
                          .dump());
  keys_.insert(item.key);
  items_.push_back(std::move(item));
  return {};
}

Result<void> BundlePart::flush() {
  if (unlogged_.empty()) {
    return {};
  }
  // The log may only speak of records that are on disk.
  HR_TRY(base::sync_data(fd_.get(), path_));
  fault::point("bundle.records_synced");
  uint64_t last = 0;
  for (const std::string& payload : unlogged_) {
    HR_TRY(last, log_->append(kItemRecord, payload));
  }
  HR_TRY(log_->wait_committed(last));
  unlogged_.clear();
  fault::point("bundle.logged");
  return {};
}

Result<std::string> BundlePart::make_head(int64_t pad_to) const {
  const BundleOptions& options = shape_.options;
  const auto items = static_cast<int64_t>(items_.size());
  const int64_t element = dtype_bits(options.dtype) / 8;
  int64_t key_bytes = 0;
  for (const PartItem& item : items_) {
    key_bytes += static_cast<int64_t>(item.key.size());
  }
  const auto scalars = static_cast<int64_t>(options.scalars.size());
  const auto metrics = static_cast<int64_t>(options.metrics.size());
  const std::vector<TensorEntry> entries = {
      {"weights", options.dtype, {items, shape_.record_bytes / element}, 0, bytes()},
      {"item.scalars", Dtype::f64, {items, scalars}, 0, items * scalars * 8},
      {"item.metrics", Dtype::f64, {items, metrics}, 0, items * metrics * 8},
      {"item.hash", Dtype::u64, {items}, 0, items * 8},
      {"item.checksum", Dtype::u64, {items}, 0, items * 8},
      {"item.key_offsets", Dtype::u64, {items + 1}, 0, (items + 1) * 8},
      {"item.slot", Dtype::u32, {items}, 0, items * 4},
      {"item.keys", Dtype::u8, {key_bytes}, 0, key_bytes}};
  Json header = options.header;
  header.set("kind", options.kind);
  header.set("parameters", parameters_json(options.parameters));
  header.set("scalars", texts_json(options.scalars));
  header.set("metrics", texts_json(options.metrics));
  if (header.find("library") == nullptr) {
    header.set("library", "headrace " HEADRACE_VERSION);
  }
  std::vector<size_t> order;
  return write_tensor_head(entries,
                           {{"headrace.format", "bundle/1"},
                            {"headrace.min_reader", "1"},
                            {"headrace.header", header.dump(0, true)}},
                           TensorOrder::as_given, &order, pad_to);
}

Result<void> BundlePart::write_index(const OpenFile& file, int64_t offset) const {
  const size_t count = items_.size();
  std::vector<double> scalars;
  std::vector<double> metrics;
  std::vector<uint64_t> checksums;
  std::vector<uint64_t> offsets = {0};
  std::string keys;
  std::vector<uint64_t> hashes;
  for (const PartItem& item : items_) {
    scalars.insert(scalars.end(), item.scalars.begin(), item.scalars.end());
    for (const std::string& name : shape_.options.metrics) {
      const auto found = std::find_if(item.version.metrics.begin(), item.version.metrics.end(),
                                      [&](const Metric& metric) { return metric.name == name; });
      metrics.push_back(found == item.version.metrics.end()
                            ? std::numeric_limits<double>::quiet_NaN()
                            : found->value);
    }
    checksums.push_back(item.checksum);
    keys += item.key;
    offsets.push_back(keys.size());
    hashes.push_back(base::xxh3_64(item.key));
  }
  std::vector<uint32_t> slots(count);
  std::iota(slots.begin(), slots.end(), 0U);
  std::sort(slots.begin(), slots.end(), [&](uint32_t a, uint32_t b) {
    return hashes[a] != hashes[b] ? hashes[a] < hashes[b] : a < b;
  });
  std::vector<uint64_t> sorted;
  for (const uint32_t slot : slots) {
    sorted.push_back(hashes[slot]);
  }
  const std::span<const std::byte> parts[] = {bytes_of(scalars),
                                              bytes_of(metrics),
                                              bytes_of(sorted),
                                              bytes_of(checksums),
                                              bytes_of(offsets),
                                              bytes_of(slots),
                                              std::as_bytes(std::span(keys))};
  for (const auto part : parts) {
    HR_TRY(write_at(file.fd, part, offset, file.path));
    offset += static_cast<int64_t>(part.size());
  }
  return {};
}

/// Copy the records behind a head that is larger than the reserve. The part stays as it is: until
/// the log has the finished record, whoever takes over looks for the records there.
Result<base::Fd> BundlePart::copy_records(int64_t head_bytes) const {
  const Path copy = wide_path();
  HR_TRY(auto fd, base::open_file(copy, O_RDWR | O_CREAT | O_TRUNC, 0600));
  for (const PartItem& item : items_) {
    const int64_t offset = item.slot * shape_.record_bytes;
    HR_TRY(const auto record,
           read_at(fd_.get(), shape_.record_bytes, kBundleReserveBytes + offset, path_));
    HR_TRY(write_at(fd.get(), record, head_bytes + offset, copy));
  }
  HR_TRY(base::sync_folder(copy.parent_path()));
  fault::point("bundle.copied");
  return fd;
}

/// A file whose head came last cannot be hashed while it grows: read it from the page cache.
Result<ObjectFile> BundlePart::hash_of(const OpenFile& file) {
  base::Blake2b256 hash;
  struct stat info = {};
  if (::fstat(file.fd, &info) != 0) {
    return errno_error(errno, "reading " + file.path.string());
  }
  for (int64_t at = 0; at < info.st_size; at += static_cast<int64_t>(kReadBytes)) {
    HR_TRY(const auto piece,
           read_at(file.fd, std::min<int64_t>(kReadBytes, info.st_size - at), at, file.path));
    hash.update(piece);
  }
  return ObjectFile{base::hex(hash.finish()), info.st_size};
}

Path BundlePart::wide_path() const { return Path(path_).replace_extension(".wide"); }

Path BundlePart::finished_path() const { return wide_ ? wide_path() : path_; }

Result<ObjectFile> BundlePart::finish() {
  if (finished_) {
    return *finished_;
  }
  HR_TRY(flush());
  auto head = make_head(kBundleReserveBytes);
  wide_ = !head.ok();
  base::Fd copy;
  if (wide_) {
    HR_TRY(head, make_head(0));
    HR_TRY(copy, copy_records(static_cast<int64_t>(head->size())));
  }
  const OpenFile file{wide_ ? copy.get() : fd_.get(), finished_path()};
  HR_TRY(write_index(file, static_cast<int64_t>(head->size()) + bytes()));
  fault::point("bundle.index_written");
  HR_TRY(write_at(file.fd, std::as_bytes(std::span(*head)), 0, file.path));
  HR_TRY(base::sync_data(file.fd, file.path));
  HR_TRY(const ObjectFile object, hash_of(file));
  fault::point("bundle.before_finished");
  HR_TRY(
      const uint64_t sequence,
      log_->append(
          kFinishedRecord,
          Json::object({{"hash", object.hash}, {"bytes", object.bytes}, {"wide", wide_}}).dump()));
  HR_TRY(log_->wait_committed(sequence));
  finished_ = object;
  fault::point("bundle.finished");
  return object;
}

Result<void> BundlePart::put_in_place(const ObjectFile& object) {
  const Path source = finished_path();
  std::set<Path> folders;
  if (store_->size_of(object.hash) != object.bytes) {
    // Not before the log knows the file as finished: an unfinished one is written to again.
    if (::chmod(source.c_str(), 0444) != 0) {
      return errno_error(errno, "setting the mode of " + source.string());
    }
    HR_TRY(store_->publish(source, object, &folders));
  }
  fault::point("bundle.placed");
  folders.insert(store_->path_of(object.hash).parent_path());
  return sync_all(folders);
}

Result<void> BundlePart::forget() {
  fault::point("bundle.before_forget");
  ::unlink(path_.c_str());
  ::unlink(wide_path().c_str());
  if (::unlink(log_path_.c_str()) != 0 && errno != ENOENT) {
    return errno_error(errno, "removing " + log_path_.string());
  }
  return {};
}

}  // namespace headrace::registry
