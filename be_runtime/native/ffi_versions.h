/// \file
/// Differences between versions 0.1 to 0.5 of XLA's FFI in the parts that the handlers use. One library works with each
/// version, and its code does not depend on the version of the header.
///
/// A handler claims the lowest version, which later versions of XLA accept, and branches on the version of the calling
/// XLA. XLA refuses a structure that is shorter than its own, and accepts a longer one. Static assertions compare the
/// layouts here with the layouts in the header.

#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <type_traits>

#include "xla/ffi/api/c_api.h"

namespace be_xla {

/// The version that all handlers claim; equal to `FFI_CLAIM` of be_runtime/own_files.py.
constexpr int kClaimMajor = 0, kClaimMinor = 1;

/// The first versions in which a type is registered with its deleter, and a state belongs to a stage.
constexpr int kTypesDelete = 2, kStatesHaveStage = 3;

inline int minor_version(const XLA_FFI_CallFrame* frame) noexcept { return frame->api->api_version.minor_version; }

/// Return a function of XLA by its offset in the table: some functions were renamed, but none has moved.
template <class Function>
inline Function* function_at(const XLA_FFI_CallFrame* frame, size_t place) noexcept {
  Function* function;
  memcpy(&function, reinterpret_cast<const char*>(frame->api) + place, sizeof(function));
  return function;
}

/// XLA_FFI_InternalExtension, which was XLA_FFI_Extension_Base before 0.4.
struct Extension {
  size_t struct_size;
  int type;
  const Extension* next;
};

/// XLA_FFI_Metadata.
struct Metadata {
  size_t struct_size;  ///< The same in all versions, with and without a state's type.
  XLA_FFI_Api_Version api_version;
  uint32_t traits;
  int64_t state_type;  ///< Since `kTypesDelete`.
};

/// XLA_FFI_Metadata_Extension.
struct MetadataExtension {
  Extension base;
  Metadata* metadata;
};

/// XLA_FFI_TypeInfo.
struct TypeInfo {
  size_t struct_size;
  void* extension;
  void (*deleter)(void*);
};

/// XLA_FFI_Type_Register_Args. Before `kTypesDelete` it is XLA_FFI_TypeId_Register_Args, which ends before `info`.
struct RegisterArgs {
  size_t struct_size;
  void* extension;
  XLA_FFI_ByteSpan name;
  XLA_FFI_TypeId* type_id;
  const TypeInfo* info;
};

/// XLA_FFI_State_Set_Args and XLA_FFI_State_Get_Args.
struct StateArgs {
  size_t struct_size;
  void* extension;
  void* ctx;
  int stage;
  XLA_FFI_TypeId* type_id;
  void* state;
};

/// The arguments before `kStatesHaveStage`; before `kTypesDelete` a state is set with its deleter.
struct StageLessArgs {
  size_t struct_size;
  void* extension;
  void* ctx;
  XLA_FFI_TypeId* type_id;
  void* state;
  void (*deleter)(void*);
};

/// XLA_FFI_Error_GetDetails_Args. Before 0.5 it is XLA_FFI_Error_GetMessage_Args, which ends before `code`.
struct ErrorArgs {
  size_t struct_size;
  void* extension;
  XLA_FFI_Error* error;
  const char* message;
  int code;
};

constexpr size_t kGetMessagePlace = offsetof(XLA_FFI_Api, XLA_FFI_Error_Create) + sizeof(void*);
constexpr size_t kRegisterPlace = offsetof(XLA_FFI_Api, XLA_FFI_Stream_Get) + sizeof(void*);
static_assert(offsetof(XLA_FFI_Api, XLA_FFI_Error_Destroy) == kGetMessagePlace + sizeof(void*));
static_assert(offsetof(XLA_FFI_Api, XLA_FFI_State_Set) == kRegisterPlace + 2 * sizeof(void*));

static_assert(offsetof(XLA_FFI_Metadata_Extension, metadata) == offsetof(MetadataExtension, metadata));
static_assert(offsetof(XLA_FFI_Metadata_Extension, extension_base.type) == offsetof(Extension, type));
static_assert(offsetof(XLA_FFI_Metadata_Extension, extension_base.next) == offsetof(Extension, next));
/// A frame's chain has no extensions of the other layout, XLA_FFI_Extension, which records and collectives have since
/// 0.4. Those belong to the call's context.
static_assert(std::is_same_v<decltype(XLA_FFI_CallFrame::extension_start),
                             decltype(XLA_FFI_Metadata_Extension::extension_base)*>);
static_assert(offsetof(XLA_FFI_Metadata, traits) == offsetof(Metadata, traits));
#if XLA_FFI_API_MINOR >= 2
static_assert(offsetof(XLA_FFI_Metadata, state_type_id) == offsetof(Metadata, state_type));
static_assert(offsetof(XLA_FFI_Type_Register_Args, type_info) == offsetof(RegisterArgs, info));
static_assert(offsetof(XLA_FFI_TypeInfo, deleter) == offsetof(TypeInfo, deleter));
#else
static_assert(offsetof(XLA_FFI_State_Set_Args, deleter) == offsetof(StageLessArgs, deleter));
#endif
#if XLA_FFI_API_MINOR >= 3
static_assert(offsetof(XLA_FFI_State_Set_Args, stage) == offsetof(StateArgs, stage));
static_assert(offsetof(XLA_FFI_State_Set_Args, state) == offsetof(StateArgs, state));
static_assert(offsetof(XLA_FFI_State_Get_Args, state) == offsetof(StateArgs, state));
#else
static_assert(offsetof(XLA_FFI_State_Set_Args, state) == offsetof(StageLessArgs, state));
static_assert(offsetof(XLA_FFI_State_Get_Args, state) == offsetof(StageLessArgs, state));
#endif
#if XLA_FFI_API_MINOR >= 5
static_assert(offsetof(XLA_FFI_Error_GetDetails_Args, errc) == offsetof(ErrorArgs, code));
#endif

}  // namespace be_xla
