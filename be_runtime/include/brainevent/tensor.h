#pragma once

/// \file
/// `BE::Tensor`, the view of an array that an entry point receives.

#include "brainevent/check.h"

#if defined(BE_INTERNAL_CHECKED)
#include "brainevent/detail/checked.h"
#endif

/// Compiled with the handler, not with every source: see brainevent/detail/access_error.h.
BE_INTERNAL_HIDDEN __attribute__((cold, noreturn)) void be_throw_element_type(const char*, const void*, BE::DType);

namespace BE {

/// The maximum number of dimensions of a tensor, 8.
constexpr int kMaxDim = 8;

#if defined(BE_INTERNAL_CHECKED)
/// An index, and the place in the source where it was written.
struct Index {
  BE_HD Index(int64_t number, const char* path = __builtin_FILE(), int at = __builtin_LINE()) noexcept  // NOLINT
      : value(number), file(path), line(at) {}
  BE_HD operator int64_t() const noexcept { return value; }  // NOLINT: implicit on purpose

  int64_t value;
  const char* file;
  int line;
};
#else
/// The type of an index of `Tensor::at`.
using Index = int64_t;
#endif

namespace internal {

[[noreturn]] BE_COLD inline void throw_dimension_out_of_range(int index, int ndim) {
  Text text;
  text.append("dimension ").append(index).append(" of a tensor with ").append(ndim);
  throw CheckError(text.append(ndim == 1 ? " dimension" : " dimensions"));
}

[[noreturn]] BE_COLD inline void throw_no_element_size(DType dtype) {
  Text text;
  text.append("element_size(): elements of ").append(dtype);
  throw CheckError(text.append(" are smaller than a byte; use nbytes()"));
}

[[noreturn]] BE_COLD inline void throw_numel_exceeds_int(int64_t numel) {
  Text text;
  throw CheckError(text.append(numel).append(" elements are more than an int can count"));
}

}  // namespace internal

/// Ends the kernel in device code; calls a function that throws on the host.
#if defined(BE_DEVICE_PASS)
#define BE_INTERNAL_TRAP_OR(call) __trap()
#else
#define BE_INTERNAL_TRAP_OR(call) call
#endif

#if defined(BE_INTERNAL_CHECKED)
#define BE_INTERNAL_PLACE const char *file = __builtin_FILE(), int line = __builtin_LINE()
#define BE_INTERNAL_CHECK_ELEMENT_TYPE(T) check_element_type<T>(__PRETTY_FUNCTION__, file, line)
#elif defined(BE_DEVICE_PASS)
#define BE_INTERNAL_PLACE
#define BE_INTERNAL_CHECK_ELEMENT_TYPE(T) (void)0
#else
#define BE_INTERNAL_PLACE
/// A shift of a constant, written in place: a function would take longer to compile than the test itself.
#define BE_INTERNAL_CHECK_ELEMENT_TYPE(T)                                       \
  if (!(internal::kPointedInto<T> >> (static_cast<unsigned>(dtype_) & 31) & 1)) \
  be_throw_element_type(__PRETTY_FUNCTION__, data_, dtype_)
#endif

/// A view of an array: its address, element type and shape.
///
/// **Ownership.** XLA owns the memory. In a C++ source, the memory is valid until the entry point returns. In a CUDA
/// source, the memory is on the GPU, and only work on the stream of the call may access the memory.
///
/// **Constness.** A `const BE::Tensor` returns pointers to const. A copy without `const` returns pointers that are not
/// const: don't write to an input through these pointers.
///
/// **Layout.** Arrays are dense, and row-major unless the call sets layouts. `at` and `stride` assume row-major order.
///
/// **Device code.** A `__global__` function can take a Tensor by value, and device code can call all members.
class Tensor {
 public:
  /// The value of `BE::kMaxDim`.
  static constexpr int kMaxDims = kMaxDim;

  /// Make a placeholder with the dtype `Invalid`. Assign a Tensor to the placeholder before use.
  BE_HD Tensor() noexcept : data_(nullptr), numel_(0), ndim_(0), dtype_(DType::Invalid) {}

  /// Make a view of the array at `data`, with the `ndim` extents at `dims`. The constructor copies the extents, and
  /// does not check that `ndim` is at most `kMaxDims`.
  BE_HD Tensor(void* data, DType dtype, int ndim, const int64_t* dims) noexcept
      : data_(data), ndim_(ndim), dtype_(dtype) {
    // This runs for every tensor of every call, so slots past `ndim` stay unwritten.
#if defined(BE_INTERNAL_WHOLE_PROGRAM)
    // Each extent by itself, so that the compiler can leave out unused extents.
    int64_t elements = 1;
    for (int i = 0; i < ndim; ++i) elements *= dims[i];
    numel_ = elements;
    int64_t stride = 1;
#pragma GCC unroll 8
    for (int i = kMaxDims - 1; i >= 0; --i) {
      if (i >= ndim) continue;
      shape_[i] = dims[i];
      strides_[i] = stride;
      stride *= dims[i];
    }
#else
    int64_t stride = 1;
    for (int i = ndim - 1; i >= 0; --i) {
      shape_[i] = dims[i];
      strides_[i] = stride;
      stride *= dims[i];
    }
    numel_ = stride;
#endif
  }

  /// Return the address of the first element. If the array is empty, the address may be null.
  BE_HD void* data_ptr() noexcept { return data_; }
  BE_HD const void* data_ptr() const noexcept { return data_; }
  /// Return `data_ptr()`.
  BE_HD void* data() noexcept { return data_; }
  BE_HD const void* data() const noexcept { return data_; }

  /// Return the address of the first element as a `T*`.
  ///
  /// On the host, throw `CheckError` if `T` does not match the dtype. In device code, only checked mode checks `T`.
  template <typename T>
  BE_HD T* data_ptr(BE_INTERNAL_PLACE) {
    BE_INTERNAL_CHECK_ELEMENT_TYPE(T);
    return static_cast<T*>(data_);
  }
  template <typename T>
  BE_HD const T* data_ptr(BE_INTERNAL_PLACE) const {
    BE_INTERNAL_CHECK_ELEMENT_TYPE(T);
    return static_cast<const T*>(data_);
  }

  /// Return the element at the given indices, one for each dimension: `x.at<float>(row, column)`.
  ///
  /// The access is as fast as `data_ptr<T>()[row * stride(0) + column]`, and `at` checks `T` as `data_ptr<T>()` does.
  /// Only checked mode checks the number of indices, and compares each index with the extent of the dimension. If such
  /// a check fails on the host, `at` throws `CheckError` with the line. If the check fails in device code, the thread
  /// accesses a spare buffer and continues, and the call then fails with the line of the first failed check.
  template <typename T, typename... More>
  BE_HD T& at(Index first, More... more) {
    return *static_cast<T*>(const_cast<void*>(element<T>(first, more...)));
  }
  template <typename T, typename... More>
  BE_HD const T& at(Index first, More... more) const {
    return *static_cast<const T*>(element<T>(first, more...));
  }

  /// Return the number of dimensions.
  BE_HD int ndim() const noexcept { return ndim_; }

  /// Return the extent of dimension `index`. A negative `index` counts from the last dimension, which is -1.
  ///
  /// On the host, throw `CheckError` if the tensor has no dimension `index`. In device code, `index` is not checked.
  BE_HD int64_t shape(int index) const { return shape_[checked_dimension(index)]; }
  /// Return `shape(index)`.
  BE_HD int64_t size(int index) const { return shape(index); }

  /// Return the number of elements from one position of dimension `index` to the next position. If a later dimension
  /// has extent 0, the stride is 0. `stride` checks `index` as `shape` does.
  BE_HD int64_t stride(int index) const { return strides_[checked_dimension(index)]; }

  /// Return the address of the `ndim()` extents, which are inside this object.
  BE_HD const int64_t* shape_ptr() const noexcept { return shape_; }
  /// Return the address of the `ndim()` strides, which are inside this object.
  BE_HD const int64_t* strides_ptr() const noexcept { return strides_; }

  /// Return the element type.
  BE_HD DType dtype() const noexcept { return dtype_; }

  /// Return the number of bytes of one element. If the elements have 2 or 4 bits, throw `CheckError` on the host, and
  /// end the kernel in device code.
  BE_HD size_t element_size() const {
    const size_t size = dtype_size(dtype_);
    if (size == 0 && dtype_ != DType::Invalid) BE_INTERNAL_TRAP_OR(internal::throw_no_element_size(dtype_));
    return size;
  }

  /// Return the number of elements: 1 for an array without dimensions, 0 if an extent is 0.
  BE_HD int64_t numel() const noexcept { return numel_; }

  /// Return the number of bytes of the array. If elements of 2 or 4 bits don't fill the last byte, the unused bits are
  /// undefined.
  BE_HD size_t nbytes() const noexcept { return (static_cast<size_t>(numel_) * dtype_bits(dtype_) + 7) / 8; }

  /// Return `numel()` as an `int`. If the number does not fit into an `int`, throw `CheckError` on the host, and end
  /// the kernel in device code.
  BE_HD int numel_checked_int() const {
    if (numel_ > INT32_MAX) BE_INTERNAL_TRAP_OR(internal::throw_numel_exceeds_int(numel_));
    return static_cast<int>(numel_);
  }

  /// Always return true.
  BE_HD bool is_contiguous() const noexcept { return true; }

 private:
  /// The address of an element.
  template <typename T, typename... More>
  BE_HD const void* element(Index first, More... more) const {
    static_assert(sizeof...(More) < kMaxDims, "at() takes an index for each of at most 8 dimensions");
    const int64_t indices[] = {first, static_cast<int64_t>(more)...};
    constexpr int count = 1 + sizeof...(More);
#if defined(BE_INTERNAL_CHECKED)
    if (!can_access<T>(indices, count, __PRETTY_FUNCTION__, first)) return internal::elsewhere(data_);
#else
    BE_INTERNAL_CHECK_ELEMENT_TYPE(T);
#endif
    int64_t offset = indices[count - 1];
    for (int i = 0; i < count - 1; ++i) offset += indices[i] * strides_[i];
    return static_cast<const T*>(data_) + offset;
  }

#if defined(BE_INTERNAL_CHECKED)
  template <typename T>
  BE_HD void check_element_type(const char* function, const char* file, int line) const {
    if (internal::kPointedInto<T> >> (static_cast<unsigned>(dtype_) & 31) & 1) return;
    report(internal::Access::kType, false, function, file, line);
  }

  /// Return whether an access is valid. An invalid access is reported, and device code continues.
  template <typename T>
  BE_HD bool can_access(const int64_t* indices, int count, const char* function, const Index& place) const {
    using internal::Access;
    const bool is_element = internal::kPointedInto<T> >> (static_cast<unsigned>(dtype_) & 31) & 1;
    if (!is_element || sizeof(T) * 8 != static_cast<size_t>(dtype_bits(dtype_)))
      return report(Access::kType, true, function, place.file, place.line);
    if (count != ndim_) return report(Access::kCount, true, function, place.file, place.line, count, ndim_);
    for (int i = 0; i < count; ++i)
      if (indices[i] < 0 || indices[i] >= shape_[i])
        return report(Access::kOutside, true, function, place.file, place.line, indices[i], shape_[i], i);
    return true;
  }

  BE_HD BE_COLD bool report(internal::Access::Kind kind, bool through_at, const char* function, const char* file,
                            int line, int64_t index = 0, int64_t extent = 0, int dimension = 0) const {
    const internal::Access access{kind,  through_at, false,  line,      {}, {}, data_,
                                  dtype_, index,      extent, dimension, {}, {}};
    internal::report_access(access, function, file);
    return false;
  }
#endif

  BE_HD int checked_dimension(int index) const {
    const int dimension = index < 0 ? index + ndim_ : index;
#if !defined(BE_DEVICE_PASS)
    if (dimension < 0 || dimension >= ndim_) internal::throw_dimension_out_of_range(index, ndim_);
#endif
    return dimension;
  }

  void* data_;
  int64_t numel_;
  int ndim_;
  DType dtype_;
  int64_t shape_[kMaxDims];
  int64_t strides_[kMaxDims];
};

}  // namespace BE
