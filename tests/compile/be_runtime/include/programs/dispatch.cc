#include <stdint.h>

#include <initializer_list>

#include "brainevent/common.h"
#include "brainevent/dispatch.h"
#include "expect.h"

using BE::DType;

#define LISTED(dtype, ...) DType::dtype,
constexpr DType kAll[] = {BE_INTERNAL_ELEMENT_TYPES(LISTED, ) DType::Invalid};

// Each branch must bind the alias to the C++ type of its dtype; every other dtype must throw.
template <class Dispatch>
static void expect_exactly(Dispatch dispatch, const char* supported) {
  for (DType dtype : kAll) {
    char padded[64];
    snprintf(padded, sizeof(padded), " %s ", BE::dtype_name(dtype));
    if (strstr(supported, padded) != nullptr) {
      EXPECT(dispatch(dtype) == dtype);
    } else {
      const auto error = thrown_by<BE::CheckError>([&] { dispatch(dtype); });
      EXPECT(strstr(error.what(), BE::dtype_name(dtype)) != nullptr && strstr(error.what(), "BE_DISPATCH_") != nullptr);
    }
  }
}

#define EXPECT_TYPES(MACRO, supported) \
  expect_exactly([](DType dtype) { return MACRO(dtype, scalar_t, { return BE::dtype_of<scalar_t>; }); }, supported)

template <class A, class B>
struct Pair {
  A first;
  B second;
};

static int calls = 0;
static DType dtype_with_effect(DType dtype) {
  ++calls;
  return dtype;
}

static void bodies() {
  int size = 0;
  BE_DISPATCH_FLOATING(dtype_with_effect(DType::Float64), scalar_t, {
    Pair<scalar_t, int> pair{scalar_t(1), 2};
    size = static_cast<int>(sizeof(pair.first)) + pair.second;
    if (size > 0) return;
    size = -1;
  });
  EXPECT(size == 10 && calls == 1);

  BE_DISPATCH_INTEGRAL(DType::Int8, unused_t, { size = 3; });
  EXPECT(size == 3);

  // The same macro inside itself, without one alias hiding the other.
  const int nested = BE_DISPATCH_FLOATING(DType::Float32, outer_t, {
    return BE_DISPATCH_FLOATING(DType::Float64, inner_t,
                                { return static_cast<int>(sizeof(outer_t) * 10 + sizeof(inner_t)); });
  });
  EXPECT(nested == 48);

}

static void pairs() {
  for (DType a : {DType::Int32, DType::Int64}) {
    for (DType b : {DType::Int32, DType::Int64}) {
      bool ran = false;
      BE_DISPATCH_SIGNED_INDEX_PAIR(a, b, IndexT, OffsetT, {
        ran = BE::dtype_of<IndexT> == a && BE::dtype_of<OffsetT> == b;
        Pair<IndexT, OffsetT> pair{0, 0};
        (void)pair;
      });
      EXPECT(ran);
    }
  }
  const auto first = thrown_by<BE::CheckError>(
      [] { BE_DISPATCH_SIGNED_INDEX_PAIR(DType::UInt32, DType::Int32, I, O, { (void)sizeof(Pair<I, O>); }); });
  EXPECT(strstr(first.what(), "uint32 of DType::UInt32") != nullptr);
  const auto second = thrown_by<BE::CheckError>(
      [] { BE_DISPATCH_SIGNED_INDEX_PAIR(DType::Int32, DType::Bool, I, O, { (void)sizeof(Pair<I, O>); }); });
  EXPECT(strstr(second.what(), "bool of DType::Bool") != nullptr);
}

static void messages() {
  const BE::Tensor x(nullptr, DType::Int8, 0, nullptr);
#line 700 "kernel.cu"
  const auto error = thrown_by<BE::CheckError>([&] { BE_DISPATCH_FLOATING(x.dtype(), T, { (void)T(); }); });
  EXPECT_TEXT(error.what(),
              "kernel.cu:700: BE_DISPATCH_FLOATING does not support dtype int8 of x.dtype(); "
              "supported are float32, float64");
  const BE::Tensor indices(nullptr, DType::Int64, 0, nullptr);
  BE_CHECK_CSR_INDICES_INT32(BE::Tensor(nullptr, DType::Int32, 0, nullptr));
  const auto wrong = thrown_by<BE::CheckError>([&] { BE_CHECK_CSR_INDICES_INT32(indices); });
  EXPECT(strstr(wrong.what(), "CSR indices must be int32, but indices is int64") != nullptr);
}

#define FLOATING " float32 float64 "
#define HALF " float16 bfloat16 "
#define INTEGRAL " int8 int16 int32 int64 uint8 uint16 uint32 uint64 "
#define COMPLEX " complex64 complex128 "
#define INDEX " int32 int64 "
#define FLOAT8                                                                                               \
  " float8_e5m2 float8_e4m3fn float8_e4m3b11fnuz float8_e5m2fnuz float8_e4m3fnuz float8_e4m3 float8_e3m4 " \
  "float8_e8m0fnu "
#define PACKED " int2 uint2 int4 uint4 float4_e2m1fn "

int main() {
  EXPECT_TYPES(BE_DISPATCH_FLOATING, FLOATING);
  EXPECT_TYPES(BE_DISPATCH_FLOATING_AND_HALF, FLOATING HALF);
  EXPECT_TYPES(BE_DISPATCH_INTEGRAL, " bool " INTEGRAL);
  EXPECT_TYPES(BE_DISPATCH_ALL_TYPES, " bool " FLOATING INTEGRAL);
  EXPECT_TYPES(BE_DISPATCH_COMPLEX, COMPLEX);
  EXPECT_TYPES(BE_DISPATCH_ALL, " bool " FLOATING HALF INTEGRAL COMPLEX);
  EXPECT_TYPES(BE_DISPATCH_FLOAT8, FLOAT8);
  EXPECT_TYPES(BE_DISPATCH_PACKED, PACKED);
  EXPECT_TYPES(BE_DISPATCH_SIGNED_INDEX, INDEX);
  EXPECT_TYPES(BE_DISPATCH_CSR_INDPTR, INDEX);
  bodies();
  pairs();
  messages();
}
