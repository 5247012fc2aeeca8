#include "brainevent/common.h"
#include "expect.h"

struct Row {
  BE::DType dtype;
  int value;
  size_t size;
  const char* name;
};

constexpr Row kRows[] = {
    {BE::DType::Float16, 0, 2, "float16"},
    {BE::DType::Float32, 1, 4, "float32"},
    {BE::DType::Float64, 2, 8, "float64"},
    {BE::DType::BFloat16, 3, 2, "bfloat16"},
    {BE::DType::Int8, 4, 1, "int8"},
    {BE::DType::Int16, 5, 2, "int16"},
    {BE::DType::Int32, 6, 4, "int32"},
    {BE::DType::Int64, 7, 8, "int64"},
    {BE::DType::UInt8, 8, 1, "uint8"},
    {BE::DType::UInt16, 9, 2, "uint16"},
    {BE::DType::UInt32, 10, 4, "uint32"},
    {BE::DType::UInt64, 11, 8, "uint64"},
    {BE::DType::Bool, 12, 1, "bool"},
    {BE::DType::Complex64, 13, 8, "complex64"},
    {BE::DType::Complex128, 14, 16, "complex128"},
    {BE::DType::Float8E5M2, 15, 1, "float8_e5m2"},
    {BE::DType::Float8E8M0FNU, 22, 1, "float8_e8m0fnu"},
    {BE::DType::Int2, 23, 0, "int2"},
    {BE::DType::Float4E2M1FN, 27, 0, "float4_e2m1fn"},
    {BE::DType::Invalid, 255, 0, "invalid"},
};

static_assert(BE::dtype_size(BE::DType::Float64) == 8, "usable in constant expressions");
static_assert(BE::dtype_bits(BE::DType::Float64) == 64 && BE::dtype_bits(BE::DType::Int4) == 4, "likewise");
static_assert(BE::dtype_bits(BE::DType::UInt2) == 2 && BE::dtype_bits(BE::DType::Invalid) == 0, "");
static_assert(BE::dtype_name(BE::DType::Bool)[0] == 'b', "usable in constant expressions");
static_assert(sizeof(BE::DType) == 1, "one byte");

int main() {
  for (const Row& row : kRows) {
    EXPECT(static_cast<int>(row.dtype) == row.value);
    EXPECT(BE::dtype_size(row.dtype) == row.size);
    EXPECT_TEXT(BE::dtype_name(row.dtype), row.name);
  }
  EXPECT(BE::dtype_size(static_cast<BE::DType>(77)) == 0);
  EXPECT_TEXT(BE::dtype_name(static_cast<BE::DType>(77)), "invalid");
}
