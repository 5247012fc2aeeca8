#include "brainevent/common.h"
#include "threshold.h"

// @BE fire arg[n] ret[n] attr.threshold:float32=1.0
void fire(const BE::Tensor v, BE::Tensor spikes, float threshold) {
  const float* from = v.data_ptr<float>();
  float* to = spikes.data_ptr<float>();
  for (int64_t i = 0; i < v.numel(); ++i) to[i] = mykernels::spike(from[i], threshold);
}
