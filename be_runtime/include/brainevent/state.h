#pragma once

/// \file
/// `BE::State`, a reference to an object that a compiled program keeps between calls, and classes that such an object
/// uses.

#include "brainevent/detail/entry.h"

namespace BE {

/// The attributes of a call, for the constructor of a state's object. If the call omits an attribute, the attribute has
/// the default value. `BE::Attributes` is valid only in the constructor.
class Attributes {
 public:
  Attributes(const XLA_FFI_CallFrame* frame, const detail::EntrySpec& entry, const void* const* values) noexcept
      : be_frame(frame), be_entry(entry), be_values(values) {}

  /// Return whether the entry point takes an attribute of this name.
  bool has(const char* name) const noexcept;

  /// Return the value of an attribute. `T` depends on the attribute:
  ///
  /// - number: an arithmetic type that can represent the number;
  /// - string or enumeration: `std::string`, the text or the name of the enumerator;
  /// - array: `BE::Span<const Item>`, where `Item` is the type of an element. The Span is valid only in the
  ///   constructor.
  ///
  /// Throw `CheckError` if the entry point takes no attribute of this name, or if `T` does not match the attribute.
  template <class T>
  T get(const char* name) const;

  const XLA_FFI_CallFrame* be_frame;
  const detail::EntrySpec& be_entry;
  const void* const* be_values;
};

/// The shapes and dtypes of the arrays of a call, for the constructor of a state's object. `BE::Shapes` is valid only
/// in the constructor.
class Shapes {
 public:
  Shapes(const detail::Call& call, const detail::EntrySpec& entry, Tensor* const* slots) noexcept
      : be_call(call), be_entry(entry), be_slots(slots) {}

  /// Return a tensor with a null address, and the shape and dtype of argument `index`, counted from 0.
  ///
  /// Throw `CheckError` if the entry point takes no such argument, or if `arg?` declares the
  /// argument and the call passes `None`.
  Tensor arg(int index) const { return be_shape(index, be_entry.arg_count, be_call.be_args, be_slots); }

  /// Return a tensor with a null address, and the shape and dtype of result `index`, counted from 0.
  ///
  /// Throw `CheckError` if the entry point has no such result, or if `ret?` declares the result and
  /// the call omits the result.
  Tensor ret(int index) const {
    return be_shape(index, be_entry.ret_count, be_call.be_rets,
                    be_slots == nullptr ? nullptr : be_slots + be_entry.arg_count);
  }

  const detail::Call& be_call;
  const detail::EntrySpec& be_entry;
  Tensor* const* be_slots;

 private:
  static Tensor be_shape(int index, int count, const Tensor* tensors, Tensor* const* slots) {
    if (index < 0 || index >= count || (slots != nullptr && slots[index] == nullptr)) {
      internal::Text text;
      throw CheckError(text.append("the state asks for the shape of array ").append(index).append(
          ", which the call does not have"));
    }
    const Tensor& tensor = slots == nullptr ? tensors[index] : *slots[index];
    return Tensor(nullptr, tensor.dtype(), tensor.ndim(), tensor.shape_ptr());
  }
};

}  // namespace BE

/// See native/call_states.h.
BE_INTERNAL_HIDDEN bool be_has_attribute(const BE::Attributes&, const char*) noexcept;
BE_INTERNAL_HIDDEN void be_read_number(const BE::Attributes&, const char*, BE::DType, void*);
BE_INTERNAL_HIDDEN const void* be_read_items(const BE::Attributes&, const char*, BE::DType, size_t*);
BE_INTERNAL_HIDDEN void* be_make_once(void**, void* (*)(const void*), const void*);

namespace BE {

namespace detail {

/// Return the element type of a text or an array; a `char` has no DType.
template <class T>
constexpr DType item_dtype() noexcept {
  if constexpr (__is_same(const T, const char)) return DType::Invalid;
  else return internal::DTypeOf<T>::value;
}

}  // namespace detail

inline bool Attributes::has(const char* name) const noexcept { return be_has_attribute(*this, name); }

template <class T>
T Attributes::get(const char* name) const {
  if constexpr (__is_class(T)) {
    using Item = typename internal::ValueOf<decltype(*internal::a_value_of<const T&>().data())>::type;
    size_t count = 0;
    const void* items = be_read_items(*this, name, detail::item_dtype<Item>(), &count);
    return T(static_cast<const Item*>(items), count);
  } else {
    T value;
    be_read_number(*this, name, internal::DTypeOf<T>::value, &value);
    return value;
  }
}

/// A reference to an object of type `T`, such as a plan or a table, that a compiled program keeps between calls. Each
/// place in the program that calls the entry point has its own object. The objects are deleted with the program.
///
/// The constructor of `T` determines when the object is made:
///
/// - `explicit T(const BE::Attributes&)` or `T()`: when JAX compiles the program. If the constructor throws an
///   exception, the compilation fails.
/// - `T(const BE::Attributes&, const BE::Shapes&)`: when the entry point first runs. If the constructor throws an
///   exception, this run fails.
///
/// All devices and threads that run the program may use the object at the same time. Access to the object is therefore
/// const. If a call changes a member, declare the member `mutable`, and guard the member with a mutex.
template <class T>
class State {
 public:
  explicit State(const void* object) noexcept : object_(static_cast<const T*>(object)) {
    BE_INTERNAL_ACQUIRE(object);
  }

  /// Return the object.
  const T& operator*() const noexcept { return *object_; }
  const T* operator->() const noexcept { return object_; }

 private:
  const T* object_;
};

namespace detail {

/// The description of an entry point's state in a generated source, and the number of its type in each copy of XLA.
/// Lives in static storage.
struct StateRecord {
  static constexpr int kMostApis = 8;
  struct Known {
    const void* be_api;
    int64_t be_type;
  };

  void* (*be_make)(const Attributes&);
  void (*be_delete)(void*);
  Known be_known[kMostApis];
};

/// The T of a function's parameter State<T>.
template <class... Params>
struct StateIn {
  static_assert(sizeof...(Params) > 0, "the arg_spec has `state`, but the function has no parameter BE::State<T>");
};
template <class First, class... Rest>
struct StateIn<First, Rest...> : StateIn<Rest...> {};
template <class T, class... Rest>
struct StateIn<State<T>, Rest...> {
  using Type = T;
};
template <class T, class... Rest>
struct StateIn<State<T>&, Rest...> : StateIn<State<T>> {};
template <class T, class... Rest>
struct StateIn<const State<T>&, Rest...> : StateIn<State<T>> {};

/// A state that the first call makes.
template <class T>
struct LateState {
  void* be_object = nullptr;
  LateState() noexcept = default;
  ~LateState() { delete static_cast<T*>(be_object); }
  LateState& operator=(LateState&&) = delete;
};

template <class T>
constexpr bool kIsLate = __is_constructible(T, const Attributes&, const Shapes&);

template <class T>
void* be_make_state([[maybe_unused]] const Attributes& be_attributes) {
  void* object;
  if constexpr (kIsLate<T>) object = new LateState<T>();
  else if constexpr (__is_constructible(T, const Attributes&)) object = new T(be_attributes);
  else object = new T();
  BE_INTERNAL_RELEASE(object);
  return object;
}

/// Delete a state. be_runtime/debugging/sanitizers.py finds the end of a state by this name.
template <class T>
void be_delete_state(void* be_state) {
  if constexpr (kIsLate<T>) delete static_cast<LateState<T>*>(be_state);
  else delete static_cast<T*>(be_state);
}

template <class Result, class... Params>
constexpr StateRecord be_record_of(Result (*)(Params...)) noexcept {
  using T = typename StateIn<Params...>::Type;
  return {be_make_state<T>, be_delete_state<T>, {}};
}

}  // namespace detail
}  // namespace BE

/// See native/call_states.h.
BE_INTERNAL_HIDDEN void* be_find_state(XLA_FFI_CallFrame*, BE::detail::StateRecord&);
BE_INTERNAL_HIDDEN XLA_FFI_Error* be_instantiate(XLA_FFI_CallFrame*, const BE::detail::EntrySpec&,
                                                 BE::detail::StateRecord&) noexcept;

namespace BE {
namespace detail {

#if defined(__CUDACC__)
inline int be_current_device() {
  int be_device = 0;
  BE_CUDA_CHECK(cudaGetDevice(&be_device));
  return be_device;
}

/// Guard that makes a device current. Objects that allocate may be made on it while XLA records a CUDA graph.
class OnDevice {
 public:
  explicit OnDevice(int device) {
    cudaGetDevice(&before_);
    cudaSetDevice(device);
    cudaThreadExchangeStreamCaptureMode(&mode_);
  }
  ~OnDevice() {
    cudaThreadExchangeStreamCaptureMode(&mode_);
    cudaSetDevice(before_);
  }
  OnDevice& operator=(OnDevice&&) = delete;

 private:
  int before_ = 0;
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};
#else
inline int be_current_device() noexcept { return 0; }
struct OnDevice {
  explicit OnDevice(int) noexcept {}
};
#endif

template <class T>
State<T> be_late_state(LateState<T>& be_state, const Call& be_call, const EntrySpec& be_entry,
                       Tensor* const* be_slots) {
  void* object = __atomic_load_n(&be_state.be_object, __ATOMIC_ACQUIRE);
  if (__builtin_expect(object == nullptr, 0)) {
    const OnDevice there(be_current_device());
    const auto make = [&]() -> void* {
      return new T(Attributes(be_call.be_frame, be_entry, be_call.be_attrs), Shapes(be_call, be_entry, be_slots));
    };
    using Make = decltype(make);
    object = be_make_once(&be_state.be_object, [](const void* it) { return (*static_cast<Make*>(it))(); }, &make);
  }
  return State<T>(object);
}

template <class Result, class... Params>
auto be_state_of(Result (*)(Params...), StateRecord& be_record, const Call& be_call,
                 [[maybe_unused]] const EntrySpec& be_entry, [[maybe_unused]] Tensor* const* be_slots) {
  using T = typename StateIn<Params...>::Type;
  void* state = be_find_state(be_call.be_frame, be_record);
  if constexpr (kIsLate<T>) return be_late_state(*static_cast<LateState<T>*>(state), be_call, be_entry, be_slots);
  else return State<T>(state);
}

}  // namespace detail

/// One object of type `T` for each CUDA device, such as a handle of cuBLAS. In a C++ source, there is one object.
///
/// All objects are deleted with the `BE::PerDevice`. Several calls may use an object at the same time, so access to the
/// object is const.
template <class T>
class PerDevice {
 public:
  /// The maximum number of devices, 64. If the number of the current device is 64 or greater, `get` throws
  /// `CheckError`.
  static constexpr int kMostDevices = 64;

  PerDevice() noexcept = default;
  ~PerDevice() {
    for (int device = 0; device < kMostDevices; ++device) {
      if (objects_[device] == nullptr) continue;
      const detail::OnDevice there(device);
      delete static_cast<T*>(objects_[device]);
    }
  }
  PerDevice& operator=(PerDevice&&) = delete;

  /// Return the object of the current device. If the device has no object yet, make the object with `T(arguments...)`.
  /// Later calls on the device ignore the arguments.
  template <class... Arguments>
  const T& get(const Arguments&... arguments) const {
    const int device = detail::be_current_device();
    BE_CHECK(device < kMostDevices) << "device " << device;
    void* object = __atomic_load_n(&objects_[device], __ATOMIC_ACQUIRE);
    if (__builtin_expect(object == nullptr, 0)) {
      const detail::OnDevice there(device);
      const auto make = [&]() -> void* { return new T(arguments...); };
      using Make = decltype(make);
      object = be_make_once(&objects_[device], [](const void* it) { return (*static_cast<Make*>(it))(); }, &make);
    }
    return *static_cast<const T*>(object);
  }

 private:
  mutable void* objects_[kMostDevices] = {};
};

}  // namespace BE
