// SPDX-License-Identifier: Apache-2.0
#pragma once

// Element-wise work on gradient memory, for every dtype; half precision is computed in float32.

#include "maypole/base/dtype.h"

#include <cstddef>

namespace maypole::pipeline {

/// target[k] += source[k].
void add_elements(base::DType dtype, std::size_t count, std::byte* target, const std::byte* source);

/// data[k] *= factor.
void scale_elements(base::DType dtype, std::size_t count, std::byte* data, double factor);

/// Sum of |data[k]|^power, or for an infinite `power` the largest |data[k]| (NaN if there is one), in double.
[[nodiscard]] double sum_of_powers(base::DType dtype, std::size_t count, const std::byte* data, double power);

/// Adds up what sum_of_powers returned for the parts of a vector; and the norm that the total stands for.
[[nodiscard]] double combine_powers(double a, double b, double power);
[[nodiscard]] double norm_from_powers(double total, double power);

}  // namespace maypole::pipeline
