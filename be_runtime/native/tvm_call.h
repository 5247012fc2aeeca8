#pragma once

/// \file
/// Calls of a module's functions by PyTorch, NumPy and other users of TVM-FFI's C ABI.
///
/// Such a call becomes a call frame of XLA, with functions of this file in place of XLA's, and goes to the handler that
/// XLA calls. So arrays, attributes, axes and exceptions are treated as in a call from JAX. TVM-FFI is neither included
/// nor linked: its functions are looked up in the process when they are used.

#include <elf.h>
#include <link.h>
#include <stdio.h>
#include <string.h>

#include "arguments.h"
#include "brainevent/detail/tvm_abi.h"

BE_BEGIN_COLD
namespace BE::detail {
namespace {

using tvm_ffi::Any;
using tvm_ffi::Array;

/// An additional kind of `Any`: a caller without TVM-FFI passes room for an error's text.
constexpr int32_t kWantsText = -16962;
constexpr size_t kRoomForText = 2048;

enum : int32_t { kDlHost = 1, kDlCuda = 2, kDlCudaHost = 3, kDlCudaManaged = 13 };

/// Element types of DLPack and of XLA. Elements that share bytes have no agreed layout.
constexpr struct {
  uint8_t code, bits, xla;
} kDlTypes[] = {
    {2, 32, XLA_FFI_DataType_F32},         {2, 64, XLA_FFI_DataType_F64},       {2, 16, XLA_FFI_DataType_F16},
    {4, 16, XLA_FFI_DataType_BF16},        {0, 32, XLA_FFI_DataType_S32},       {0, 64, XLA_FFI_DataType_S64},
    {0, 8, XLA_FFI_DataType_S8},           {0, 16, XLA_FFI_DataType_S16},       {1, 8, XLA_FFI_DataType_U8},
    {1, 16, XLA_FFI_DataType_U16},         {1, 32, XLA_FFI_DataType_U32},       {1, 64, XLA_FFI_DataType_U64},
    {6, 8, XLA_FFI_DataType_PRED},         {5, 64, XLA_FFI_DataType_C64},       {5, 128, XLA_FFI_DataType_C128},
    {7, 8, XLA_FFI_DataType_F8E3M4},       {8, 8, XLA_FFI_DataType_F8E4M3},     {9, 8, XLA_FFI_DataType_F8E4M3B11FNUZ},
    {10, 8, XLA_FFI_DataType_F8E4M3FN},    {11, 8, XLA_FFI_DataType_F8E4M3FNUZ}, {12, 8, XLA_FFI_DataType_F8E5M2},
    {13, 8, XLA_FFI_DataType_F8E5M2FNUZ},  {14, 8, XLA_FFI_DataType_F8E8M0FNU},
};

BE_END_COLD
/// DLPack's types as one number each, by XLA's numbers; -1 for a type that DLPack lacks, since a wrong header may state
/// any 32 bits.
struct DlTypeOfXla {
  int64_t rows[256] = {};
  constexpr DlTypeOfXla() {
    for (int64_t& row : rows) row = -1;
    for (const auto& row : kDlTypes) rows[row.xla] = row.code | row.bits << 8 | 1 << 16;
  }
};
constexpr DlTypeOfXla kDlTypeOfXla{};

XLA_FFI_DataType dtype_of_dl(unsigned code, unsigned bits, unsigned lanes) noexcept {
  for (const auto& row : kDlTypes)
    if (row.code == code && row.bits == bits && lanes == 1) return static_cast<XLA_FFI_DataType>(row.xla);
  return XLA_FFI_DataType_INVALID;
}
BE_BEGIN_COLD

// The functions of TVM-FFI, in the library that is loaded already, whatever its scope. dlsym would bind a module to the
// version of the C library with which it was linked.

struct FoundLibrary {
  const char* name;
  uintptr_t base;
  const ElfW(Sym) * symbols;
  const char* texts;
  const uint32_t* hashes;
};

int look_for_library(dl_phdr_info* info, size_t, void* data) noexcept {
  FoundLibrary& found = *static_cast<FoundLibrary*>(data);
  const char* name = info->dlpi_name == nullptr ? "" : info->dlpi_name;
  if (const char* slash = strrchr(name, '/')) name = slash + 1;
  if (strcmp(name, found.name) != 0) return 0;
  found.base = info->dlpi_addr;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    if (info->dlpi_phdr[i].p_type != PT_DYNAMIC) continue;
    const auto* entry = reinterpret_cast<const ElfW(Dyn)*>(found.base + info->dlpi_phdr[i].p_vaddr);
    for (; entry->d_tag != DT_NULL; ++entry) {
      // glibc has added the base to these addresses, other C libraries have not.
      const uintptr_t at = entry->d_un.d_ptr < found.base ? found.base + entry->d_un.d_ptr : entry->d_un.d_ptr;
      if (entry->d_tag == DT_SYMTAB) found.symbols = reinterpret_cast<const ElfW(Sym)*>(at);
      if (entry->d_tag == DT_STRTAB) found.texts = reinterpret_cast<const char*>(at);
      if (entry->d_tag == DT_GNU_HASH) found.hashes = reinterpret_cast<const uint32_t*>(at);
    }
  }
  return 1;
}

/// Find a function of the libtvm_ffi.so in this process; null if there is none.
void* find_in_tvm(const char* name) noexcept {
  FoundLibrary found{"libtvm_ffi.so", 0, nullptr, nullptr, nullptr};
  dl_iterate_phdr(look_for_library, &found);
  if (found.symbols == nullptr || found.texts == nullptr || found.hashes == nullptr) return nullptr;
  uint32_t hash = 5381;
  for (const char* at = name; *at != 0; ++at) hash = hash * 33 + static_cast<unsigned char>(*at);
  const uint32_t buckets = found.hashes[0], first = found.hashes[1], words = found.hashes[2];
  const uint32_t* bucket = found.hashes + 4 + words * (sizeof(ElfW(Addr)) / 4);
  const uint32_t* chain = bucket + buckets;
  for (uint32_t i = bucket[hash % buckets]; i >= first; ++i) {
    const ElfW(Sym)& symbol = found.symbols[i];
    if ((chain[i - first] | 1) == (hash | 1) && symbol.st_shndx != SHN_UNDEF &&
        strcmp(found.texts + symbol.st_name, name) == 0)
      return reinterpret_cast<void*>(found.base + symbol.st_value);
    if (chain[i - first] & 1) break;
  }
  return nullptr;
}

BE_END_COLD
/// Return a function of TVM-FFI by its name, kept in `place` once it is found.
template <class Function>
Function* tvm_function(Function*& place, const char* name) noexcept {
  Function* known = __atomic_load_n(&place, __ATOMIC_RELAXED);
  if (__builtin_expect(known == nullptr, 0)) {
    known = reinterpret_cast<Function*>(find_in_tvm(name));
    __atomic_store_n(&place, known, __ATOMIC_RELAXED);
  }
  return known;
}
BE_BEGIN_COLD

void (*tvm_set_error)(const char*, const char*) = nullptr;
void* (*tvm_get_stream)(int32_t, int32_t) = nullptr;

/// Report an error to the caller, and return its result.
int raise_for_tvm(Any* result, const char* kind, const char* text) noexcept {
  if (result->kind == kWantsText) {
    snprintf(static_cast<char*>(const_cast<void*>(result->pointer)), kRoomForText, "%s: %s", kind, text);
  } else if (auto* set = tvm_function(tvm_set_error, "TVMFFIErrorSetRaisedFromCStr")) {
    set(kind, text);
  }
  return -1;
}

// The functions of XLA for a call from TVM-FFI.

struct TvmContext {
  int32_t device_type, device;
};
const TvmContext& context_of(const void* ctx) noexcept { return *static_cast<const TvmContext*>(ctx); }

struct TvmError {
  XLA_FFI_Error_Code code;
  char text[kRoomForText];
};

TvmError no_memory{XLA_FFI_Error_Code_RESOURCE_EXHAUSTED, "no memory for the message of an error"};

XLA_FFI_Error* create_error(XLA_FFI_Error_Create_Args* args) noexcept {
  TvmError* error = static_cast<TvmError*>(malloc(sizeof(TvmError)));
  if (error == nullptr) return reinterpret_cast<XLA_FFI_Error*>(&no_memory);
  error->code = args->errc;
  snprintf(error->text, sizeof(error->text), "%s", args->message);
  return reinterpret_cast<XLA_FFI_Error*>(error);
}

void destroy_error(XLA_FFI_Error_Destroy_Args* args) noexcept {
  TvmError* error = reinterpret_cast<TvmError*>(args->error);
  if (error != &no_memory) free(error);
}

void get_message(be_xla::ErrorArgs* args) noexcept { args->message = reinterpret_cast<TvmError*>(args->error)->text; }

BE_END_COLD
XLA_FFI_Error* get_stream_of_call(XLA_FFI_Stream_Get_Args* args) noexcept {
  const TvmContext& context = context_of(args->ctx);
  auto* get = tvm_function(tvm_get_stream, "TVMFFIEnvGetStream");
  args->stream = get == nullptr ? nullptr : get(context.device_type, context.device);
  return nullptr;
}

BE_BEGIN_COLD
XLA_FFI_Error* error_of(const char* message, XLA_FFI_Error_Code code) noexcept {
  XLA_FFI_Error_Create_Args args{sizeof(args), nullptr, message, code};
  return create_error(&args);
}

XLA_FFI_Error* allocate_memory(XLA_FFI_DeviceMemory_Allocate_Args* args) noexcept {
  args->data = nullptr;
  return error_of("the calling framework allocates no memory; declare the size in the arg_spec, as in scratch[4*n]",
                  XLA_FFI_Error_Code_UNIMPLEMENTED);
}

XLA_FFI_Error* free_memory(XLA_FFI_DeviceMemory_Free_Args*) noexcept { return nullptr; }

XLA_FFI_Error* count_threads(XLA_FFI_ThreadPool_NumThreads_Args* args) noexcept {
  *args->num_threads = 1;
  return nullptr;
}

XLA_FFI_Api make_api() noexcept {
  XLA_FFI_Api api{};
  api.struct_size = sizeof(api);
  api.api_version = {sizeof(api.api_version), nullptr, 0, be_xla::kStatesHaveStage};
  api.XLA_FFI_Error_Create = create_error;
  api.XLA_FFI_Error_Destroy = destroy_error;
  api.XLA_FFI_Stream_Get = get_stream_of_call;
  api.XLA_FFI_DeviceMemory_Allocate = allocate_memory;
  api.XLA_FFI_DeviceMemory_Free = free_memory;
  api.XLA_FFI_ThreadPool_NumThreads = count_threads;
  void (*const get)(be_xla::ErrorArgs*) = get_message;
  memcpy(reinterpret_cast<char*>(&api) + be_xla::kGetMessagePlace, &get, sizeof(get));
  return api;
}

const XLA_FFI_Api tvm_api = make_api();

/// An attribute of a call, as XLA passes it.
struct TvmAttr {
  union {
    XLA_FFI_Scalar scalar;
    XLA_FFI_Array array;
    XLA_FFI_ByteSpan text;
  };
  int64_t number;
};

BE_END_COLD
/// One call: functions that read its arguments, and report arguments that differ from their declaration.
struct TvmCall {
  const TvmSpec& spec;
  const Any* args;
  int32_t count;
  Any* result;
  TvmContext context{0, 0};
  const char* kind = "TypeError";

  const Any& at(int index) const noexcept {
    static constexpr Any kAbsent{};
    return index < count ? args[index] : kAbsent;
  }

  __attribute__((cold, format(printf, 3, 4))) bool fail(int index, const char* format, ...) const noexcept;
  static const char* kind_of(const Any& any) noexcept;

  static const Array* tensor_in(const Any& any) noexcept {
    if (any.kind != tvm_ffi::kArrayPointer && any.kind != tvm_ffi::kTensorObject) return nullptr;
    const size_t header = any.kind == tvm_ffi::kTensorObject ? sizeof(tvm_ffi::Object) : 0;
    return reinterpret_cast<const Array*>(static_cast<const char*>(any.pointer) + header);
  }

  /// Return whether a BE::Tensor can have so many dimensions; a wrong header may state a negative number.
  static bool has_rank(const Array& tensor) noexcept {
    return static_cast<uint32_t>(tensor.ndim) <= static_cast<uint32_t>(BE::Tensor::kMaxDims);
  }

  bool fail_device(int index, const Array& tensor) const noexcept;
  bool fail_layout(int index, const Array& tensor) const noexcept;
  bool read_number(int index, XLA_FFI_DataType dtype, XLA_FFI_Buffer* buffer, int64_t* room) const noexcept;
  bool read_attr(int index, XLA_FFI_DataType dtype, const AttrSpec& row, const AttrMore& more, XLA_FFI_AttrType* type,
                 TvmAttr* attr) const noexcept;
  bool read_attr_array(int index, XLA_FFI_DataType dtype, const AttrSpec& row, TvmAttr* attr) const noexcept;

  /// Return whether a tensor's memory is where the entry point runs, and on the device of the tensors before it.
  bool is_here(const Array& tensor) noexcept {
    const int32_t type = tensor.device_type;
    const bool fits = spec.be_is_cuda ? type == kDlCuda || type == kDlCudaManaged
                                      : type == kDlHost || type == kDlCudaHost || type == kDlCudaManaged;
    if (!fits || (spec.be_is_cuda && context.device_type != 0 && context.device != tensor.device)) return false;
    context = {spec.be_is_cuda ? kDlCuda : kDlHost, spec.be_is_cuda ? tensor.device : 0};
    return true;
  }

  /// Return whether a tensor is of the wanted type, and set a type that is not declared.
  bool read_type(int index, const Array& tensor, XLA_FFI_DataType* dtype) const noexcept {
    const XLA_FFI_DataType wanted = *dtype;
    *dtype = dtype_of_dl(tensor.type.code, tensor.type.bits, tensor.type.lanes);
    if (*dtype == XLA_FFI_DataType_INVALID)
      return fail(index, "has elements that a BE::Tensor can't hold (DLPack's type %d of %d bits, %d lanes)",
                  tensor.type.code, tensor.type.bits, tensor.type.lanes);
    return wanted == XLA_FFI_DataType_INVALID ||
           fail(index, "is of %s, but %s is declared", element_type_name(*dtype), element_type_name(wanted));
  }

  bool read_tensor(int index, XLA_FFI_DataType dtype, XLA_FFI_Buffer* buffer) noexcept {
    return read_tensor_here(index, dtype, buffer);
  }

  inline __attribute__((always_inline)) bool read_tensor_here(int index, XLA_FFI_DataType dtype,
                                                              XLA_FFI_Buffer* buffer) noexcept {
    const Any& any = at(index);
    const Array* found = tensor_in(any);
    if (found == nullptr) return fail(index, "is %s, not a tensor", kind_of(any));
    const Array& tensor = *found;
    uint32_t type;
    memcpy(&type, &tensor.type, sizeof(type));
    if (type != kDlTypeOfXla.rows[static_cast<uint8_t>(dtype)] && !read_type(index, tensor, &dtype)) return false;
    if (!is_here(tensor)) return fail_device(index, tensor);
    if (!has_rank(tensor)) return fail_layout(index, tensor);
    int64_t elements = 1;
    bool is_dense = true;
    for (int i = tensor.ndim - 1; i >= 0; --i) {
      is_dense &= tensor.strides == nullptr || tensor.shape[i] == 1 || tensor.strides[i] == elements;
      elements *= tensor.shape[i];
    }
    char* data = static_cast<char*>(tensor.data) + tensor.offset;
    const bool is_aligned = (reinterpret_cast<uintptr_t>(data) & 15) == 0;
    if (elements != 0 && !(is_dense && is_aligned && tensor.data != nullptr)) return fail_layout(index, tensor);
    *buffer = {sizeof(*buffer), nullptr, dtype, data, tensor.ndim, const_cast<int64_t*>(tensor.shape)};
    return true;
  }
};

BE_BEGIN_COLD
bool TvmCall::fail(int index, const char* format, ...) const noexcept {
  Message message;
  message.add("%s: ", spec.be_entry->name);
  if (index >= 0) {
    const char* name = spec.be_names;
    for (int left = index; left > 0; ++name) left -= *name == ' ';
    message.add("argument %d (%.*s) ", index, static_cast<int>(strcspn(name, " ")), name);
  }
  va_list values;
  va_start(values, format);
  char text[600];
  __builtin_vsnprintf(text, sizeof(text), format, values);
  va_end(values);
  message.add("%s", text);
  be_xla::make_utf8(message.text);
  raise_for_tvm(result, kind, message.text);
  return false;
}

const char* TvmCall::kind_of(const Any& any) noexcept {
  switch (any.kind) {
    case tvm_ffi::kNone: return "None";
    case tvm_ffi::kInt: return "an integer";
    case tvm_ffi::kBool: return "a bool";
    case tvm_ffi::kFloat: return "a float";
    case tvm_ffi::kDataType: return "an element type";
    case tvm_ffi::kArrayPointer:
    case tvm_ffi::kTensorObject: return "a tensor";
    case tvm_ffi::kText:
    case tvm_ffi::kSmallText:
    case tvm_ffi::kTextObject: return "a string";
    default: return "something else";
  }
}

bool TvmCall::fail_device(int index, const Array& tensor) const noexcept {
  const char* where = tensor.device_type == kDlHost ? "the CPU" : "a device of another kind";
  char cuda[40];
  if (tensor.device_type == kDlCuda || tensor.device_type == kDlCudaManaged) {
    snprintf(cuda, sizeof(cuda), "CUDA device %d", tensor.device);
    where = cuda;
  }
  if (spec.be_is_cuda && (tensor.device_type == kDlCuda || tensor.device_type == kDlCudaManaged))
    return fail(index, "is on %s, and tensors before it on CUDA device %d", where, context.device);
  return fail(index, "is on %s, but the function runs on %s", where, spec.be_is_cuda ? "a CUDA device" : "the CPU");
}

bool TvmCall::fail_layout(int index, const Array& tensor) const noexcept {
  if (!has_rank(tensor))
    return fail(index, "has %d dimensions; a BE::Tensor has at most %d", tensor.ndim, BE::Tensor::kMaxDims);
  int64_t stride = 1;
  for (int i = tensor.ndim - 1; i >= 0; --i) {
    if (tensor.strides != nullptr && tensor.shape[i] != 1 && tensor.strides[i] != stride)
      return fail(index, "is not contiguous: the stride of axis %d is %ld, not %ld; make a contiguous copy", i,
                  tensor.strides[i], stride);
    stride *= tensor.shape[i];
  }
  if (tensor.data == nullptr) return fail(index, "has no memory, as a fake tensor of PyTorch has none");
  return fail(index, "begins at an address that is not a multiple of 16, as a slice of a tensor may; make a copy");
}

/// Convert a number to a scalar of XLA; false for other values.
bool scalar_of(const Any& any, XLA_FFI_Scalar* scalar) noexcept {
  switch (any.kind) {
    case tvm_ffi::kInt: scalar->dtype = XLA_FFI_DataType_S64; break;
    case tvm_ffi::kBool: scalar->dtype = XLA_FFI_DataType_PRED; break;
    case tvm_ffi::kFloat: scalar->dtype = XLA_FFI_DataType_F64; break;
    default: return false;
  }
  scalar->value = const_cast<int64_t*>(&any.integer);
  return true;
}

/// Read an input that may be a number: an array without axes on the CPU.
bool TvmCall::read_number(int index, XLA_FFI_DataType dtype, XLA_FFI_Buffer* buffer, int64_t* room) const noexcept {
  XLA_FFI_Scalar scalar;
  const Any& any = at(index);
  if (!scalar_of(any, &scalar)) return fail(index, "is %s, neither a number nor a tensor", kind_of(any));
  if (spec.be_is_cuda) return fail(index, "is %s, but must be a tensor on the device", kind_of(any));
  if (!convert_scalar(scalar, dtype, room))
    return fail(index, "is %s that is not a valid %s", kind_of(any), element_type_name(dtype));
  *buffer = {sizeof(*buffer), nullptr, dtype, room, 0, nullptr};
  return true;
}

/// Read an array as an attribute: a contiguous tensor on the CPU.
bool TvmCall::read_attr_array(int index, XLA_FFI_DataType dtype, const AttrSpec& row, TvmAttr* attr) const noexcept {
  const Array* tensor = tensor_in(at(index));
  if (tensor == nullptr) return fail(index, "is %s, not a tensor on the CPU", kind_of(at(index)));
  const TvmSpec here{spec.be_entry, spec.be_handler, spec.be_order, spec.be_names, false};
  TvmCall reader{here, args, count, result};
  XLA_FFI_Buffer buffer;
  if (!reader.read_tensor(index, dtype, &buffer)) return false;
  const bool is_complex = dtype == XLA_FFI_DataType_C64 || dtype == XLA_FFI_DataType_C128;
  const size_t parts = is_complex ? 2 : 1;
  const auto size = static_cast<size_t>(be_xla::element_count(buffer.dims, buffer.rank)) * parts;
  attr->array = {static_cast<XLA_FFI_DataType>(row.dtype), size, buffer.data};
  return true;
}

/// Read an attribute, of the declared element type if it has one.
bool TvmCall::read_attr(int index, XLA_FFI_DataType dtype, const AttrSpec& row, const AttrMore& more,
                        XLA_FFI_AttrType* type, TvmAttr* attr) const noexcept {
  const Any& any = at(index);
  const bool is_array = more.be_kind == AttrKind::kArray || (more.be_kind == AttrKind::kNumber && row.parts != 0);
  if (is_array) {
    *type = XLA_FFI_AttrType_ARRAY;
    return read_attr_array(index, dtype, row, attr);
  }
  switch (more.be_kind) {
    case AttrKind::kString:
    case AttrKind::kEnum:
      *type = XLA_FFI_AttrType_STRING;
      if (any.kind == tvm_ffi::kText) {
        attr->text = {any.text, strlen(any.text)};
      } else if (any.kind == tvm_ffi::kSmallText) {
        attr->text = {any.small, any.small_size};
      } else if (any.kind == tvm_ffi::kTextObject) {
        memcpy(static_cast<void*>(&attr->text), static_cast<const tvm_ffi::Object*>(any.pointer) + 1,
               sizeof(attr->text));
      } else {
        return fail(index, "is %s, not a string", kind_of(any));
      }
      return true;
    case AttrKind::kDType:
      *type = XLA_FFI_AttrType_SCALAR;
      if (any.kind != tvm_ffi::kDataType) return fail(index, "is %s, not an element type", kind_of(any));
      attr->number = dtype_of_dl(any.type.code, any.type.bits, any.type.lanes);
      attr->scalar = {XLA_FFI_DataType_S64, &attr->number};
      return true;
    case AttrKind::kStruct:
      return fail(index, "is an attribute with fields, which only calls from JAX can pass");
    default:
      break;
  }
  *type = XLA_FFI_AttrType_SCALAR;
  if (!scalar_of(any, &attr->scalar)) return fail(index, "is %s, not a number", kind_of(any));
  if (!row.is_number) {  // a 16-bit float, whose bits are passed, as in a call by jax.ffi.ffi_call
    if (!convert_scalar(attr->scalar, static_cast<XLA_FFI_DataType>(row.dtype), &attr->number) ||
        any.kind != tvm_ffi::kInt)
      return fail(index, "is %s; pass the bits of the %s as an integer", kind_of(any), element_type_name(dtype));
    attr->scalar = {static_cast<XLA_FFI_DataType>(row.dtype), &attr->number};
  }
  return true;
}

/// Report the error that the handler returned.
int raise_xla_error(XLA_FFI_Error* failed, Any* result) noexcept {
  TvmError* error = reinterpret_cast<TvmError*>(failed);
  const char* kind = "RuntimeError";
  if (error->code == XLA_FFI_Error_Code_INVALID_ARGUMENT) kind = "ValueError";
  if (error->code == XLA_FFI_Error_Code_RESOURCE_EXHAUSTED) kind = "MemoryError";
  raise_for_tvm(result, kind, error->text);
  XLA_FFI_Error_Destroy_Args args{sizeof(args), nullptr, failed};
  destroy_error(&args);
  return -1;
}

}  // namespace
}  // namespace BE::detail
BE_END_COLD

/// Call an entry point through TVM-FFI's C ABI.
///
/// Two characters of `TvmSpec::be_order` describe an argument. The first is its sign: `i` for an input, `o` for a
/// result, `I` and `O` if it may be None, `b` for an array that is changed in place, `n` for an input that may be a
/// number, `w` for scratch memory, `v` for an attribute. The second is `@` plus the number of the element type.
int be_tvm_call(const TvmSpec& spec, const void* given, int32_t count, void* returned) noexcept {
  const EntrySpec& entry = *spec.be_entry;
  TvmCall call{spec, static_cast<const Any*>(given), count, static_cast<Any*>(returned)};
  if (spec.be_order == nullptr) return call.fail(-1, "%s", spec.be_names), -1;
  int params = 0;
  while (spec.be_order[2 * params] != 0) ++params;
  if (count > params) return call.fail(-1, "takes %d arguments (%.400s), not %d", params, spec.be_names, count), -1;

  // One piece of the stack, since each costs as much as a tensor.
  constexpr int kBufferWords = sizeof(XLA_FFI_Buffer) / sizeof(int64_t);
  int64_t* numbers = BE_STACK_ROOM(int64_t, (kBufferWords + 6) * params + 1);
  int64_t* places = numbers + 2 * params;  // of attributes among the arguments
  void** inputs = reinterpret_cast<void**>(places + params);
  void **results = inputs + params, **scratch = results + params;
  XLA_FFI_Buffer* buffers = reinterpret_cast<XLA_FFI_Buffer*>(scratch + params);
  int64_t input_count = 0, result_count = 0, scratch_count = 0, attr_count = 0;
  uint64_t present_inputs = 0, present_results = 0;
  int optional_inputs = 0, optional_results = 0;
  for (int i = 0; i < params; ++i) {
    const char sign = spec.be_order[2 * i];
    const auto dtype = static_cast<XLA_FFI_DataType>(spec.be_order[2 * i + 1] - '@');
    XLA_FFI_Buffer* buffer = buffers + i;
    if (__builtin_expect(sign == 'i' || sign == 'o', 1)) {
      if (!call.read_tensor_here(i, dtype, buffer)) return -1;
      if (sign == 'i') inputs[input_count++] = buffer;
      else results[result_count++] = buffer;
      continue;
    }
    if (sign == 'v') {
      places[attr_count++] = i;
      continue;
    }
    if (sign == 'I' || sign == 'O') {
      const bool is_present = call.at(i).kind != BE::tvm_ffi::kNone;
      if (sign == 'I') present_inputs |= static_cast<uint64_t>(is_present) << optional_inputs++;
      else present_results |= static_cast<uint64_t>(is_present) << optional_results++;
      if (!is_present) continue;
    }
    const bool is_number = sign == 'n' && TvmCall::tensor_in(call.at(i)) == nullptr;
    if (!(is_number ? call.read_number(i, dtype, buffer, numbers + 2 * i) : call.read_tensor(i, dtype, buffer)))
      return -1;
    if (sign == 'w') scratch[scratch_count++] = buffer;
    if (sign == 'O' || sign == 'b') results[result_count++] = buffer;
    if (sign == 'I' || sign == 'b' || sign == 'n') inputs[input_count++] = buffer;
  }
  for (int64_t i = 0; i < scratch_count; ++i) results[result_count++] = scratch[i];

  XLA_FFI_AttrType* types = nullptr;
  XLA_FFI_ByteSpan* names = nullptr;
  TvmAttr* attrs = nullptr;
  void** words = nullptr;
  if (entry.attr_count != 0) {
    types = BE_STACK_ROOM(XLA_FFI_AttrType, entry.attr_count);
    names = BE_STACK_ROOM(XLA_FFI_ByteSpan, entry.attr_count);
    attrs = BE_STACK_ROOM(TvmAttr, entry.attr_count);
    words = BE_STACK_ROOM(void*, 2 * entry.attr_count);
  }
  int64_t used = 0;
  for (int row = 0; row < entry.attr_count; ++row) {
    const AttrSpec& expected = entry.attrs[row];
    const AttrMore more = entry.more == nullptr ? AttrMore{} : entry.more[row];
    if (expected.position >= attr_count) {  // the bits of optional arrays
      attrs[used].number = static_cast<int64_t>(present_inputs | present_results << optional_inputs);
      attrs[used].scalar = {XLA_FFI_DataType_S64, &attrs[used].number};
      types[used] = XLA_FFI_AttrType_SCALAR;
    } else {
      const int index = static_cast<int>(places[expected.position]);
      if (call.at(index).kind == BE::tvm_ffi::kNone) {
        if (more.be_default == nullptr) return call.fail(index, "is missing"), -1;
        continue;
      }
      const auto dtype = static_cast<XLA_FFI_DataType>(spec.be_order[2 * index + 1] - '@');
      if (!call.read_attr(index, dtype, expected, more, types + used, attrs + used)) return -1;
    }
    names[used] = {expected.name, expected.name_size};
    words[entry.attr_count + used] = names + used;
    words[used] = attrs + used;
    ++used;
  }

  XLA_FFI_CallFrame frame;  // not cleared at first, which takes longer than a tensor
  frame.struct_size = sizeof(frame);
  frame.extension_start = nullptr;
  frame.api = &tvm_api;
  frame.ctx = reinterpret_cast<XLA_FFI_ExecutionContext*>(&call.context);
  frame.stage = XLA_FFI_ExecutionStage_EXECUTE;
  frame.args = {sizeof(frame.args), nullptr, input_count, nullptr, inputs};
  frame.rets = {sizeof(frame.rets), nullptr, result_count, nullptr, results};
  frame.attrs = {sizeof(frame.attrs), nullptr, used, types, reinterpret_cast<XLA_FFI_ByteSpan**>(words + entry.attr_count),
                 words};
  frame.future = nullptr;
  if (XLA_FFI_Error* error = spec.be_handler(&frame)) return raise_xla_error(error, call.result);
  if (call.result->kind != kWantsText) *call.result = Any{};
  return 0;
}
