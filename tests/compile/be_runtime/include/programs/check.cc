// Everything BE_CHECK prints without any stream header in sight.
#include "brainevent/common.h"
#include "expect.h"

#ifdef _GLIBCXX_OSTREAM
#error "the header under test must not bring <ostream>"
#endif

namespace user {

enum class Mode : unsigned char { Fast = 200 };
enum Plain { plain = 7 };

struct Name {
  const char* data() const { return "name\0x"; }
  size_t size() const { return 4; }
};

struct Failure {
  const char* what() const { return "failure"; }
};

struct Index {
  operator int() const { return 5; }
};

struct Flag {
  explicit operator bool() const { return on; }
  bool on;
};

}  // namespace user

static void values() {
  EXPECT_PRINTED(true, "true");
  EXPECT_PRINTED('x', "x");
  EXPECT_PRINTED(static_cast<signed char>(-5), "-5");
  EXPECT_PRINTED(uint8_t{200}, "200");
  EXPECT_PRINTED(static_cast<short>(-3), "-3");
  EXPECT_PRINTED(static_cast<unsigned short>(3), "3");
  EXPECT_PRINTED(-42, "-42");
  EXPECT_PRINTED(42u, "42");
  EXPECT_PRINTED(43UL, "43");
  EXPECT_PRINTED(INT64_MIN, "-9223372036854775808");
  EXPECT_PRINTED(-9223372036854775807LL - 1, "-9223372036854775808");
  EXPECT_PRINTED(18446744073709551615ULL, "18446744073709551615");
  EXPECT_PRINTED(0.1f, "0.1");
  EXPECT_PRINTED(0.1, "0.1");
  EXPECT_PRINTED(1.0 / 3, "0.333333333333333");
  EXPECT_PRINTED(-1e300 * 1e300, "-inf");
  EXPECT_PRINTED(0.5L, "0.5");
  EXPECT_PRINTED("text", "text");
  EXPECT_PRINTED(static_cast<const char*>(nullptr), "(null)");
  char buffer[] = "buffer";
  char* pointer = buffer;
  EXPECT_PRINTED(pointer, "buffer");
  EXPECT_PRINTED(buffer, "buffer");
  EXPECT_PRINTED(nullptr, "nullptr");
  EXPECT_PRINTED(reinterpret_cast<void*>(0xabc0), "0xabc0");
  EXPECT_PRINTED(reinterpret_cast<const int*>(0x10), "0x10");
  EXPECT_PRINTED(BE::DType::BFloat16, "bfloat16");
  EXPECT_PRINTED(user::Mode::Fast, "200");
  EXPECT_PRINTED(user::plain, "7");
  EXPECT_PRINTED(user::Name(), "name");
  EXPECT_PRINTED(user::Failure(), "failure");
  EXPECT_PRINTED(user::Index(), "5");
}

static int evaluated = 0;
static int count() { return ++evaluated; }

static void evaluation() {
  BE_CHECK(true) << count();
  EXPECT(evaluated == 0);
  thrown_by<BE::CheckError>([] { BE_CHECK(false) << count() << count(); });
  EXPECT(evaluated == 2);
  int conditions = 0;
  BE_CHECK(++conditions == 1);
  EXPECT(conditions == 1);
  BE_CHECK(user::Flag{true}) << "an explicit conversion to bool will do";
}

template <class A, class B>
struct Unlike {
  static constexpr bool value = sizeof(A) != sizeof(B);
};

static int in_branches(int n) {
  if (n > 0)
    BE_CHECK(n < 10) << "n is " << n;
  else
    return -1;
  for (int i = 0; i < n; ++i) BE_CHECK(i != 5) << i;
  return n > 3 ? (BE_CHECK(n != 4), n) : 0;
}

static void syntax() {
  BE_CHECK(Unlike<int, char>::value);
  EXPECT(in_branches(0) == -1);
  EXPECT(in_branches(5) == 5);
  thrown_by<BE::CheckError>([] { in_branches(10); });
  thrown_by<BE::CheckError>([] { in_branches(6); });
  thrown_by<BE::CheckError>([] { in_branches(4); });
}

static void text() {
#line 500 "kernel.cu"
  const auto bare = thrown_by<BE::CheckError>([] { BE_CHECK(1 + 1 == 3); });
  EXPECT_TEXT(bare.what(), "kernel.cu:500: check failed: 1 + 1 == 3");
#line 510 "kernel.cu"
  const auto told =
      thrown_by<BE::CheckError>([] { BE_CHECK(Unlike<int, int>::value) << "have " << 3 << ", not " << 4; });
  EXPECT_TEXT(told.what(), "kernel.cu:511: check failed: Unlike<int, int>::value: have 3, not 4");
  char long_text[5001];
  memset(long_text, 'x', 5000);
  long_text[5000] = '\0';
  const auto wide = thrown_by<BE::CheckError>([&] { BE_CHECK(false) << long_text << "end"; });
  EXPECT(strlen(wide.what()) > 5000 && strcmp(wide.what() + strlen(wide.what()) - 3, "end") == 0);
}

static void errors() {
  static_assert(noexcept(BE::CheckError(*static_cast<const BE::CheckError*>(nullptr))), "thrown and caught by value");
  static_assert(noexcept(BE::CudaError(*static_cast<const BE::CudaError*>(nullptr))), "thrown and caught by value");
  BE::CheckError kept("");
  {
    const BE::CheckError first("why");
    BE::CheckError second(first);
    kept = second;
    kept = *&kept;
    second = BE::CheckError("something else");
    EXPECT_TEXT(first.what(), "why");
    EXPECT_TEXT(second.what(), "something else");
  }
  EXPECT_TEXT(kept.what(), "why");
  try {
    BE_CHECK(false);
  } catch (const std::exception& error) {
    EXPECT(strstr(error.what(), "check failed: false") != nullptr);
  }
}

// The CUDA macros look their names up late, so this file's stand-ins will do for the runtime.
enum cudaError_t { cudaSuccess = 0, cudaErrorInvalidConfiguration = 9, cudaErrorStreamCaptureUnsupported = 900 };
static cudaError_t last_error = cudaSuccess, sync_error = cudaSuccess;
static cudaError_t cudaGetLastError() {
  const cudaError_t error = last_error;
  last_error = cudaSuccess;
  return error;
}
static cudaError_t cudaDeviceSynchronize() { return last_error = sync_error; }
static const char* cudaGetErrorName(cudaError_t error) { return error == 9 ? "cudaErrorInvalid" : "cudaErrorOther"; }
static const char* cudaGetErrorString(cudaError_t) { return "in words"; }
static cudaError_t runtime_call(cudaError_t error, int) { return last_error = error; }

static void cuda() {
  BE_CUDA_CHECK(runtime_call(cudaSuccess, 0));
  if (evaluated == 0)
    BE_CHECK_KERNEL_LAUNCH();
  else
    BE_CHECK_KERNEL_LAUNCH_SYNC();
#line 600 "kernel.cu"
  const auto error = thrown_by<BE::CudaError>([] { BE_CUDA_CHECK(runtime_call(cudaErrorInvalidConfiguration, 1)); });
  EXPECT(error.code() == 9 && last_error == cudaSuccess);
  EXPECT_TEXT(error.what(),
              "kernel.cu:600: runtime_call(cudaErrorInvalidConfiguration, 1) failed: cudaErrorInvalid (9): in words; "
              "a grid or block dimension is 0 or too large; with an empty array, launch nothing");
  const auto newer = thrown_by<BE::CudaError>([] { BE_CUDA_CHECK(runtime_call(static_cast<cudaError_t>(222), 1)); });
  EXPECT(strstr(newer.what(), "the driver is older than the CUDA release that made the kernel's PTX; install a driver"));
  last_error = static_cast<cudaError_t>(1);
#line 610 "kernel.cu"
  const auto launch = thrown_by<BE::CudaError>([] { BE_CHECK_KERNEL_LAUNCH(); });
  EXPECT_TEXT(launch.what(), "kernel.cu:610: kernel launch failed: cudaErrorOther (1): in words; "
              "a grid or block dimension is 0 or too large; with an empty array, launch nothing");
  sync_error = cudaErrorStreamCaptureUnsupported;
  const auto sync = thrown_by<BE::CudaError>([] { BE_CHECK_KERNEL_LAUNCH_SYNC(); });
  EXPECT(sync.code() == 900 && strstr(sync.what(), "allow_cuda_graph=False") != nullptr);
  const BE::CudaError copy = sync;
  EXPECT(copy.code() == 900 && strcmp(copy.what(), sync.what()) == 0);
}

int main() {
  values();
  evaluation();
  syntax();
  text();
  errors();
  cuda();
}
