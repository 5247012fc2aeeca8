// The products of sparse.py on the CPU. Connection j of neuron i goes to neuron targets[i, j] with weights[i, j].

#include <algorithm>
#include <cstdint>

#include "brainevent/common.h"
#include "brainevent/parallel.h"

namespace {

/// Calls `body` with a pointer to the targets, in the integer type that they have.
template <typename Body>
void with_targets(const BE::Tensor& targets, Body body) {
    if (targets.dtype() == BE::DType::UInt16) return body(targets.data_ptr<uint16_t>());
    body(targets.data_ptr<int32_t>());
}

/// Calls `body(begin, end)` for parts of the rows, on the threads of XLA. A part has 10,000 connections or more.
template <typename Body>
void for_rows(int64_t rows, int64_t connections, Body body) {
    BE::parallel_for(rows, 1 + 10000 / std::max<int64_t>(connections, 1), body);
}

/// Sums of `weights * values[targets]` over one row, for kWidth samples whose values lie side by side. Eight sums run at
/// once: those of eight samples, or of fewer samples in several parts.
template <int kWidth, typename Target>
void gather_row(const Target* targets, const float* weights, int64_t n, const float* values, int64_t stride,
                float (&sums)[kWidth]) {
    constexpr int kParts = 8 / kWidth;
    float parts[kParts][kWidth] = {};
    int64_t j = 0;
    for (; j + kParts <= n; j += kParts) {
        for (int part = 0; part < kParts; ++part) {
            const float* from = values + targets[j + part] * stride;
            for (int s = 0; s < kWidth; ++s) parts[part][s] += weights[j + part] * from[s];
        }
    }
    for (; j < n; ++j) {
        for (int s = 0; s < kWidth; ++s) parts[0][s] += weights[j] * values[targets[j] * stride + s];
    }
    for (int s = 0; s < kWidth; ++s) {
        sums[s] = 0.0f;
        for (int part = 0; part < kParts; ++part) sums[s] += parts[part][s];
    }
}

template <int kWidth, typename Target>
void gather_rows(const Target* targets, const BE::Tensor& weights, const float* values, int64_t stride, float* out) {
    const int64_t rows = weights.size(0), n = weights.size(1);
    const float* all_weights = weights.data_ptr<float>();
    for_rows(rows, n, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
            float sums[kWidth];
            gather_row<kWidth>(targets + i * n, all_weights + i * n, n, values, stride, sums);
            for (int s = 0; s < kWidth; ++s) out[s * rows + i] = sums[s];
        }
    });
}

/// Adds spikes[b, i] * values[b, targets[i, j]] to out[i, j].
void add_products(const BE::Tensor& spikes, const BE::Tensor& targets, const BE::Tensor& values, BE::Tensor& out) {
    const int64_t batch = spikes.size(0), post = values.size(1), pre = out.size(0), n = out.size(1);
    with_targets(targets, [&](const auto* all_targets) {
        for (int64_t b = 0; b < batch; ++b) {
            const float* events = spikes.data_ptr<float>() + b * pre;
            const float* from = values.data_ptr<float>() + b * post;
            for (int64_t i = 0; i < pre; ++i) {
                const float spike = events[i];
                if (spike == 0.0f) continue;
                const auto* target = all_targets + i * n;
                float* sums = out.data_ptr<float>() + i * n;
                for (int64_t j = 0; j < n; ++j) sums[j] += spike * from[target[j]];
            }
        }
    });
}

}  // namespace

// out[b, targets[i, j]] += spikes[b, i] * weights[i, j]; a neuron without a spike costs nothing but a look.
// @BE currents arg[b pre] arg[pre k] arg[pre k] ret[b attr.post]:float32 attr.post parallel[b] reduce[pre k]
void currents(const BE::Tensor spikes, const BE::Tensor targets, const BE::Tensor weights, BE::Tensor out,
              int64_t post) {
    const int64_t batch = spikes.size(0), pre = weights.size(0), n = weights.size(1);
    std::fill_n(out.data_ptr<float>(), out.numel(), 0.0f);
    with_targets(targets, [&](const auto* all_targets) {
        for (int64_t b = 0; b < batch; ++b) {
            const float* events = spikes.data_ptr<float>() + b * pre;
            float* sums = out.data_ptr<float>() + b * post;
            for (int64_t i = 0; i < pre; ++i) {
                const float spike = events[i];
                if (spike == 0.0f) continue;
                const auto* target = all_targets + i * n;
                const float* weight = weights.data_ptr<float>() + i * n;
                for (int64_t j = 0; j < n; ++j) sums[target[j]] += spike * weight[j];
            }
        }
    });
}

// out[b, i] = sum over j of weights[i, j] * gradients[targets[i, j], b]
// @BE spike_gradients arg[post b] arg[pre k] arg[pre k] ret[b pre]:float32 parallel[b pre] reduce[k]
void spike_gradients(const BE::Tensor gradients, const BE::Tensor targets, const BE::Tensor weights, BE::Tensor out) {
    const int64_t batch = gradients.size(1), pre = weights.size(0);
    with_targets(targets, [&](const auto* all_targets) {
        for (int64_t b = 0; b < batch;) {
            const float* values = gradients.data_ptr<float>() + b;
            float* sums = out.data_ptr<float>() + b * pre;
            const int width = batch - b >= 8 ? 8 : batch - b >= 4 ? 4 : 1;
            if (width == 8) gather_rows<8>(all_targets, weights, values, batch, sums);
            if (width == 4) gather_rows<4>(all_targets, weights, values, batch, sums);
            if (width == 1) gather_rows<1>(all_targets, weights, values, batch, sums);
            b += width;
        }
    });
}

// out[i, j] = sum over b of spikes[b, i] * gradients[b, targets[i, j]]
// @BE weight_gradients arg[b pre] arg[pre k] arg[b post] ret[pre k]:float32 parallel[pre k] reduce[b]
void weight_gradients(const BE::Tensor spikes, const BE::Tensor targets, const BE::Tensor gradients, BE::Tensor out) {
    std::fill_n(out.data_ptr<float>(), out.numel(), 0.0f);
    add_products(spikes, targets, gradients, out);
}

// weights[i, j] += sum over b of spikes[b, i] * changes[b, targets[i, j]], in place
// @BE learn arg[b pre] arg[pre k] inout[pre k]:float32 arg[b post] parallel[pre k]
void learn(const BE::Tensor spikes, const BE::Tensor targets, BE::Tensor weights, const BE::Tensor changes) {
    add_products(spikes, targets, changes, weights);
}
