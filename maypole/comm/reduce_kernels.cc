// SPDX-License-Identifier: Apache-2.0
#include "maypole/comm/reduce_kernels.h"

#include "maypole/comm/reduce_kernels_impl.h"

namespace maypole::comm {

#ifdef MAYPOLE_HAVE_AVX2_KERNELS
extern const ReduceKernels kAvx2ReduceKernels;
#endif

const ReduceKernels& portable_reduce_kernels() { return kKernels; }

const ReduceKernels& reduce_kernels() {
#ifdef MAYPOLE_HAVE_AVX2_KERNELS
  static const bool has_avx2 = __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("f16c") != 0;
  if (has_avx2) {
    return kAvx2ReduceKernels;
  }
#endif
  return kKernels;
}

}  // namespace maypole::comm
