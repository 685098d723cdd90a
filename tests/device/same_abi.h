// tests/device/same_abi.h - whether two declarations of a C function are called in the same way.
#ifndef LMDBIO_TESTS_DEVICE_SAME_ABI_H_
#define LMDBIO_TESTS_DEVICE_SAME_ABI_H_

#include <type_traits>

namespace lmdbio::test {

template <typename T>
concept Complete = requires {
  sizeof(T);
};

// Whether calls pass the two types in the same way: the same class of value, and the same size also
// of what pointers lead to.
template <typename A, typename B>
constexpr bool IsSameAbi() {
  if constexpr (std::is_pointer_v<A> && std::is_pointer_v<B>) {
    using ToA = std::remove_cv_t<std::remove_pointer_t<A>>;
    using ToB = std::remove_cv_t<std::remove_pointer_t<B>>;
    constexpr bool is_same_constness =
        std::is_const_v<std::remove_pointer_t<A>> == std::is_const_v<std::remove_pointer_t<B>>;
    if constexpr (std::is_void_v<ToA> || std::is_void_v<ToB>) {
      return std::is_void_v<ToA> && std::is_void_v<ToB> && is_same_constness;
    } else if constexpr (!Complete<ToA> || !Complete<ToB>) {
      return !Complete<ToA> && !Complete<ToB>;  // handles
    } else if constexpr (std::is_class_v<ToA> || std::is_union_v<ToA>) {
      return (std::is_class_v<ToB> || std::is_union_v<ToB>)&&sizeof(ToA) == sizeof(ToB) &&
             alignof(ToA) == alignof(ToB) && is_same_constness;
    } else {
      return IsSameAbi<ToA, ToB>() && is_same_constness;
    }
  } else if constexpr (std::is_floating_point_v<A> || std::is_floating_point_v<B>) {
    return std::is_same_v<A, B>;
  } else if constexpr (std::is_class_v<A> && std::is_class_v<B>) {
    return sizeof(A) == sizeof(B) && alignof(A) == alignof(B) && std::is_trivially_copyable_v<A> &&
           std::is_trivially_copyable_v<B>;
  } else {
    constexpr bool are_numbers =
        (std::is_integral_v<A> || std::is_enum_v<A>)&&(std::is_integral_v<B> || std::is_enum_v<B>);
    return are_numbers && sizeof(A) == sizeof(B);
  }
}

template <typename A, typename B>
struct SameCall : std::false_type {};

template <typename A, typename... As, typename B, typename... Bs>
requires(sizeof...(As) == sizeof...(Bs)) struct SameCall<A (*)(As...), B (*)(Bs...)>
    : std::bool_constant<IsSameAbi<A, B>() && (IsSameAbi<As, Bs>() && ...)> {
};

// The comparison itself can tell calls apart.
static_assert(!SameCall<int (*)(int), int (*)(long)>::value);
static_assert(!SameCall<int (*)(int), int (*)(int, int)>::value);
static_assert(!SameCall<int (*)(int), int (*)(float)>::value);
static_assert(!SameCall<int (*)(int*), int (*)(long*)>::value);
static_assert(!SameCall<int (*)(const void*), int (*)(void*)>::value);

}  // namespace lmdbio::test
#endif  // LMDBIO_TESTS_DEVICE_SAME_ABI_H_
