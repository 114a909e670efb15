// SPDX-License-Identifier: Apache-2.0
// Every bound of the registry in one table (the users' part: docs/registry.md); beyond one of them
// a call is `invalid_argument` naming the limit and the value.
#pragma once

#include <cstdint>

namespace headrace::registry {

inline constexpr int64_t kNameBytesMax = 512;
inline constexpr int64_t kSegmentBytesMax = 200;
inline constexpr int64_t kSegmentsMax = 8;
inline constexpr int64_t kAliasBytesMax = 63;
inline constexpr int64_t kDescriptionBytesMax = 64 << 10;
inline constexpr int64_t kTagValueBytesMax = 64 << 10;
inline constexpr int64_t kParamValueBytesMax = 16 << 10;
inline constexpr int64_t kKeyBytesMax = 250;
inline constexpr int64_t kMetricsMax = 1000;
inline constexpr int64_t kParamsMax = 1000;
inline constexpr int64_t kTagsMax = 1000;
inline constexpr int64_t kHeaderBytesMax = 16 << 20;
inline constexpr int64_t kArtifactsMax = 1000;
inline constexpr int64_t kArtifactPathBytesMax = 1024;
inline constexpr int64_t kFileBytesMax = int64_t{64} << 30;
inline constexpr int64_t kExportBytesMax = int64_t{1} << 40;
inline constexpr int64_t kPageRowsMax = 10000;
inline constexpr int64_t kOnceBytesMax = 1024;
inline constexpr int64_t kTextBytesMax = 4096;  ///< run ids, items, URLs, hosts

/// safetensors: what the reference reader allows, and what we allow beyond nothing.
inline constexpr int64_t kTensorHeaderBytesMax = 100'000'000;
inline constexpr int64_t kTensorsMax = 1'000'000;
inline constexpr int kTensorHeaderDepthMax = 16;

inline constexpr int64_t kBundleItemsMax = 4096;
inline constexpr int64_t kBundleBytesMax = int64_t{1} << 30;
inline constexpr int64_t kBundleReserveBytes = 64 << 10;
inline constexpr int64_t kOpenBundlesMax = 64;

inline constexpr int64_t kBatchRowsMax = 256;  ///< changes gathered into one transaction
inline constexpr int64_t kBatchMicrosMax = 5000;
inline constexpr int64_t kGcObjectsPerHold = 1000;
inline constexpr int64_t kStrayTempMicros = int64_t{3600} * 1'000'000;

}  // namespace headrace::registry
