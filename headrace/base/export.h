// SPDX-License-Identifier: Apache-2.0
// Mark what libheadrace.so exports; everything else is hidden.
#pragma once

#define HR_API __attribute__((visibility("default")))
