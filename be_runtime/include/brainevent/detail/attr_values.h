#pragma once

/// \file
/// Attributes other than numbers that every call passes: their rows in the handler's tables, and the conversions of
/// their values in generated code. Also calls with optional arrays or any number of arrays. Included after the author's
/// source, so names begin with `be_`, as in brainevent/detail/xla_frame.h.

#include "brainevent/detail/entry.h"
#include "brainevent/span.h"

#pragma pack(push, 8)

namespace BE::detail {

enum class AttrKind { kNumber, kString, kArray, kEnum, kStruct, kDType };

/// The `parts` of an attribute that is no number.
constexpr size_t kNoNumber = ~size_t{0};

/// The rest of an `AttrSpec`. A table without it has only numbers that every call passes.
struct AttrMore {
  AttrKind be_kind = AttrKind::kNumber;
  /// The value in a call without the attribute, as the trampoline reads it; null if each call passes it. For an
  /// optional structure, `be_fields`.
  const void* be_default = nullptr;
  /// The names of an enumeration, separated by spaces; for a structure, its fields as a caller passes them.
  const char* be_text = nullptr;
  /// The number of fields, or the numbers in each element of an array.
  int be_count = 0;
  /// The fields of a structure, sorted by name.
  const AttrSpec* be_fields = nullptr;
  /// A row for each of the fields.
  const AttrMore* be_more = nullptr;
};

/// XLA's texts and arrays, as in `xla/ffi/api/c_api.h`; native/arguments.h compares them.
struct Bytes {
  const char* be_data;
  size_t be_size;
};
struct Numbers {
  int be_dtype;
  size_t be_size;
  const void* be_data;
};

/// Converts to `std::string_view`, or any other class that is made of an address and a size. Not `const char*`: a text
/// of a call ends without a NUL.
struct StringValue {
  const void* be_attr;

  template <class BeText, class = typename OnlyIf<__is_class(BeText)>::Type,
            class = decltype(BeText(static_cast<const char*>(nullptr), size_t{}))>
  operator BeText() const {  // NOLINT: implicit on purpose
    const Bytes* be_bytes = static_cast<const Bytes*>(be_attr);
    return BeText(be_bytes->be_data, be_bytes->be_size);
  }
};

/// Converts to a `BE::Span` of the elements, or of another type to which a pointer into the elements may point.
template <DType kDType, size_t kParts>
struct ArrayValue {
  const void* be_attr;

  template <class BeElement, class = typename OnlyIf<sizeof(BeElement) == dtype_size(kDType) &&
                                                     (internal::kPointedInto<BeElement> >>
                                                      static_cast<unsigned>(kDType) & 1) != 0>::Type>
  operator Span<const BeElement>() const noexcept {  // NOLINT: implicit on purpose
    const Numbers* be_numbers = static_cast<const Numbers*>(be_attr);
    return {static_cast<const BeElement*>(be_numbers->be_data), be_numbers->be_size / kParts};
  }
};

/// The values of an enumeration by their numbers in the table.
template <class BeEnum>
BeEnum be_choice(const void* be_attr, const BeEnum* be_choices) noexcept {
  return be_choices[*static_cast<const int64_t*>(be_attr)];
}

/// Assign a value to a structure's field.
template <class BeField, class BeValue>
void be_set(BeField& be_field, const BeValue& be_value) {
  BeField be_made = be_value;
  be_field = be_made;
}

/// An entry point whose calls may have different numbers of arrays.
struct GeneralSpec {
  /// Its counts are numbers of parameters.
  EntrySpec be_entry;
  /// A sign for each parameter that takes arrays, arguments before results: `1` for one, `?` for one or none, `*` for
  /// any number.
  const char* be_arrays;
  /// Position of the attribute whose bits state which `?` are present; -1 if there is none.
  int be_present;
};

struct GeneralCall : Call {
  const GeneralSpec* be_spec;
  /// The array of each parameter that takes some, as in `GeneralSpec::be_arrays`; null where it is absent.
  Tensor** be_slots;
  /// The arrays of the `*` among the arguments, and among the results.
  Tensors* be_many;
};

/// Converts to a `std::optional` or a pointer.
struct OptionalTensor {
  Tensor* be_tensor;

  operator const Tensor*() const noexcept { return be_tensor; }  // NOLINT: implicit on purpose
  operator Tensor*() const noexcept { return be_tensor; }        // NOLINT: implicit on purpose
  template <class BeOptional, class = decltype(static_cast<BeOptional*>(nullptr)->has_value())>
  operator BeOptional() const {  // NOLINT: implicit on purpose
    return be_tensor == nullptr ? BeOptional() : BeOptional(*be_tensor);
  }
};

}  // namespace BE::detail

/// Point values at the fields of a dictionary, in the order of the structure's fields. The arguments are the
/// dictionary, the attribute's name, the structure, and places for values and for converted values. Throw `CheckError`
/// for unexpected fields. See native/arguments.h.
BE_INTERNAL_HIDDEN void be_read_struct(const void*, const char*, const BE::detail::AttrMore&, const void**, int64_t*);

/// See native/handler.cc.
BE_INTERNAL_HIDDEN XLA_FFI_Error* be_handle_general(XLA_FFI_CallFrame*, const BE::detail::GeneralSpec&,
                                                    void (*)(const BE::detail::GeneralCall&), uint32_t) noexcept;
BE_INTERNAL_HIDDEN void be_check_axes_general(const BE::detail::GeneralCall&, const BE::detail::AxesSpec*, const char*);

#pragma pack(pop)
