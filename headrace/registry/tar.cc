// SPDX-License-Identifier: Apache-2.0
// POSIX.1-1988 ustar, IEEE Std 1003.1 "pax", section "ustar Interchange Format".
#include "headrace/registry/tar.h"

#include <algorithm>

#include "headrace/base/check.h"
#include "headrace/base/json.h"

namespace headrace::registry {

namespace {

struct Field {
  size_t offset;
  size_t length;
};
constexpr Field kName = {0, 100};
constexpr Field kMode = {100, 8};
constexpr Field kUid = {108, 8};
constexpr Field kGid = {116, 8};
constexpr Field kSize = {124, 12};
constexpr Field kTime = {136, 12};
constexpr Field kChecksum = {148, 8};
constexpr size_t kType = 156;
constexpr Field kLink = {157, 100};
constexpr Field kMagic = {257, 6};
constexpr Field kPrefix = {345, 155};
constexpr int64_t kOctalMax = int64_t{1} << 33;  // 11 octal digits

void put_octal(TarBlock* block, Field field, int64_t value) {
  for (size_t i = field.length - 1; i-- > 0;) {
    (*block)[field.offset + i] = static_cast<char>('0' + (value & 7));
    value >>= 3;
  }
  (*block)[field.offset + field.length - 1] = '\0';
}

void put_size(TarBlock* block, int64_t value) {
  if (value < kOctalMax) {
    put_octal(block, kSize, value);
    return;
  }
  for (size_t i = kSize.length; i-- > 1;) {
    (*block)[kSize.offset + i] = static_cast<char>(value & 0xFF);
    value >>= 8;
  }
  (*block)[kSize.offset] = static_cast<char>(0x80);
}

/// Sum of all bytes with the checksum field read as blanks.
int64_t checksum_of(std::span<const char> block) {
  int64_t sum = 0;
  for (size_t i = 0; i < kTarBlock; ++i) {
    const bool own = i >= kChecksum.offset && i < kChecksum.offset + kChecksum.length;
    sum += own ? ' ' : static_cast<unsigned char>(block[i]);
  }
  return sum;
}

std::string text_of(std::span<const char> block, Field field) {
  const auto begin = block.begin() + static_cast<std::ptrdiff_t>(field.offset);
  return {begin, std::find(begin, begin + static_cast<std::ptrdiff_t>(field.length), '\0')};
}

std::optional<int64_t> number_of(std::span<const char> block, Field field) {
  const auto bytes = block.subspan(field.offset, field.length);
  uint64_t value = 0;
  if ((static_cast<unsigned char>(bytes[0]) & 0x80U) != 0) {
    for (size_t i = 0; i < bytes.size(); ++i) {
      const auto byte = static_cast<unsigned char>(bytes[i]) & (i == 0 ? 0x7FU : 0xFFU);
      if (value >> 55U != 0) {
        return std::nullopt;
      }
      value = (value << 8U) | byte;
    }
    return static_cast<int64_t>(value);
  }
  size_t i = 0;
  while (i < bytes.size() && bytes[i] == ' ') {
    ++i;
  }
  const size_t first = i;
  for (; i < bytes.size() && bytes[i] >= '0' && bytes[i] <= '7'; ++i) {
    value = (value << 3U) | static_cast<uint64_t>(bytes[i] - '0');
  }
  const bool ended = i == bytes.size() || bytes[i] == '\0' || bytes[i] == ' ';
  return i > first && ended ? std::optional<int64_t>(static_cast<int64_t>(value)) : std::nullopt;
}

bool is_safe(std::string_view name) {
  if (name.empty() || name.front() == '/' || name.find('\\') != std::string_view::npos) {
    return false;
  }
  for (size_t begin = 0; begin <= name.size();) {
    const size_t end = std::min(name.find('/', begin), name.size());
    const std::string_view part = name.substr(begin, end - begin);
    if (part.empty() || part == "." || part == "..") {
      return false;
    }
    begin = end + 1;
  }
  return true;
}

Error refuse(const std::string& name, const std::string& what) {
  return Error{Errc::corrupt, "registry: tar entry " + json_quote(name) + ": " + what +
                                  "; an export holds plain files only"};
}

}  // namespace

TarBlock tar_header(const TarEntry& entry) {
  HR_CHECK(entry.name.size() <= kName.length && entry.bytes >= 0, entry.name);
  TarBlock block = {};
  std::copy(entry.name.begin(), entry.name.end(), block.begin());
  put_octal(&block, kMode, 0444);
  put_octal(&block, kUid, 0);
  put_octal(&block, kGid, 0);
  put_size(&block, entry.bytes);
  put_octal(&block, kTime, 0);
  block[kType] = '0';
  const std::string_view magic("ustar\00000", 8);
  std::copy(magic.begin(), magic.end(), block.begin() + kMagic.offset);
  put_octal(&block, {kChecksum.offset, 7}, checksum_of(block));
  block[kChecksum.offset + 7] = ' ';
  return block;
}

Result<std::optional<TarEntry>> parse_tar_header(std::span<const char> block, int64_t bytes_max) {
  HR_CHECK(block.size() == kTarBlock, "a whole block");
  if (std::all_of(block.begin(), block.end(), [](char c) { return c == '\0'; })) {
    return std::optional<TarEntry>();
  }
  TarEntry entry;
  entry.name = text_of(block, kName);
  const auto checksum = number_of(block, kChecksum);
  if (!checksum || *checksum != checksum_of(block)) {
    return refuse(entry.name, "the header's checksum does not fit");
  }
  if (text_of(block, {kMagic.offset, 5}) != "ustar" || !text_of(block, kPrefix).empty()) {
    return refuse(entry.name, "this is no ustar header without prefix");
  }
  const char type = block[kType];
  if ((type != '0' && type != '\0') || !text_of(block, kLink).empty()) {
    return refuse(entry.name, std::string("type '") + (type == '\0' ? '0' : type) +
                                  "' (link, folder, device or extension)");
  }
  if (!is_safe(entry.name)) {
    return refuse(entry.name, "the name is absolute or leaves its folder");
  }
  const auto bytes = number_of(block, kSize);
  if (!bytes || *bytes < 0 || *bytes > bytes_max) {
    return refuse(entry.name, "its size is not within " + std::to_string(bytes_max) + " bytes");
  }
  entry.bytes = *bytes;
  return std::optional<TarEntry>(std::move(entry));
}

}  // namespace headrace::registry
