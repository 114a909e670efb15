// SPDX-License-Identifier: Apache-2.0
// Which of Highway's targets the kernels are compiled for; to be included before Highway.
#pragma once

// On x86 the plain fall-back, AVX2 and AVX-512 cover the machines of the last ten years; what lies
// between them would only add compile time. The tiles are arrays of vectors, so sizeless vectors
// (SVE, RVV) are out.
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#include <hwy/targets.h>

#include <cstddef>
#include <cstdint>

namespace headrace::base {

struct NamedTarget {
  int64_t target;
  const char* name;
};

/// Best first; the last is there on every machine.
inline constexpr NamedTarget kNamedTargets[] = {
    {HWY_AVX3, "avx512"},
    {HWY_AVX2, "avx2"},
    {HWY_NEON, "neon"},
    {HWY_PPC8, "ppc8"},
    {HWY_SCALAR | HWY_EMU128, "scalar"},
};

/// Call `use(target, name)` for each of them that this build and this machine have.
template <typename Use>
void for_each_target(Use use) {
  const int64_t supported = hwy::SupportedTargets() | HWY_SCALAR | HWY_EMU128;
  for (const NamedTarget& one : kNamedTargets) {
    if (const int64_t target = one.target & supported & HWY_TARGETS; target != 0) {
      use(target, one.name);
    }
  }
}

/// Place of `target` in the tables that HWY_EXPORT makes.
inline size_t target_index(int64_t target) {
  if constexpr ((HWY_TARGETS & (HWY_TARGETS - 1)) == 0) {
    return 0;  // one target only: a table of one entry
  }
  hwy::ChosenTarget chosen;
  chosen.Update(target);
  return chosen.GetIndex();
}

}  // namespace headrace::base
