#pragma once

/// \file
/// The names of PyTorch's C++ API that kernels use, such as `at::Tensor` and `TORCH_CHECK`. PyTorch need not be
/// installed.
///
/// In your sources, an include such as `<torch/extension.h>` finds this header. Functions of PyTorch that allocate,
/// compute or record derivatives are not available: a source that uses such a function does not compile, and the error
/// message gives the replacement. If the source defines the macro `BE_TORCH_REFUSE_WHEN_CALLED` before the first
/// include, the source compiles, and the function throws an exception when it is called.

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "brainevent/common.h"
#include "brainevent/detail/torch_numbers.h"

#define BE_INTERNAL_TORCH_TYPES(X)          \
  X(Byte, UInt8, uint8_t)                   \
  X(Char, Int8, int8_t)                     \
  X(Short, Int16, int16_t)                  \
  X(Int, Int32, int)                        \
  X(Long, Int64, int64_t)                   \
  X(Half, Float16, ::c10::Half)             \
  X(Float, Float32, float)                  \
  X(Double, Float64, double)                \
  X(ComplexFloat, Complex64, ::c10::complex<float>)   \
  X(ComplexDouble, Complex128, ::c10::complex<double>) \
  X(Bool, Bool, bool)                       \
  X(BFloat16, BFloat16, ::c10::BFloat16)    \
  X(UInt16, UInt16, uint16_t)               \
  X(UInt32, UInt32, uint32_t)               \
  X(UInt64, UInt64, uint64_t)

namespace c10 {

/// torch's names of the dtypes, with the values of `BE::DType`.
enum class ScalarType : uint8_t {
#define BE_INTERNAL_TORCH_ENUMERATOR(name, dtype, type) name = static_cast<uint8_t>(::BE::DType::dtype),
  BE_INTERNAL_TORCH_TYPES(BE_INTERNAL_TORCH_ENUMERATOR) Undefined = static_cast<uint8_t>(::BE::DType::Invalid),
};

namespace impl {
template <ScalarType>
struct ScalarTypeToCPPType;
#define BE_INTERNAL_TORCH_CPP_TYPE(name, dtype, cpp) \
  template <>                                        \
  struct ScalarTypeToCPPType<ScalarType::name> {     \
    using type = cpp;                                \
  };
BE_INTERNAL_TORCH_TYPES(BE_INTERNAL_TORCH_CPP_TYPE)
template <ScalarType type>
using ScalarTypeToCPPTypeT = typename ScalarTypeToCPPType<type>::type;
}  // namespace impl

#define BE_INTERNAL_TORCH_CONSTANT(name, dtype, type) inline constexpr ScalarType k##name = ScalarType::name;
BE_INTERNAL_TORCH_TYPES(BE_INTERNAL_TORCH_CONSTANT)
inline constexpr ScalarType kUInt8 = kByte, kInt8 = kChar, kInt16 = kShort, kInt32 = kInt, kInt64 = kLong;
inline constexpr ScalarType kFloat16 = kHalf, kFloat32 = kFloat, kFloat64 = kDouble;

inline const char* toString(ScalarType type) noexcept { return ::BE::dtype_name(static_cast<::BE::DType>(type)); }

/// A view of extents or strides.
class IntArrayRef {
 public:
  IntArrayRef(const int64_t* data, size_t size) noexcept : data_(data), size_(size) {}
  IntArrayRef(const std::vector<int64_t>& values) noexcept : data_(values.data()), size_(values.size()) {}  // NOLINT
  size_t size() const noexcept { return size_; }
  const int64_t& operator[](size_t index) const noexcept { return data_[index]; }
  const int64_t* begin() const noexcept { return data_; }
  const int64_t* end() const noexcept { return data_ + size_; }
  std::vector<int64_t> vec() const { return {begin(), end()}; }
  bool operator==(const IntArrayRef& other) const noexcept {
    return std::equal(begin(), end(), other.begin(), other.end());
  }
  bool operator!=(const IntArrayRef& other) const noexcept { return !(*this == other); }

 private:
  const int64_t* data_;
  size_t size_;
};

/// The device of a call's arrays: the GPU in a CUDA source.
struct Device {
#if defined(__CUDACC__)
  static constexpr bool kCuda = true;
#else
  static constexpr bool kCuda = false;
#endif
  bool is_cuda() const noexcept { return kCuda; }
  bool is_cpu() const noexcept { return !kCuda; }
  bool operator==(const Device&) const noexcept { return true; }
  bool operator!=(const Device&) const noexcept { return false; }
};

template <class T>
using optional = std::optional<T>;
inline constexpr std::nullopt_t nullopt = std::nullopt;

}  // namespace c10

namespace at {

using namespace c10;

template <class T>
struct DefaultPtrTraits {
  using PtrType = T*;
};
template <class T>
struct RestrictPtrTraits {
  using PtrType = T* __restrict__;
};

/// A view of elements after the first indices of `x[i][j]`. The extents belong to the accessor that it came from.
template <class T, size_t kRank, template <class> class Traits = DefaultPtrTraits, class Index = int64_t>
class TensorAccessor {
 public:
  BE_HD TensorAccessor(typename Traits<T>::PtrType data, const Index* sizes, const Index* strides) noexcept
      : data_(data), sizes_(sizes), strides_(strides) {}
  BE_HD decltype(auto) operator[](Index i) const noexcept {
    if constexpr (kRank == 1)
      return static_cast<T&>(data_[i * strides_[0]]);
    else
      return TensorAccessor<T, kRank - 1, Traits, Index>(data_ + i * strides_[0], sizes_ + 1, strides_ + 1);
  }
  BE_HD Index size(int i) const noexcept { return sizes_[i]; }
  BE_HD Index stride(int i) const noexcept { return strides_[i]; }
  BE_HD typename Traits<T>::PtrType data() const noexcept { return data_; }

 private:
  typename Traits<T>::PtrType data_;
  const Index* sizes_;
  const Index* strides_;
};

/// An accessor with its own extents, for a kernel's parameter.
template <class T, size_t kRank, template <class> class Traits = DefaultPtrTraits, class Index = int64_t>
class GenericPackedTensorAccessor {
 public:
  GenericPackedTensorAccessor(T* data, const int64_t* sizes, const int64_t* strides) : data_(data) {
    for (size_t i = 0; i < kRank; ++i) {
      sizes_[i] = static_cast<Index>(sizes[i]);
      strides_[i] = static_cast<Index>(strides[i]);
      BE_CHECK(sizes_[i] == sizes[i] && strides_[i] == strides[i])
          << "an array is too large for a PackedTensorAccessor32; use packed_accessor64";
    }
  }
  BE_HD decltype(auto) operator[](Index i) const noexcept {
    return TensorAccessor<T, kRank, Traits, Index>(data_, sizes_, strides_)[i];
  }
  BE_HD Index size(int i) const noexcept { return sizes_[i]; }
  BE_HD Index stride(int i) const noexcept { return strides_[i]; }
  BE_HD typename Traits<T>::PtrType data() const noexcept { return data_; }

 private:
  typename Traits<T>::PtrType data_;
  Index sizes_[kRank];
  Index strides_[kRank];
};
template <class T, size_t kRank, template <class> class Traits = DefaultPtrTraits>
using PackedTensorAccessor32 = GenericPackedTensorAccessor<T, kRank, Traits, int32_t>;
template <class T, size_t kRank, template <class> class Traits = DefaultPtrTraits>
using PackedTensorAccessor64 = GenericPackedTensorAccessor<T, kRank, Traits, int64_t>;

template <class...>
inline constexpr bool kIsDeclared = false;

#if defined(BE_TORCH_REFUSE_WHEN_CALLED)
#define BE_INTERNAL_TORCH_REFUSE(message) throw ::BE::CheckError(message)
#else
#define BE_INTERNAL_TORCH_REFUSE(message) static_assert(kIsDeclared<A...>, message)
#endif

/// A member of torch's tensors that makes another array.
#define BE_INTERNAL_TORCH_NO_MEMBER(name, advice)                                                       \
  template <class... A>                                                                                 \
  Tensor name(A&&...) const {                                                                           \
    BE_INTERNAL_TORCH_REFUSE("Tensor::" #name " is not available in a kernel for JAX: " advice); \
    return *this;                                                                                       \
  }
#define BE_INTERNAL_TORCH_NO_OPERATOR(op, advice)                                                  \
  template <class... A, class Other>                                                               \
  Tensor operator op(const Other&) const {                                                         \
    BE_INTERNAL_TORCH_REFUSE("Tensor::operator" #op " is not available in a kernel for JAX: " advice); \
    return *this;                                                                                  \
  }
#define BE_INTERNAL_TORCH_IN_JAX "compute it with jax.numpy before or after the call"
#define BE_INTERNAL_TORCH_FILLED "declare the result with contents, ret[...]=0, or launch a kernel that writes it"

/// A view of one of a call's arrays. As with torch, const does not protect the elements: don't write to inputs.
class Tensor {
 public:
  Tensor() noexcept = default;
  Tensor(const BE::Tensor& view) noexcept : view_(view) {}  // NOLINT: implicit on purpose
  operator BE::Tensor() const noexcept { return view_; }    // NOLINT: implicit on purpose

  bool defined() const noexcept { return view_.dtype() != BE::DType::Invalid; }
  int64_t dim() const noexcept { return view_.ndim(); }
  int64_t ndimension() const noexcept { return view_.ndim(); }
  int64_t size(int64_t i) const { return view_.size(static_cast<int>(i)); }
  int64_t stride(int64_t i) const { return view_.stride(static_cast<int>(i)); }
  IntArrayRef sizes() const noexcept { return {view_.shape_ptr(), static_cast<size_t>(view_.ndim())}; }
  IntArrayRef strides() const noexcept { return {view_.strides_ptr(), static_cast<size_t>(view_.ndim())}; }
  int64_t numel() const noexcept { return view_.numel(); }
  int64_t element_size() const { return static_cast<int64_t>(view_.element_size()); }
  size_t itemsize() const { return view_.element_size(); }
  size_t nbytes() const noexcept { return view_.nbytes(); }
  ScalarType scalar_type() const noexcept { return static_cast<ScalarType>(view_.dtype()); }
  ScalarType dtype() const noexcept { return scalar_type(); }
  ScalarType type() const noexcept { return scalar_type(); }
  bool is_floating_point() const noexcept {
    const ScalarType type = scalar_type();
    return type == kHalf || type == kBFloat16 || type == kFloat || type == kDouble;
  }
  bool is_contiguous() const noexcept { return true; }
  const Tensor& contiguous() const noexcept { return *this; }
  Device device() const noexcept { return {}; }
  bool is_cuda() const noexcept { return Device::kCuda; }
  bool is_cpu() const noexcept { return !Device::kCuda; }
  int get_device() const noexcept { return Device::kCuda ? 0 : -1; }

  /// Throw `BE::CheckError` if `T` is not the type of the elements.
  template <class T>
  T* data_ptr() const {
    return BE::Tensor(view_).data_ptr<T>();
  }
  template <class T>
  T* mutable_data_ptr() const {
    return data_ptr<T>();
  }
  template <class T>
  const T* const_data_ptr() const {
    return data_ptr<T>();
  }
  void* data_ptr() const noexcept { return BE::Tensor(view_).data_ptr(); }
  void* mutable_data_ptr() const noexcept { return data_ptr(); }
  const void* const_data_ptr() const noexcept { return data_ptr(); }

  template <class T, size_t kRank>
  TensorAccessor<T, kRank> accessor() const& {
    check_rank(kRank);
    return {data_ptr<T>(), view_.shape_ptr(), view_.strides_ptr()};
  }
  template <class T, size_t kRank, template <class> class Traits = DefaultPtrTraits>
  PackedTensorAccessor32<T, kRank, Traits> packed_accessor32() const {
    check_rank(kRank);
    return {data_ptr<T>(), view_.shape_ptr(), view_.strides_ptr()};
  }
  template <class T, size_t kRank, template <class> class Traits = DefaultPtrTraits>
  PackedTensorAccessor64<T, kRank, Traits> packed_accessor64() const {
    check_rank(kRank);
    return {data_ptr<T>(), view_.shape_ptr(), view_.strides_ptr()};
  }

  BE_INTERNAL_TORCH_NO_MEMBER(to, "convert the input with x.astype(...) before the call")
  BE_INTERNAL_TORCH_NO_MEMBER(clone, "declare scratch[...] for a copy, or inout for a result that begins as an input")
  BE_INTERNAL_TORCH_NO_MEMBER(cpu, "the host must not wait for the GPU; pass a number as an attribute")
  BE_INTERNAL_TORCH_NO_MEMBER(item, "the host must not wait for the GPU; pass a number as an attribute")
  BE_INTERNAL_TORCH_NO_MEMBER(zero_, BE_INTERNAL_TORCH_FILLED)
  BE_INTERNAL_TORCH_NO_MEMBER(fill_, BE_INTERNAL_TORCH_FILLED)
  BE_INTERNAL_TORCH_NO_MEMBER(copy_, "declare the result as inout, or copy with cudaMemcpyAsync or memcpy")
  BE_INTERNAL_TORCH_NO_MEMBER(view, "reshape the array in JAX before the call")
  BE_INTERNAL_TORCH_NO_MEMBER(reshape, "reshape the array in JAX before the call")
  BE_INTERNAL_TORCH_NO_MEMBER(transpose, BE_INTERNAL_TORCH_IN_JAX)
  BE_INTERNAL_TORCH_NO_MEMBER(permute, BE_INTERNAL_TORCH_IN_JAX)
  BE_INTERNAL_TORCH_NO_MEMBER(expand, BE_INTERNAL_TORCH_IN_JAX)
  BE_INTERNAL_TORCH_NO_MEMBER(flatten, "reshape the array in JAX before the call")
  BE_INTERNAL_TORCH_NO_OPERATOR([], "use accessor, packed_accessor32 or data_ptr, or index the array in JAX")
  BE_INTERNAL_TORCH_NO_OPERATOR(==, BE_INTERNAL_TORCH_IN_JAX)
  BE_INTERNAL_TORCH_NO_OPERATOR(<, BE_INTERNAL_TORCH_IN_JAX)
  BE_INTERNAL_TORCH_NO_OPERATOR(>, BE_INTERNAL_TORCH_IN_JAX)
  BE_INTERNAL_TORCH_NO_MEMBER(select, "index the array in JAX before the call")
  BE_INTERNAL_TORCH_NO_MEMBER(unsqueeze, "reshape the array in JAX before the call")
  BE_INTERNAL_TORCH_NO_MEMBER(squeeze, "reshape the array in JAX before the call")
  BE_INTERNAL_TORCH_NO_MEMBER(div_, BE_INTERNAL_TORCH_IN_JAX)
  BE_INTERNAL_TORCH_NO_MEMBER(true_divide_, BE_INTERNAL_TORCH_IN_JAX)
  BE_INTERNAL_TORCH_NO_MEMBER(masked_fill_, BE_INTERNAL_TORCH_FILLED)
  BE_INTERNAL_TORCH_NO_MEMBER(sum, BE_INTERNAL_TORCH_IN_JAX)
  BE_INTERNAL_TORCH_NO_MEMBER(max, BE_INTERNAL_TORCH_IN_JAX)
  BE_INTERNAL_TORCH_NO_MEMBER(options, "it serves to allocate; declare results as ret[...] and memory as scratch[...]")
  BE_INTERNAL_TORCH_NO_MEMBER(dtype, "it serves to allocate; declare the dtype of a result, as in ret[n]:float32")
  BE_INTERNAL_TORCH_NO_MEMBER(requires_grad, "give the function its derivative with defvjp in Python")
  BE_INTERNAL_TORCH_NO_MEMBER(backward, "give the function its derivative with defvjp in Python")

 private:
  void check_rank(size_t rank) const {
    BE_CHECK(static_cast<size_t>(view_.ndim()) == rank)
        << "an accessor of " << rank << " dimensions for an array of " << view_.ndim();
  }

  BE::Tensor view_;
};

/// Return the device of the tensor, for a `CUDAGuard`.
inline std::optional<Device> device_of(const Tensor& x) { return x.device(); }

#define BE_INTERNAL_TORCH_NO_FUNCTION(name, advice)                                                 \
  template <class... A>                                                                             \
  Tensor name(A&&...) {                                                                             \
    BE_INTERNAL_TORCH_REFUSE(#name "() is not available in a kernel for JAX: " advice); \
    return {};                                                                                      \
  }                                                                                                 \
  template <class... A>                                                                             \
  Tensor name(std::initializer_list<int64_t>, A&&...) {                                             \
    BE_INTERNAL_TORCH_REFUSE(#name "() is not available in a kernel for JAX: " advice); \
    return {};                                                                                      \
  }
#define BE_INTERNAL_TORCH_RESULT "XLA owns all memory. Take a result as a parameter and declare it as ret[...]"
#define BE_INTERNAL_TORCH_EMPTY BE_INTERNAL_TORCH_RESULT ", or memory for the call as scratch[...]"
BE_INTERNAL_TORCH_NO_FUNCTION(empty, BE_INTERNAL_TORCH_EMPTY)
BE_INTERNAL_TORCH_NO_FUNCTION(empty_like, BE_INTERNAL_TORCH_EMPTY)
BE_INTERNAL_TORCH_NO_FUNCTION(zeros, BE_INTERNAL_TORCH_RESULT "=0")
BE_INTERNAL_TORCH_NO_FUNCTION(zeros_like, BE_INTERNAL_TORCH_RESULT "=0")
BE_INTERNAL_TORCH_NO_FUNCTION(ones, BE_INTERNAL_TORCH_RESULT " and write it in the kernel")
BE_INTERNAL_TORCH_NO_FUNCTION(ones_like, BE_INTERNAL_TORCH_RESULT " and write it in the kernel")
BE_INTERNAL_TORCH_NO_FUNCTION(full, BE_INTERNAL_TORCH_RESULT " and write it in the kernel")
BE_INTERNAL_TORCH_NO_FUNCTION(full_like, BE_INTERNAL_TORCH_RESULT " and write it in the kernel")

/// The type in which torch computes with `T`.
template <class T>
using opmath_type = std::conditional_t<std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>, float, T>;

}  // namespace at

namespace torch {

using namespace at;

namespace autograd {
template <class T>
struct Function {
  static_assert(kIsDeclared<T>, "torch::autograd::Function: give the function its derivative with defvjp in Python");
};
}  // namespace autograd
}  // namespace torch

namespace BE::internal {

/// Follows the values of a message, so that a message may have none.
struct EndOfMessage {};
BE_COLD inline void add_values(CheckMessage&, EndOfMessage) noexcept {}
template <class Value, class... Values>
BE_COLD void add_values(CheckMessage& message, const Value& value, const Values&... values) {
  message << value;
  add_values(message, values...);
}
template <class... Values>
[[noreturn]] BE_COLD void throw_values(CheckMessage message, const Values&... values) {
  add_values(message, values...);
  throw CheckError(message.text());
}

}  // namespace BE::internal

/// `TORCH_CHECK(condition, values...);` throws `BE::CheckError` with the values one after the other.
#define TORCH_CHECK(...) BE_INTERNAL_TORCH_CHECK(__VA_ARGS__, ::BE::internal::EndOfMessage())
#define BE_INTERNAL_TORCH_CHECK(condition, ...)  \
  (__builtin_expect(bool(condition), 1)         \
       ? (void)0                                \
       : ::BE::internal::throw_values(::BE::internal::CheckMessage(__FILE__, __LINE__, #condition), __VA_ARGS__))
#define TORCH_INTERNAL_ASSERT(...) TORCH_CHECK(__VA_ARGS__)
#define AT_ASSERTM(...) TORCH_CHECK(__VA_ARGS__)
#define AT_ASSERT(...) TORCH_CHECK(__VA_ARGS__)
#define AT_ERROR(...) TORCH_CHECK(false, __VA_ARGS__)

// The bindings of a file are not compiled: `// @BE` lines take their place.
#if !defined(PYBIND11_MODULE)
#define PYBIND11_MODULE(name, module) BE_INTERNAL_TORCH_BINDINGS(module, __LINE__)
#endif
#define TORCH_LIBRARY(name, module) BE_INTERNAL_TORCH_BINDINGS(module, __LINE__)
#define TORCH_LIBRARY_FRAGMENT(name, module) BE_INTERNAL_TORCH_BINDINGS(module, __LINE__)
#define TORCH_LIBRARY_IMPL(name, key, module) BE_INTERNAL_TORCH_BINDINGS(module, __LINE__)
#define BE_INTERNAL_TORCH_BINDINGS(module, line) BE_INTERNAL_TORCH_BINDINGS_AT(module, line)
#define BE_INTERNAL_TORCH_BINDINGS_AT(module, line) \
  template <class Module>                           \
  [[maybe_unused]] static void be_bindings_##line([[maybe_unused]] Module& module)

// Code written once and compiled for several types, as `scalar_t`.
#define AT_DISPATCH_CASE(type, ...)                                                    \
  case type: {                                                                         \
    using scalar_t [[maybe_unused]] = ::c10::impl::ScalarTypeToCPPTypeT<type>;         \
    return __VA_ARGS__();                                                              \
  }
#define AT_DISPATCH_SWITCH(type, name, ...)                                                              \
  [&] {                                                                                                  \
    const ::c10::ScalarType be_internal_type = type;                                                     \
    switch (be_internal_type) {                                                                          \
      __VA_ARGS__                                                                                        \
      default:                                                                                           \
        throw ::BE::CheckError(::BE::internal::at_location(__FILE__, __LINE__)                           \
                                   .append("\"")                                                         \
                                   .append(name)                                                         \
                                   .append("\" is not implemented for ")                                 \
                                   .append(::c10::toString(be_internal_type)));                          \
    }                                                                                                    \
  }()
#define AT_DISPATCH_CASE_FLOATING_TYPES(...) \
  AT_DISPATCH_CASE(::c10::ScalarType::Double, __VA_ARGS__) \
  AT_DISPATCH_CASE(::c10::ScalarType::Float, __VA_ARGS__)
#define AT_DISPATCH_CASE_INTEGRAL_TYPES(...) \
  AT_DISPATCH_CASE(::c10::ScalarType::Byte, __VA_ARGS__) \
  AT_DISPATCH_CASE(::c10::ScalarType::Char, __VA_ARGS__) \
  AT_DISPATCH_CASE(::c10::ScalarType::Int, __VA_ARGS__) \
  AT_DISPATCH_CASE(::c10::ScalarType::Long, __VA_ARGS__) \
  AT_DISPATCH_CASE(::c10::ScalarType::Short, __VA_ARGS__)
#define AT_DISPATCH_CASE_COMPLEX_TYPES(...) \
  AT_DISPATCH_CASE(::c10::ScalarType::ComplexDouble, __VA_ARGS__) \
  AT_DISPATCH_CASE(::c10::ScalarType::ComplexFloat, __VA_ARGS__)
#define AT_DISPATCH_CASE_REDUCED_FLOATING_TYPES(...) \
  AT_DISPATCH_CASE(::c10::ScalarType::Half, __VA_ARGS__) \
  AT_DISPATCH_CASE(::c10::ScalarType::BFloat16, __VA_ARGS__)
#define AT_DISPATCH_CASE_FLOATING_TYPES_AND_HALF(...) \
  AT_DISPATCH_CASE_FLOATING_TYPES(__VA_ARGS__) \
  AT_DISPATCH_CASE(::c10::ScalarType::Half, __VA_ARGS__)
#define AT_DISPATCH_CASE_ALL_TYPES(...) \
  AT_DISPATCH_CASE_FLOATING_TYPES(__VA_ARGS__) \
  AT_DISPATCH_CASE_INTEGRAL_TYPES(__VA_ARGS__)
#define AT_DISPATCH_CASE_FLOATING_AND_COMPLEX_TYPES(...) \
  AT_DISPATCH_CASE_FLOATING_TYPES(__VA_ARGS__) \
  AT_DISPATCH_CASE_COMPLEX_TYPES(__VA_ARGS__)
#define AT_DISPATCH_CASE_ALL_TYPES_AND_COMPLEX(...) \
  AT_DISPATCH_CASE_ALL_TYPES(__VA_ARGS__) \
  AT_DISPATCH_CASE_COMPLEX_TYPES(__VA_ARGS__)
// The types of a group, and of none to three types before it.
#define BE_INTERNAL_DISPATCH0(group, type, name, ...) \
  AT_DISPATCH_SWITCH(type, name, AT_DISPATCH_CASE_##group(__VA_ARGS__))
#define BE_INTERNAL_DISPATCH1(group, t1, type, name, ...) \
  AT_DISPATCH_SWITCH(type, name, AT_DISPATCH_CASE(t1, __VA_ARGS__) AT_DISPATCH_CASE_##group(__VA_ARGS__))
#define BE_INTERNAL_DISPATCH2(group, t1, t2, type, name, ...) \
  AT_DISPATCH_SWITCH(type, name, AT_DISPATCH_CASE(t1, __VA_ARGS__) AT_DISPATCH_CASE(t2, __VA_ARGS__) \
                                     AT_DISPATCH_CASE_##group(__VA_ARGS__))
#define BE_INTERNAL_DISPATCH3(group, t1, t2, t3, type, name, ...) \
  AT_DISPATCH_SWITCH(type, name, AT_DISPATCH_CASE(t1, __VA_ARGS__) AT_DISPATCH_CASE(t2, __VA_ARGS__) \
                                     AT_DISPATCH_CASE(t3, __VA_ARGS__) AT_DISPATCH_CASE_##group(__VA_ARGS__))
#define AT_DISPATCH_REDUCED_FLOATING_TYPES(...) BE_INTERNAL_DISPATCH0(REDUCED_FLOATING_TYPES, __VA_ARGS__)
#define AT_DISPATCH_FLOATING_TYPES_AND_HALF(...) BE_INTERNAL_DISPATCH0(FLOATING_TYPES_AND_HALF, __VA_ARGS__)
#define AT_DISPATCH_COMPLEX_TYPES(...) BE_INTERNAL_DISPATCH0(COMPLEX_TYPES, __VA_ARGS__)
#define AT_DISPATCH_FLOATING_TYPES(...) BE_INTERNAL_DISPATCH0(FLOATING_TYPES, __VA_ARGS__)
#define AT_DISPATCH_FLOATING_TYPES_AND(...) BE_INTERNAL_DISPATCH1(FLOATING_TYPES, __VA_ARGS__)
#define AT_DISPATCH_FLOATING_TYPES_AND2(...) BE_INTERNAL_DISPATCH2(FLOATING_TYPES, __VA_ARGS__)
#define AT_DISPATCH_FLOATING_TYPES_AND3(...) BE_INTERNAL_DISPATCH3(FLOATING_TYPES, __VA_ARGS__)
#define AT_DISPATCH_INTEGRAL_TYPES(...) BE_INTERNAL_DISPATCH0(INTEGRAL_TYPES, __VA_ARGS__)
#define AT_DISPATCH_INTEGRAL_TYPES_AND(...) BE_INTERNAL_DISPATCH1(INTEGRAL_TYPES, __VA_ARGS__)
#define AT_DISPATCH_INTEGRAL_TYPES_AND2(...) BE_INTERNAL_DISPATCH2(INTEGRAL_TYPES, __VA_ARGS__)
#define AT_DISPATCH_INTEGRAL_TYPES_AND3(...) BE_INTERNAL_DISPATCH3(INTEGRAL_TYPES, __VA_ARGS__)
#define AT_DISPATCH_ALL_TYPES(...) BE_INTERNAL_DISPATCH0(ALL_TYPES, __VA_ARGS__)
#define AT_DISPATCH_ALL_TYPES_AND(...) BE_INTERNAL_DISPATCH1(ALL_TYPES, __VA_ARGS__)
#define AT_DISPATCH_ALL_TYPES_AND2(...) BE_INTERNAL_DISPATCH2(ALL_TYPES, __VA_ARGS__)
#define AT_DISPATCH_ALL_TYPES_AND3(...) BE_INTERNAL_DISPATCH3(ALL_TYPES, __VA_ARGS__)
#define AT_DISPATCH_FLOATING_AND_COMPLEX_TYPES(...) BE_INTERNAL_DISPATCH0(FLOATING_AND_COMPLEX_TYPES, __VA_ARGS__)
#define AT_DISPATCH_FLOATING_AND_COMPLEX_TYPES_AND(...) BE_INTERNAL_DISPATCH1(FLOATING_AND_COMPLEX_TYPES, __VA_ARGS__)
#define AT_DISPATCH_FLOATING_AND_COMPLEX_TYPES_AND2(...) BE_INTERNAL_DISPATCH2(FLOATING_AND_COMPLEX_TYPES, __VA_ARGS__)
#define AT_DISPATCH_FLOATING_AND_COMPLEX_TYPES_AND3(...) BE_INTERNAL_DISPATCH3(FLOATING_AND_COMPLEX_TYPES, __VA_ARGS__)
#define AT_DISPATCH_ALL_TYPES_AND_COMPLEX(...) BE_INTERNAL_DISPATCH0(ALL_TYPES_AND_COMPLEX, __VA_ARGS__)
#define AT_DISPATCH_ALL_TYPES_AND_COMPLEX_AND(...) BE_INTERNAL_DISPATCH1(ALL_TYPES_AND_COMPLEX, __VA_ARGS__)
#define AT_DISPATCH_ALL_TYPES_AND_COMPLEX_AND2(...) BE_INTERNAL_DISPATCH2(ALL_TYPES_AND_COMPLEX, __VA_ARGS__)
#define AT_DISPATCH_ALL_TYPES_AND_COMPLEX_AND3(...) BE_INTERNAL_DISPATCH3(ALL_TYPES_AND_COMPLEX, __VA_ARGS__)
#define AT_DISPATCH_INDEX_TYPES(type, name, ...) \
  [&] { \
    using index_t [[maybe_unused]] = int; \
    if ((type) == ::c10::ScalarType::Int) return __VA_ARGS__(); \
    return [&] { \
      using index_t [[maybe_unused]] = int64_t; \
      TORCH_CHECK((type) == ::c10::ScalarType::Long, name, " takes indices of int32 or int64"); \
      return __VA_ARGS__(); \
    }(); \
  }()

#if defined(__CUDACC__)
#include "brainevent/detail/torch_cuda.h"
#endif
