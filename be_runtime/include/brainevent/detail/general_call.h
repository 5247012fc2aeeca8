#pragma once

/// \file
/// Calls in which arrays may be absent or any number. Included as brainevent/detail/attr_values.h is.

#include "brainevent/detail/attr_values.h"

#pragma pack(push, 8)

namespace BE::detail {

/// An entry point whose calls differ in their arrays.
struct GeneralSpec {
  /// Its counts are those of the parameters.
  EntrySpec be_entry;
  /// A sign for each parameter that takes arrays, arguments before results: `1` for one, `?` for one or none, `*` for
  /// any number.
  const char* be_arrays;
  /// Position of the attribute whose bits say which `?` are there; -1 where there is none.
  int be_present;
};

struct GeneralCall : FrameCall {
  const GeneralSpec* be_spec;
  /// The array of each parameter that takes some, as in `GeneralSpec::be_arrays`; null where it is absent.
  Tensor** be_slots;
  /// Those of the `*` among the arguments, and among the results.
  Tensors* be_many;
};

/// Becomes a `std::optional` or a pointer.
struct OptionalTensor {
  Tensor* be_tensor;

  operator const Tensor*() const noexcept { return be_tensor; }  // NOLINT: implicit on purpose
  template <class BeOptional, class = decltype(static_cast<BeOptional*>(nullptr)->has_value())>
  operator BeOptional() const {  // NOLINT: implicit on purpose
    return be_tensor == nullptr ? BeOptional() : BeOptional(*be_tensor);
  }
};

}  // namespace BE::detail

/// See native/general.h.
BE_INTERNAL_HIDDEN XLA_FFI_Error* be_handle_general(XLA_FFI_CallFrame*, const BE::detail::GeneralSpec&,
                                                    void (*)(const BE::detail::GeneralCall&), uint32_t) noexcept;
BE_INTERNAL_HIDDEN void be_check_axes_general(const BE::detail::GeneralCall&, const BE::detail::AxesSpec*, const char*);

#pragma pack(pop)
