// SPDX-License-Identifier: Apache-2.0
// Plain ustar archives of regular files, nothing else: what an export is made of.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "headrace/base/export.h"
#include "headrace/base/result.h"

namespace headrace::registry {

inline constexpr size_t kTarBlock = 512;
using TarBlock = std::array<char, kTarBlock>;

struct TarEntry {
  std::string name;
  int64_t bytes = 0;
};

/// Header of one file: mode 0444, owner 0, time 0, so that equal content gives equal bytes. Sizes
/// from 8 GiB use the base-256 form that GNU tar, bsdtar and Python read. `name` has at most 100
/// bytes.
HR_API TarBlock tar_header(const TarEntry& entry);

/// Parse one header block. nullopt for the zero block that ends an archive. `corrupt` for a wrong
/// checksum, and for everything that is no regular file in a safe place: links, folders, devices,
/// extended headers, absolute names, "..", sizes beyond `bytes_max`.
HR_API Result<std::optional<TarEntry>> parse_tar_header(std::span<const char> block,
                                                        int64_t bytes_max);

inline int64_t tar_padding(int64_t bytes) { return (512 - bytes % 512) % 512; }

}  // namespace headrace::registry
