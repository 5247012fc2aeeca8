// The operation of fft.cc, written with XLA's own header.

#include "xla/ffi/api/ffi.h"

#include "plan.h"

#include <algorithm>
#include <exception>
#include <memory>

namespace ffi = xla::ffi;

struct Plan : FftPlan {
    using FftPlan::FftPlan;
    static ffi::TypeId id;
};
ffi::TypeId Plan::id = {};
static const ffi::TypeInfo info = ffi::MakeTypeInfo<Plan>();

extern "C" const void* plan_type_id() { return &Plan::id; }
extern "C" const void* plan_type_info() { return &info; }

static ffi::ErrorOr<std::unique_ptr<Plan>> make_plan(int64_t n, std::string_view norm, bool inverse) {
    try {
        return std::make_unique<Plan>(n, norm, inverse);
    } catch (const std::exception& error) {
        return ffi::Unexpected(ffi::Error::InvalidArgument(std::string("fft: ") + error.what()));
    }
}

XLA_FFI_DEFINE_HANDLER_SYMBOL(fft_instantiate, make_plan,
                              ffi::Ffi::BindInstantiate()
                                  .Attr<int64_t>("n")
                                  .Attr<std::string_view>("norm")
                                  .Attr<bool>("inverse"));

// Tasks may outlive the handler, and XLA waits for the future: a handler that waited for its own tasks could hang.
static ffi::Future fft(ffi::ThreadPool pool, Plan* plan, ffi::Buffer<ffi::C64> x, ffi::ResultBuffer<ffi::C64> y,
                       int64_t n, std::string_view, bool) {
    const auto from_shape = x.dimensions(), to_shape = y->dimensions();
    bool fits = from_shape.size() > 0 && from_shape.size() == to_shape.size() && to_shape.back() == n;
    for (size_t i = 0; fits && i + 1 < to_shape.size(); ++i) fits = from_shape[i] == to_shape[i];
    if (!fits) {
        ffi::Promise refused;
        ffi::Future result(refused);
        refused.SetError(ffi::Error::InvalidArgument("fft: x and the result differ in more than the last axis, or it is not n"));
        return result;
    }
    const Complex* from = x.typed_data();
    Complex* to = y->typed_data();
    const int64_t m = from_shape.back(), rows = static_cast<int64_t>(y->element_count()) / n;
    const int64_t grain = 1 + 4096 / n, threads = std::max<int64_t>(1, pool.num_threads());
    const int64_t size = std::max(grain, (rows + 4 * threads - 1) / (4 * threads));
    const int64_t parts = std::max<int64_t>(1, (rows + size - 1) / size);
    ffi::CountDownPromise done(parts);
    ffi::Future result(done);
    auto run = [=](int64_t part) mutable {
        try {
            static thread_local std::vector<Complex> room;
            room.resize(std::max(room.size(), static_cast<size_t>(n)));
            for (int64_t row = part * size; row < std::min(rows, (part + 1) * size); ++row)
                plan->run(from + row * m, m, to + row * n, room.data());
            done.CountDown();
        } catch (const std::exception& error) {
            done.CountDown(ffi::Error::Internal(std::string("fft: ") + error.what()));
        }
    };
    for (int64_t part = 1; part < parts; ++part) pool.Schedule([run, part]() mutable { run(part); });
    run(0);
    return result;
}

XLA_FFI_DEFINE_HANDLER_SYMBOL(fft_execute, fft,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Ctx<ffi::State<Plan>>()
                                  .Arg<ffi::Buffer<ffi::C64>>()
                                  .Ret<ffi::Buffer<ffi::C64>>()
                                  .Attr<int64_t>("n")
                                  .Attr<std::string_view>("norm")
                                  .Attr<bool>("inverse"));
