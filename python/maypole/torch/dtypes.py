# SPDX-License-Identifier: Apache-2.0
"""Dtypes at the border: the numbers of base/dtype.h."""

import torch

BYTE = 4
NUMBERS = {torch.float32: 0, torch.float64: 1, torch.bfloat16: 2, torch.float16: 3, torch.uint8: BYTE}
REDUCIBLE = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
