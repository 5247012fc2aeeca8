// A batched FFT along the last axis: see fft.py. The same with XLA's own header is in by_hand.cc.

#include "brainevent/common.h"
#include "brainevent/parallel.h"
#include "brainevent/state.h"

#include "plan.h"

enum class Norm { backward, ortho, forward };

struct Plan : FftPlan {
    explicit Plan(const BE::Attributes& given)
        : FftPlan(given.get<int64_t>("n"), given.get<std::string>("norm"), given.get<bool>("inverse")) {}
};

/// The discrete Fourier transform of each row, cut or filled with zeros to n.
// @BE fft arg[... m]:complex64 ret[... attr.n]:complex64 state scratch attr.n attr.norm attr.inverse
void fft(const BE::Tensor x, BE::Tensor y, const BE::State<Plan>& plan, BE::Workspace workspace, int64_t n,
         Norm norm = Norm::backward, bool inverse = false) {
    const Complex* from = x.data_ptr<Complex>();
    Complex* to = y.data_ptr<Complex>();
    const int64_t m = x.size(-1);
    BE::parallel_for(y.numel() / n, 1 + 4096 / n, [&] (int64_t begin, int64_t end) {
        Complex* room = workspace.allocate_as<Complex>(n);
        for (int64_t row = begin; row < end; ++row) plan->run(from + row * m, m, to + row * n, room);
    });
}
