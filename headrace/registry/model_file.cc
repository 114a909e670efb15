// SPDX-License-Identifier: Apache-2.0
#include "headrace/registry/model_file.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <optional>

#include "headrace/base/checksum.h"
#include "headrace/registry/limits.h"
#include "headrace/registry/mapping.h"

namespace headrace::registry {

namespace {

constexpr int kReaderVersion = 1;  // highest headrace.min_reader that this code serves

/// The parts of a bundle that a lookup touches.
struct BundleIndex {
  int64_t items = 0;
  int64_t record_bytes = 0;
  Dtype dtype = Dtype::f32;
  std::span<const std::byte> weights;
  std::span<const double> scalars;
  std::span<const double> metrics;
  std::span<const uint64_t> hash;
  std::span<const uint64_t> checksum;
  std::span<const uint64_t> key_offsets;
  std::span<const uint32_t> slot;
  std::string_view keys;
};

struct Parameter {
  std::string name;
  std::vector<int64_t> shape;
  int64_t offset = 0;
  int64_t count = 0;
};

Error corrupt(std::string_view file, const std::string& what) {
  return Error{Errc::corrupt, "registry: " + std::string(file) + ": " + what};
}

template <typename Word>
bool all_finite(std::span<const std::byte> data, Word exponent) {
  // Whole words only: shapes were checked. Offsets need not be aligned in foreign files.
  bool finite = true;
  for (size_t i = 0; i + sizeof(Word) <= data.size(); i += sizeof(Word)) {
    Word word;
    std::memcpy(&word, data.data() + i, sizeof word);
    finite = finite && (word & exponent) != exponent;
  }
  return finite;
}

bool is_finite(Dtype dtype, std::span<const std::byte> data) {
  switch (dtype) {
    case Dtype::f16: return all_finite<uint16_t>(data, 0x7C00U);
    case Dtype::bf16: return all_finite<uint16_t>(data, 0x7F80U);
    case Dtype::f32:
    case Dtype::c64: return all_finite<uint32_t>(data, 0x7F800000U);
    case Dtype::f64: return all_finite<uint64_t>(data, 0x7FF0000000000000U);
    default: return true;
  }
}

std::string number_list(std::span<const int64_t> numbers) {
  std::string text = "[";
  for (size_t i = 0; i < numbers.size(); ++i) {
    text += (i == 0 ? "" : ",") + std::to_string(numbers[i]);
  }
  return text + "]";
}

Result<std::vector<int64_t>> shape_from_json(const Json* json, std::string_view file) {
  std::vector<int64_t> shape;
  if (json == nullptr || !json->is_array()) {
    return corrupt(file, "a parameter in the header has no shape");
  }
  for (const Json& extent : json->items()) {
    if (!extent.is_integer() || extent.integer() < 0) {
      return corrupt(file, "a parameter's shape in the header is no list of whole numbers");
    }
    shape.push_back(extent.integer());
  }
  return shape;
}

Result<std::vector<Parameter>> parameters_from(const Json& header, std::string_view file) {
  std::vector<Parameter> parameters;
  const Json* list = header.find("parameters");
  if (list == nullptr || !list->is_array()) {
    return parameters;
  }
  for (const Json& row : list->items()) {
    if (!row.is_object() || row.get_string("name").empty()) {
      return corrupt(file, "a parameter in the header has no name");
    }
    Parameter parameter;
    parameter.name = row.get_string("name");
    HR_TRY(parameter.shape, shape_from_json(row.find("shape"), file));
    const auto bytes = tensor_bytes(Dtype::u8, parameter.shape);
    parameter.offset = row.get_integer("offset", 0);
    if (!bytes || parameter.offset < 0) {
      return corrupt(file, "parameter " + json_quote(parameter.name) +
                               " in the header has an impossible shape or offset");
    }
    parameter.count = *bytes;
    parameters.push_back(std::move(parameter));
  }
  return parameters;
}

}  // namespace

struct ModelFile::State {
  std::string file;
  std::shared_ptr<const Mapping> mapping;
  ModelFileOptions options;
  std::string format;
  std::string kind;
  Json header;
  std::map<std::string, std::string> metadata;
  std::vector<TensorView> tensors;
  std::optional<BundleIndex> bundle;
  std::vector<Parameter> parameters;  // of a bundle's items

  const TensorView* find(std::string_view name) const {
    const auto found = std::find_if(tensors.begin(), tensors.end(),
                                    [&](const TensorView& view) { return view.name == name; });
    return found == tensors.end() ? nullptr : &*found;
  }

  Result<void> read_metadata();
  Result<void> check_model() const;
  Result<void> read_bundle();
  Result<void> check_index() const;
  template <typename T>
  Result<std::span<const T>> column(std::string_view name, Dtype dtype,
                                    std::vector<int64_t> shape) const;
  Result<void> check_checksum(int64_t data_offset) const;
  std::string_view key(int64_t slot) const;
  Json item_header(int64_t slot) const;
};

Result<void> ModelFile::State::read_metadata() {
  const auto text = [&](const char* key) {
    const auto found = metadata.find(key);
    return found == metadata.end() ? std::string() : found->second;
  };
  format = text("headrace.format");
  if (format.empty()) {
    return {};
  }
  const std::string reader = text("headrace.min_reader");
  if ((format != "model/1" && format != "bundle/1") || reader != std::to_string(kReaderVersion)) {
    return Error{Errc::unsupported, "registry: " + file + " has format " + json_quote(format) +
                                        " for readers of version " + json_quote(reader) +
                                        "; this headrace reads model/1 and bundle/1 of version " +
                                        std::to_string(kReaderVersion) + "; update headrace"};
  }
  const std::string json = text("headrace.header");
  if (static_cast<int64_t>(json.size()) > kHeaderBytesMax) {
    return corrupt(file,
                   "headrace.header has more than " + std::to_string(kHeaderBytesMax) + " bytes");
  }
  auto parsed = parse_json(json, file + " headrace.header", {.depth_max = 64});
  if (!parsed.ok()) {
    return Error{Errc::corrupt, parsed.error().message()};
  }
  header = *std::move(parsed);
  kind = header.get_string("kind");
  if (kind.empty()) {
    return corrupt(file, "headrace.header names no kind");
  }
  return {};
}

Result<void> ModelFile::State::check_checksum(int64_t data_offset) const {
  const auto found = metadata.find("headrace.checksum");
  if (found == metadata.end()) {
    return {};
  }
  const auto data = mapping->bytes().subspan(static_cast<size_t>(data_offset));
  const std::string actual = base::hex(base::xxh3_128(data));
  if (actual != found->second) {
    return corrupt(file, "the data's checksum is " + actual + ", the head says " + found->second +
                             "; restore the file from a backup");
  }
  return {};
}

Result<void> ModelFile::State::check_model() const {
  HR_TRY(const auto wanted, parameters_from(header, file));
  for (const Parameter& parameter : wanted) {
    const TensorView* view = find(parameter.name);
    if (view == nullptr || view->shape != parameter.shape) {
      return corrupt(file, "the header promises parameter " + json_quote(parameter.name) +
                               " of shape " + number_list(parameter.shape) + ", the file has " +
                               (view == nullptr ? "none" : number_list(view->shape)));
    }
  }
  if (!options.allow_nonfinite) {
    for (const TensorView& view : tensors) {
      if (!is_finite(view.dtype, view.data)) {
        return corrupt(file, "tensor " + json_quote(view.name) +
                                 " holds NaN or infinity; allow_nonfinite loads it all the same");
      }
    }
  }
  return {};
}

template <typename T>
Result<std::span<const T>> ModelFile::State::column(std::string_view name, Dtype dtype,
                                                    std::vector<int64_t> shape) const {
  const TensorView* view = find(name);
  if (view == nullptr || view->dtype != dtype || (shape[0] >= 0 && view->shape != shape)) {
    return corrupt(file, "a bundle needs " + json_quote(name) + " as " +
                             std::string(dtype_name(dtype)) + " of shape " + number_list(shape));
  }
  if (reinterpret_cast<uintptr_t>(view->data.data()) % alignof(T) != 0) {
    return corrupt(file, json_quote(name) + " is not aligned");
  }
  return std::span<const T>(reinterpret_cast<const T*>(view->data.data()),
                            view->data.size() / sizeof(T));
}

Result<void> ModelFile::State::read_bundle() {
  const TensorView* weights = find("weights");
  if (weights == nullptr || weights->shape.size() != 2 || dtype_bits(weights->dtype) < 16 ||
      weights->shape[0] > kTensorsMax) {
    return corrupt(file, "a bundle needs \"weights\" of shape [N,P]");
  }
  BundleIndex index;
  index.items = weights->shape[0];
  index.dtype = weights->dtype;
  index.weights = weights->data;
  index.record_bytes =
      index.items == 0 ? 0 : static_cast<int64_t>(weights->data.size()) / index.items;
  const auto width = [&](const char* name) {
    const Json* names = header.find(name);
    return names != nullptr && names->is_array() ? static_cast<int64_t>(names->items().size()) : 0;
  };
  HR_TRY(index.scalars,
         column<double>("item.scalars", Dtype::f64, {index.items, width("scalars")}));
  HR_TRY(index.metrics,
         column<double>("item.metrics", Dtype::f64, {index.items, width("metrics")}));
  HR_TRY(index.hash, column<uint64_t>("item.hash", Dtype::u64, {index.items}));
  HR_TRY(index.checksum, column<uint64_t>("item.checksum", Dtype::u64, {index.items}));
  HR_TRY(index.key_offsets, column<uint64_t>("item.key_offsets", Dtype::u64, {index.items + 1}));
  HR_TRY(index.slot, column<uint32_t>("item.slot", Dtype::u32, {index.items}));
  HR_TRY(const auto keys, column<char>("item.keys", Dtype::u8, {-1}));
  index.keys = std::string_view(keys.data(), keys.size());
  bundle = index;
  HR_TRY(parameters, parameters_from(header, file));
  const int64_t elements = weights->shape[1];
  for (const Parameter& parameter : parameters) {
    if (parameter.count > elements || parameter.offset > elements - parameter.count) {
      return corrupt(file, "parameter " + json_quote(parameter.name) + " ends beyond the " +
                               std::to_string(elements) + " elements of a record");
    }
  }
  return check_index();
}

Result<void> ModelFile::State::check_index() const {
  const BundleIndex& index = *bundle;
  const auto& offsets = index.key_offsets;
  if (offsets[0] != 0 || offsets[offsets.size() - 1] != index.keys.size() ||
      !std::is_sorted(offsets.begin(), offsets.end())) {
    return corrupt(file, "item.key_offsets do not rise from 0 to the length of item.keys");
  }
  if (!std::is_sorted(index.hash.begin(), index.hash.end())) {
    return corrupt(file, "item.hash does not rise");
  }
  const auto items = static_cast<uint64_t>(index.items);
  if (std::any_of(index.slot.begin(), index.slot.end(), [&](uint32_t s) { return s >= items; })) {
    return corrupt(file, "item.slot names a record beyond the last");
  }
  return {};
}

std::string_view ModelFile::State::key(int64_t slot) const {
  const auto i = static_cast<size_t>(slot);
  const uint64_t begin = bundle->key_offsets[i];
  return bundle->keys.substr(begin, bundle->key_offsets[i + 1] - begin);
}

Json ModelFile::State::item_header(int64_t slot) const {
  Json item = Json::object({{"key", key(slot)}, {"slot", slot}});
  const auto fill = [&](const char* names_key, std::span<const double> values) {
    Json out = Json::object();
    if (const Json* names = header.find(names_key); names != nullptr && names->is_array()) {
      const size_t width = names->items().size();
      for (size_t i = 0; i < width; ++i) {
        const Json& name = names->items()[i];
        if (name.is_string()) {
          out.set(name.string(), values[static_cast<size_t>(slot) * width + i]);
        }
      }
    }
    item.set(names_key, std::move(out));
  };
  fill("scalars", bundle->scalars);
  fill("metrics", bundle->metrics);
  Json out = header;
  out.set("item", std::move(item));
  return out;
}

ModelFile::ModelFile(std::shared_ptr<const State> state) : state_(std::move(state)) {}

Result<ModelFile> ModelFile::open(const base::Path& path, const ModelFileOptions& options) {
  auto state = std::make_shared<State>();
  state->file = path.string();
  state->options = options;
  HR_TRY(state->mapping, Mapping::open(path, options.copy));
  const auto bytes = state->mapping->bytes();
  const auto file_bytes = static_cast<int64_t>(bytes.size());
  HR_TRY(const int64_t length, tensor_head_bytes(bytes, file_bytes, state->file));
  const std::string_view json(reinterpret_cast<const char*>(bytes.data()) + 8,
                              static_cast<size_t>(length));
  HR_TRY(auto head, parse_tensor_head(json, file_bytes, state->file));
  state->metadata = std::move(head.metadata);
  for (TensorEntry& entry : head.entries) {
    state->tensors.push_back({std::move(entry.name), entry.dtype, std::move(entry.shape),
                              bytes.subspan(static_cast<size_t>(head.data_offset + entry.begin),
                                            static_cast<size_t>(entry.end - entry.begin))});
  }
  HR_TRY(state->read_metadata());
  if (state->format == "bundle/1") {
    HR_TRY(state->read_bundle());
  } else {
    HR_TRY(state->check_model());
    if (options.verify_checksum) {
      HR_TRY(state->check_checksum(head.data_offset));
    }
  }
  return ModelFile(std::move(state));
}

const std::string& ModelFile::format() const { return state_->format; }
const std::string& ModelFile::kind() const { return state_->kind; }
const Json& ModelFile::header() const { return state_->header; }
const std::map<std::string, std::string>& ModelFile::metadata() const { return state_->metadata; }
const std::vector<TensorView>& ModelFile::tensors() const { return state_->tensors; }

Result<TensorView> ModelFile::tensor(std::string_view name) const {
  if (const TensorView* view = state_->find(name)) {
    return *view;
  }
  std::string names;
  for (const TensorView& view : state_->tensors) {
    names += (names.empty() ? "" : ", ") + view.name;
    if (names.size() > 500) {
      names += ", ...";
      break;
    }
  }
  return Error{Errc::not_found, "registry: " + state_->file + " has no tensor " + json_quote(name) +
                                    "; it has " + names};
}

int64_t ModelFile::item_count() const { return state_->bundle ? state_->bundle->items : 0; }

Result<std::string> ModelFile::item_key(int64_t slot) const {
  if (slot < 0 || slot >= item_count()) {
    return Error{Errc::invalid_argument, "registry: " + state_->file + " has " +
                                             std::to_string(item_count()) + " items, no slot " +
                                             std::to_string(slot)};
  }
  return std::string(state_->key(slot));
}

Result<ModelFile> ModelFile::item(std::string_view key) const {
  if (!state_->bundle) {
    return Error{Errc::invalid_argument, "registry: " + state_->file + " is no bundle of items"};
  }
  const BundleIndex& index = *state_->bundle;
  const uint64_t hash = base::xxh3_64(key);
  const auto begin = std::lower_bound(index.hash.begin(), index.hash.end(), hash);
  for (auto at = begin; at != index.hash.end() && *at == hash; ++at) {
    const int64_t slot = index.slot[static_cast<size_t>(at - index.hash.begin())];
    if (state_->key(slot) == key) {
      return item_at(slot);
    }
  }
  return Error{Errc::not_found, "registry: " + state_->file + " holds no item " + json_quote(key)};
}

Result<ModelFile> ModelFile::item_at(int64_t slot) const {
  HR_TRY(const std::string key, item_key(slot));
  const BundleIndex& index = *state_->bundle;
  const auto record = index.weights.subspan(static_cast<size_t>(slot * index.record_bytes),
                                            static_cast<size_t>(index.record_bytes));
  const std::string where =
      state_->file + ", item " + json_quote(key) + " (record " + std::to_string(slot) + ")";
  if (base::xxh3_64(record) != index.checksum[static_cast<size_t>(slot)]) {
    return corrupt(where, "its checksum does not fit; restore the file from a backup");
  }
  if (!state_->options.allow_nonfinite && !is_finite(index.dtype, record)) {
    return corrupt(where, "it holds NaN or infinity; allow_nonfinite loads it all the same");
  }
  auto state = std::make_shared<State>();
  state->file = where;
  state->mapping = state_->mapping;
  state->options = state_->options;
  state->format = "model/1";
  state->kind = state_->kind;
  state->metadata = state_->metadata;
  state->header = state_->item_header(slot);
  const int64_t element = dtype_bits(index.dtype) / 8;
  for (const Parameter& parameter : state_->parameters) {
    state->tensors.push_back({parameter.name, index.dtype, parameter.shape,
                              record.subspan(static_cast<size_t>(parameter.offset * element),
                                             static_cast<size_t>(parameter.count * element))});
  }
  return ModelFile(std::move(state));
}

Result<void> ModelFile::verify_items() const {
  for (int64_t slot = 0; slot < item_count(); ++slot) {
    HR_TRY(const auto key, item_key(slot));
    HR_TRY(item(key));  // finds it by hash and checks the record
  }
  return {};
}

int64_t TensorView::count() const {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

Result<std::span<const float>> TensorView::floats() const {
  if (dtype != Dtype::f32) {
    return Error{Errc::mismatch, "registry: tensor " + json_quote(name) + " is " +
                                     std::string(dtype_name(dtype)) + ", not F32"};
  }
  if (reinterpret_cast<uintptr_t>(data.data()) % alignof(float) != 0) {
    return Error{Errc::mismatch, "registry: tensor " + json_quote(name) +
                                     " is not aligned in its file; write the file again"};
  }
  return std::span<const float>(reinterpret_cast<const float*>(data.data()), data.size() / 4);
}

Result<std::string> model_file_head(const Json& header, std::span<const Tensor> tensors,
                                    std::vector<size_t>* order) {
  std::vector<TensorEntry> entries;
  for (const Tensor& tensor : tensors) {
    entries.push_back(
        {tensor.name, tensor.dtype, tensor.shape, 0, static_cast<int64_t>(tensor.data.size())});
  }
  std::map<std::string, std::string> metadata = {{"headrace.format", "model/1"},
                                                 {"headrace.min_reader", "1"},
                                                 {"headrace.header", header.dump(0, true)},
                                                 {"headrace.checksum", std::string(32, '0')}};
  // The order does not depend on the checksum, and the checksum depends on the order.
  HR_TRY(write_tensor_head(entries, metadata, TensorOrder::by_alignment, order));
  base::Xxh3Stream128 checksum;
  for (const size_t index : *order) {
    checksum.update(tensors[index].data);
  }
  metadata["headrace.checksum"] = base::hex(checksum.finish());
  return write_tensor_head(entries, metadata, TensorOrder::by_alignment, order);
}

}  // namespace headrace::registry
