#pragma once

/// \file
/// The structures of TVM-FFI's C ABI (tvm/ffi/c_api.h) and of DLPack 1 (dlpack/dlpack.h), as far as calls need them.
///
/// They are repeated here so that a build needs neither header.

#include <stddef.h>
#include <stdint.h>

namespace BE::tvm_ffi {

/// `TVMFFITypeIndex`, as far as calls need it.
enum Kind : int32_t {
  kNone = 0,
  kInt = 1,
  kBool = 2,
  kFloat = 3,
  kPointer = 4,
  kDataType = 5,
  kArrayPointer = 7,
  kText = 8,
  kSmallText = 11,
  kFirstObject = 64,
  kTextObject = 65,
  kTensorObject = 70,
  kSequence = 71,
};

/// `DLDataType`.
struct ElementType {
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
};

/// `DLTensor`.
struct Array {
  void* data;
  int32_t device_type;
  int32_t device;
  int32_t ndim;
  ElementType type;
  const int64_t* shape;
  const int64_t* strides;
  uint64_t offset;
};
static_assert(sizeof(Array) == 48);

/// `TVMFFIAny`: a value of any kind.
struct Any {
  int32_t kind;
  uint32_t small_size;
  union {
    int64_t integer;
    double number;
    const void* pointer;
    const char* text;
    char small[8];
    ElementType type;
  };
};
static_assert(sizeof(Any) == 16);

/// `TVMFFIObject`: the head of each object. The lower half of `counts` counts strong references.
struct Object {
  uint64_t counts;
  int32_t kind;
  uint32_t padding;
  void (*destroy)(void* object, int flags);
};
static_assert(sizeof(Object) == 24);

/// `TVMFFIByteArray`.
struct Bytes {
  const char* data;
  size_t size;
};

/// `TVMFFISafeCallType`.
using SafeCall = int (*)(void* self, const Any* args, int32_t count, Any* result);

}  // namespace BE::tvm_ffi
