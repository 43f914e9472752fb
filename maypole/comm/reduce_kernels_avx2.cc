// SPDX-License-Identifier: Apache-2.0
// Built with -mavx2 -mf16c (see CMakeLists.txt); called only where the processor has both.
#include "maypole/comm/reduce_kernels_impl.h"

namespace maypole::comm {

extern const ReduceKernels kAvx2ReduceKernels;
const ReduceKernels kAvx2ReduceKernels = kKernels;

}  // namespace maypole::comm
