// SPDX-License-Identifier: Apache-2.0
#include "headrace/registry/safetensors.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <numeric>
#include <unordered_set>

#include "headrace/base/json.h"
#include "headrace/registry/limits.h"
#include "headrace/registry/name.h"

namespace headrace::registry {

namespace {

struct DtypeRow {
  std::string_view name;
  int64_t bits;
};

// In the order of the enumerators.
constexpr DtypeRow kDtypes[] = {
    {"BOOL", 8},        {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"U8", 8},
    {"I8", 8},          {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8},
    {"F8_E5M2FNUZ", 8}, {"I16", 16},    {"U16", 16},    {"F16", 16},    {"BF16", 16},
    {"I32", 32},        {"U32", 32},    {"F32", 32},    {"C64", 64},    {"F64", 64},
    {"I64", 64},        {"U64", 64},
};

/// Walk over the head's JSON; it has one fixed shape, so no tree of it is built: memory stays in
/// proportion to the entries, whatever the bytes say.
class HeadParser {
 public:
  HeadParser(std::string_view text, std::string_view file) : text_(text), file_(file) {}

  Result<TensorHead> run() {
    if (text_.empty() || text_[0] != '{') {
      return fail("the head must begin with '{'");
    }
    TensorHead head;
    ++at_;
    skip_blank();
    bool first = true;
    while (!take('}')) {
      if (!first) {
        HR_TRY(expect(','));
      }
      first = false;
      HR_TRY(auto name, parse_text());
      HR_TRY(expect(':'));
      if (!names_.insert(name).second) {
        return fail("the name " + json_quote(name) + " stands twice");
      }
      if (name == "__metadata__") {
        HR_TRY(parse_metadata(&head.metadata));
      } else {
        if (static_cast<int64_t>(head.entries.size()) >= kTensorsMax) {
          return fail("more than " + std::to_string(kTensorsMax) + " tensors");
        }
        HR_TRY(auto entry, parse_entry(std::move(name)));
        head.entries.push_back(std::move(entry));
      }
      skip_blank();
    }
    skip_blank();
    if (at_ != text_.size()) {
      return fail("something follows the head's closing '}'");
    }
    return head;
  }

 private:
  Error fail(const std::string& what) const {
    return Error{Errc::corrupt, "registry: " + std::string(file_) + ", head byte " +
                                    std::to_string(at_) + ": " + what +
                                    "; this is not a whole safetensors file"};
  }

  void skip_blank() {
    while (at_ < text_.size() && std::strchr(" \t\r\n", text_[at_]) != nullptr && text_[at_] != 0) {
      ++at_;
    }
  }
  bool take(char c) {
    skip_blank();
    if (at_ < text_.size() && text_[at_] == c) {
      ++at_;
      return true;
    }
    return false;
  }
  Result<void> expect(char c) {
    if (!take(c)) {
      return fail(std::string("expected '") + c + "'");
    }
    return {};
  }

  /// One past the closing quote of the string that begins here.
  Result<size_t> string_end() const {
    for (size_t i = at_ + 1; i < text_.size(); ++i) {
      if (text_[i] == '\\') {
        ++i;
      } else if (text_[i] == '"') {
        return i + 1;
      }
    }
    return fail("a string is never closed");
  }

  Result<std::string> parse_text() {
    skip_blank();
    if (at_ >= text_.size() || text_[at_] != '"') {
      return fail("expected a string");
    }
    HR_TRY(const size_t end, string_end());
    auto value = parse_json(text_.substr(at_, end - at_), file_);
    if (!value.ok()) {
      return fail(value.error().message());
    }
    at_ = end;
    return std::move(value->string());
  }

  Result<void> parse_metadata(std::map<std::string, std::string>* metadata) {
    HR_TRY(expect('{'));
    bool first = true;
    while (!take('}')) {
      if (!first) {
        HR_TRY(expect(','));
      }
      first = false;
      HR_TRY(auto key, parse_text());
      HR_TRY(expect(':'));
      HR_TRY(auto value, parse_text());
      if (!metadata->emplace(key, std::move(value)).second) {
        return fail("the metadata key " + json_quote(key) + " stands twice");
      }
      if (static_cast<int64_t>(metadata->size()) > kTensorsMax) {
        return fail("more than " + std::to_string(kTensorsMax) + " metadata keys");
      }
    }
    return {};
  }

  Result<uint64_t> parse_whole() {
    skip_blank();
    uint64_t value = 0;
    const char* const begin = text_.data() + at_;
    const char* const end = text_.data() + text_.size();
    const auto parsed = std::from_chars(begin, end, value);
    const bool padded = begin < end && *begin == '0' && parsed.ptr - begin > 1;
    const bool real = parsed.ptr < end && (*parsed.ptr == '.' || (*parsed.ptr | 0x20) == 'e');
    if (parsed.ec != std::errc() || padded || real || value > uint64_t{INT64_MAX}) {
      return fail("expected a whole number from 0 to 9223372036854775807");
    }
    at_ += static_cast<size_t>(parsed.ptr - begin);
    return value;
  }

  Result<std::vector<int64_t>> parse_numbers() {
    HR_TRY(expect('['));
    std::vector<int64_t> numbers;
    bool first = true;
    while (!take(']')) {
      if (!first) {
        HR_TRY(expect(','));
      }
      first = false;
      HR_TRY(const uint64_t number, parse_whole());
      numbers.push_back(static_cast<int64_t>(number));
    }
    return numbers;
  }

  /// Pass over a value that we do not know.
  Result<void> skip_value() {
    skip_blank();
    const size_t begin = at_;
    int depth = 0;
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '"') {
        HR_TRY(at_, string_end());
        continue;
      }
      if (depth == 0 && (c == ',' || c == '}' || c == ']')) {
        break;
      }
      if (c == '{' || c == '[') {
        // Entry and head are the two levels around this value.
        if (++depth > kTensorHeaderDepthMax - 2) {
          return fail("nested deeper than " + std::to_string(kTensorHeaderDepthMax) + " levels");
        }
      } else if (c == '}' || c == ']') {
        --depth;
      }
      ++at_;
    }
    if (at_ - begin > size_t{1} << 20U) {
      return fail("an unknown field of more than 1 MiB");
    }
    auto value = parse_json(text_.substr(begin, at_ - begin), file_);
    if (!value.ok()) {
      return fail(value.error().message());
    }
    return {};
  }

  Result<void> parse_field(TensorEntry* entry, unsigned* seen) {
    HR_TRY(auto field, parse_text());
    HR_TRY(expect(':'));
    unsigned bit = 0;
    if (field == "dtype") {
      bit = 1;
      HR_TRY(auto name, parse_text());
      const auto dtype = parse_dtype(name);
      if (!dtype) {
        return fail("tensor " + json_quote(entry->name) + " has the unknown type " +
                    json_quote(name));
      }
      entry->dtype = *dtype;
    } else if (field == "shape") {
      bit = 2;
      HR_TRY(entry->shape, parse_numbers());
    } else if (field == "data_offsets") {
      bit = 4;
      HR_TRY(auto range, parse_numbers());
      if (range.size() != 2) {
        return fail("data_offsets of " + json_quote(entry->name) + " must hold two numbers");
      }
      entry->begin = range[0];
      entry->end = range[1];
    } else {
      return skip_value();
    }
    if ((*seen & bit) != 0) {
      return fail(json_quote(field) + " of " + json_quote(entry->name) + " stands twice");
    }
    *seen |= bit;
    return {};
  }

  Result<TensorEntry> parse_entry(std::string name) {
    TensorEntry entry;
    entry.name = std::move(name);
    unsigned seen = 0;
    HR_TRY(expect('{'));
    bool first = true;
    while (!take('}')) {
      if (!first) {
        HR_TRY(expect(','));
      }
      first = false;
      HR_TRY(parse_field(&entry, &seen));
    }
    if (seen != 7) {
      return fail("tensor " + json_quote(entry.name) + " needs dtype, shape and data_offsets");
    }
    return entry;
  }

  std::string_view text_;
  std::string_view file_;
  size_t at_ = 0;
  std::unordered_set<std::string> names_;
};

Result<void> check_ranges(std::vector<TensorEntry>* entries, int64_t data_bytes,
                          std::string_view file) {
  const auto fail = [&](const TensorEntry& entry, const std::string& what) {
    return Error{Errc::corrupt, "registry: " + std::string(file) + ": tensor " +
                                    json_quote(entry.name) + " at data bytes " +
                                    std::to_string(entry.begin) + " to " +
                                    std::to_string(entry.end) + ": " + what};
  };
  std::sort(entries->begin(), entries->end(), [](const TensorEntry& a, const TensorEntry& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  int64_t expected = 0;
  for (const TensorEntry& entry : *entries) {
    if (entry.begin != expected || entry.end < entry.begin || entry.end > data_bytes) {
      return fail(entry, "expected to begin at " + std::to_string(expected) +
                             " and to end within the " + std::to_string(data_bytes) +
                             " bytes of data (hole, overlap or truncated file)");
    }
    const auto bytes = tensor_bytes(entry.dtype, entry.shape);
    if (!bytes || *bytes != entry.end - entry.begin) {
      return fail(entry, "its shape asks for " +
                             (bytes ? std::to_string(*bytes) : std::string("too many")) + " bytes");
    }
    expected = entry.end;
  }
  if (expected != data_bytes) {
    return Error{Errc::corrupt, "registry: " + std::string(file) + ": " +
                                    std::to_string(data_bytes - expected) +
                                    " bytes follow the last tensor"};
  }
  return {};
}

std::string entry_json(const TensorEntry& entry, int64_t begin, int64_t end) {
  std::string text = json_quote(entry.name) + ":{\"dtype\":\"";
  text += dtype_name(entry.dtype);
  text += "\",\"shape\":[";
  for (size_t i = 0; i < entry.shape.size(); ++i) {
    text += (i == 0 ? "" : ",") + std::to_string(entry.shape[i]);
  }
  return text + "],\"data_offsets\":[" + std::to_string(begin) + "," + std::to_string(end) + "]}";
}

Result<void> check_entries(const std::vector<TensorEntry>& tensors) {
  std::unordered_set<std::string_view> names;
  for (const TensorEntry& tensor : tensors) {
    const auto fail = [&](const std::string& what) {
      return Error{Errc::invalid_argument,
                   "registry: tensor " + json_quote(tensor.name) + ": " + what};
    };
    if (tensor.name == "__metadata__" || !is_utf8(tensor.name)) {
      return fail("this name cannot be stored in a safetensors file");
    }
    if (!names.insert(tensor.name).second) {
      return fail("the name is given twice");
    }
    const auto bytes = tensor_bytes(tensor.dtype, tensor.shape);
    if (!bytes || *bytes != tensor.end - tensor.begin) {
      return fail("shape and type ask for " + (bytes ? std::to_string(*bytes) : "too many") +
                  " bytes, " + std::to_string(tensor.end - tensor.begin) + " are given");
    }
  }
  return {};
}

}  // namespace

std::string_view dtype_name(Dtype dtype) { return kDtypes[static_cast<size_t>(dtype)].name; }

std::optional<Dtype> parse_dtype(std::string_view name) {
  for (size_t i = 0; i < std::size(kDtypes); ++i) {
    if (kDtypes[i].name == name) {
      return static_cast<Dtype>(i);
    }
  }
  return std::nullopt;
}

int64_t dtype_bits(Dtype dtype) { return kDtypes[static_cast<size_t>(dtype)].bits; }

std::optional<int64_t> tensor_bytes(Dtype dtype, std::span<const int64_t> shape) {
  uint64_t bits = 1;
  const auto multiply = [&bits](uint64_t factor) {
    return !__builtin_mul_overflow(bits, factor, &bits);
  };
  for (const int64_t extent : shape) {
    if (extent < 0 || !multiply(static_cast<uint64_t>(extent))) {
      return std::nullopt;
    }
  }
  if (!multiply(static_cast<uint64_t>(dtype_bits(dtype))) || bits % 8 != 0) {
    return std::nullopt;
  }
  return static_cast<int64_t>(bits / 8);
}

const TensorEntry* TensorHead::find(std::string_view name) const {
  const auto found = std::find_if(entries.begin(), entries.end(),
                                  [&](const TensorEntry& entry) { return entry.name == name; });
  return found == entries.end() ? nullptr : &*found;
}

Result<int64_t> tensor_head_bytes(std::span<const std::byte> first_bytes, int64_t file_bytes,
                                  std::string_view file) {
  const auto fail = [&](const std::string& what) {
    return Error{Errc::corrupt, "registry: " + std::string(file) + ": " + what};
  };
  if (first_bytes.size() < 8 || file_bytes < 8) {
    return fail("it has " + std::to_string(file_bytes) +
                " bytes; a safetensors file begins with 8 bytes of length");
  }
  uint64_t length = 0;
  for (size_t i = 8; i-- > 0;) {
    length = (length << 8U) | std::to_integer<uint64_t>(first_bytes[i]);
  }
  if (length > uint64_t{kTensorHeaderBytesMax}) {
    return fail("its head announces " + std::to_string(length) + " bytes; at most " +
                std::to_string(kTensorHeaderBytesMax) + " are allowed");
  }
  if (static_cast<int64_t>(length) > file_bytes - 8) {
    return fail("its head announces " + std::to_string(length) + " bytes, but only " +
                std::to_string(file_bytes - 8) + " follow (truncated file)");
  }
  return static_cast<int64_t>(length);
}

Result<TensorHead> parse_tensor_head(std::string_view json, int64_t file_bytes,
                                     std::string_view file) {
  HR_TRY(auto head, HeadParser(json, file).run());
  head.data_offset = 8 + static_cast<int64_t>(json.size());
  head.data_bytes = file_bytes - head.data_offset;
  HR_TRY(check_ranges(&head.entries, head.data_bytes, file));
  return head;
}

Result<std::string> write_tensor_head(const std::vector<TensorEntry>& tensors,
                                      const std::map<std::string, std::string>& metadata,
                                      TensorOrder order_by, std::vector<size_t>* order,
                                      int64_t pad_to) {
  HR_TRY(check_entries(tensors));
  order->resize(tensors.size());
  std::iota(order->begin(), order->end(), size_t{0});
  if (order_by == TensorOrder::by_alignment) {
    std::sort(order->begin(), order->end(), [&](size_t a, size_t b) {
      const int64_t bits_a = dtype_bits(tensors[a].dtype);
      const int64_t bits_b = dtype_bits(tensors[b].dtype);
      return bits_a != bits_b ? bits_a > bits_b : tensors[a].name < tensors[b].name;
    });
  }
  std::string json = "{\"__metadata__\":{";
  bool first = true;
  for (const auto& [key, value] : metadata) {
    json += (first ? "" : ",") + json_quote(key) + ":" + json_quote(value);
    first = false;
  }
  json += "}";
  int64_t begin = 0;
  for (const size_t index : *order) {
    const int64_t bytes = tensors[index].end - tensors[index].begin;
    json += "," + entry_json(tensors[index], begin, begin + bytes);
    begin += bytes;
  }
  json += "}";
  const size_t needed = (8 + json.size() + 63) / 64 * 64;
  const size_t total = pad_to > 0 ? static_cast<size_t>(pad_to) : needed;
  if (total < 8 + json.size() || static_cast<int64_t>(total) - 8 > kTensorHeaderBytesMax) {
    return Error{Errc::invalid_argument, "registry: a model file's head of " +
                                             std::to_string(8 + json.size()) +
                                             " bytes does not fit in " + std::to_string(total)};
  }
  json.append(total - 8 - json.size(), ' ');
  std::string head(8, '\0');
  for (size_t i = 0; i < 8; ++i) {
    head[i] = static_cast<char>((json.size() >> (8 * i)) & 0xFFU);
  }
  return head + json;
}

}  // namespace headrace::registry
