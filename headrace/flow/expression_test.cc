// SPDX-License-Identifier: Apache-2.0
#include "headrace/flow/expression.h"

#include <doctest/doctest.h>
