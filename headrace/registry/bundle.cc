// SPDX-License-Identifier: Apache-2.0
#include "headrace/registry/bundle.h"

#include <sys/stat.h>

#include "headrace/registry/bundle_part.h"
#include "headrace/registry/fault.h"
#include "headrace/registry/name.h"
#include "headrace/registry/registry_internal.h"

namespace headrace::registry {

namespace {

/// Rows of all items; those that a crash left behind after COMMIT are known by their uid.
Result<void> insert_items(Database* database, const Registry::State& state, const BundlePart& part,
                          const ObjectFile& object, SealReport* report) {
  for (const PartItem& item : part.items()) {
    HR_TRY(const bool known, has_uid(database, item.uid));
    if (known) {
      ++report->items;
      continue;
    }
    PreparedVersion prepared;
    prepared.source = &item.version;
    prepared.uid = item.uid;
    prepared.created = item.created;
    prepared.push_to = *state.options.push_to;
    if (!item.version.header.is_null()) {
      prepared.header = item.version.header.dump(0, true);
    }
    prepared.artifacts = {{"model.safetensors", object.hash, object.bytes, "bundle", item.slot}};
    const Result<void> inserted = insert_version(database, state.store, &prepared);
    if (inserted.ok()) {
      ++report->items;
    } else if (inserted.error().code() == Errc::mismatch) {
      report->conflicts.push_back(inserted.error().message());  // nothing of it was written
    } else {
      return inserted;
    }
  }
  return {};
}

Result<void> seal_part(Registry::State* state, BundlePart* part, SealReport* report) {
  if (part->items().empty()) {
    return part->forget();
  }
  HR_TRY(const ObjectFile object, part->finish());
  SealReport sealed;
  const auto rows = [&](Database* database) -> Result<void> {
    sealed = {};
    // Under the lock, so that gc cannot come between the file and its rows.
    HR_TRY(part->put_in_place(object));
    return insert_items(database, *state, *part, object, &sealed);
  };
  HR_TRY(state->writer.run(rows));
  state->versions_added.add(static_cast<uint64_t>(sealed.items));
  state->bytes_added.add(static_cast<uint64_t>(object.bytes));
  report->items += sealed.items;
  report->bundles += 1;
  report->conflicts.insert(report->conflicts.end(), sealed.conflicts.begin(),
                           sealed.conflicts.end());
  return part->forget();
}

/// A part that is damaged stops neither the others nor new work under its key.
Result<void> seal_left(Registry::State* state, std::span<const Path> logs, SealReport* report) {
  const auto damaged = [&](const Path& log, const Error& why) {
    report->damaged.push_back("registry: " + log.string() + " holds items that are not sealed: " +
                              why.message() + "; move it away with its .part to keep what is left");
  };
  for (const Path& log : logs) {
    auto part = BundlePart::resume(state->store, log);
    if (!part.ok()) {
      damaged(log, part.error());
      continue;
    }
    if (!*part) {
      continue;
    }
    const Result<void> sealed = seal_part(state, &**part, report);
    if (!sealed.ok() &&
        (sealed.error().code() == Errc::corrupt || sealed.error().code() == Errc::not_found ||
         sealed.error().code() == Errc::mismatch)) {
      damaged(log, sealed.error());
    } else {
      HR_TRY(sealed);
    }
  }
  return {};
}

}  // namespace

struct BundleWriter::State {
  std::shared_ptr<Registry::State> registry;
  PartShape shape;
  base::Mutex mu_;  // held during disk work: threads that wait share one sync
  std::optional<BundlePart> part HR_GUARDED_BY(mu_);
  base::Deadline seal_by = base::Deadline::never();
  SealReport report;

  Result<void> check(const ItemRecord& item) const;
  PartItem make_item(const ItemRecord& item) const;
  Result<void> seal_now() HR_REQUIRES(mu_);
};

Result<void> BundleWriter::State::check(const ItemRecord& item) const {
  const auto bad = [&](const std::string& what) {
    return Error{Errc::invalid_argument,
                 "registry: bundle item " + json_quote(item.key) + ": " + what};
  };
  HR_TRY(check_text(item.key, "item key", kTextBytesMax));
  if (item.key.empty()) {
    return bad("the key is empty");
  }
  if (static_cast<int64_t>(item.weights.size()) != shape.elements) {
    return bad(std::to_string(item.weights.size()) + " weights were given, the parameters have " +
               std::to_string(shape.elements));
  }
  if (item.scalars.size() != shape.options.scalars.size()) {
    return bad(std::to_string(item.scalars.size()) + " scalars were given, " +
               std::to_string(shape.options.scalars.size()) + " are named");
  }
  return {};
}

PartItem BundleWriter::State::make_item(const ItemRecord& item) const {
  PartItem out;
  out.key = item.key;
  out.uid = new_uid();
  out.created = base::system_clock().wall();
  out.scalars.assign(item.scalars.begin(), item.scalars.end());
  NewVersion& version = out.version;
  version.name = item.name;
  version.kind = shape.options.kind;
  version.header = item.header;
  version.once = item.once;
  version.lineage = shape.options.lineage;
  version.lineage.item = item.key;
  version.lineage.attempt = item.attempt;
  version.lineage.data_hash = item.data_hash;
  version.metrics = item.metrics;
  version.params = item.params;
  version.tags = item.tags;
  return out;
}

Result<void> BundleWriter::State::seal_now() {
  if (!part) {
    return {};
  }
  HR_TRY(seal_part(registry.get(), &*part, &report));
  part.reset();
  return {};
}

BundleWriter::BundleWriter(std::unique_ptr<State> state) : state_(std::move(state)) {}
BundleWriter::BundleWriter(BundleWriter&&) noexcept = default;
BundleWriter& BundleWriter::operator=(BundleWriter&&) noexcept = default;
BundleWriter::~BundleWriter() = default;

Result<BundleWriter> BundleWriter::make(Registry* registry, BundleOptions options) {
  HR_TRY(registry->state_->check_writable());
  auto state = std::make_unique<State>();
  state->registry = registry->state_;
  HR_TRY(state->shape, part_shape(std::move(options)));
  const auto logs = BundlePart::find_logs(state->registry->store, state->shape.options.key);
  HR_TRY(seal_left(state->registry.get(), logs, &state->report));
  return BundleWriter(std::move(state));
}

Result<int64_t> BundleWriter::append(const ItemRecord& item) {
  State& state = *state_;
  HR_TRY(state.registry->check_writable());
  HR_TRY(state.check(item));
  PartItem entry = state.make_item(item);
  {
    NewVersion checked = entry.version;
    if (checked.header.is_null()) {
      checked.header = Json::object();
    }
    HR_TRY(check_version(checked));
  }
  base::MutexLock lock(state.mu_);
  const BundleOptions& options = state.shape.options;
  const bool full =
      state.part && (static_cast<int64_t>(state.part->items().size()) >= options.items_max ||
                     state.part->bytes() + state.shape.record_bytes >
                         std::min(options.bytes_max, kBundleBytesMax));
  // A finished part is one whose seal got no further than its file: its index lies where the next
  // record would go.
  if (full || (state.part && (state.part->finished() || state.seal_by.passed() ||
                              state.part->has_key(item.key)))) {
    HR_TRY(state.seal_now());
  }
  if (!state.part) {
    HR_TRY(state.part, BundlePart::create(state.registry->store, state.shape));
    state.seal_by = base::Deadline::in(options.seal_after);
  }
  HR_TRY(state.part->append(item, std::move(entry)));
  return state.part->items().back().slot;
}

Result<void> BundleWriter::flush() {
  base::MutexLock lock(state_->mu_);
  if (!state_->part) {
    return {};
  }
  return state_->part->flush();
}

Result<SealReport> BundleWriter::seal() {
  base::MutexLock lock(state_->mu_);
  HR_TRY(state_->seal_now());
  return state_->report;
}

const SealReport& BundleWriter::sealed() const { return state_->report; }

Result<SealReport> seal_orphans(Registry* registry, base::Micros age) {
  Registry::State* state = RegistryAccess::state(registry);
  HR_TRY(state->check_writable());
  std::vector<Path> old;
  const base::Micros now = base::system_clock().wall();
  for (const Path& log : BundlePart::find_logs(state->store, std::nullopt)) {
    struct stat info = {};
    if (::stat(log.c_str(), &info) == 0 && now - std::chrono::seconds(info.st_mtim.tv_sec) >= age) {
      old.push_back(log);
    }
  }
  SealReport report;
  HR_TRY(seal_left(state, old, &report));
  return report;
}

}  // namespace headrace::registry
