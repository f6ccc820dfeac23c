/// Arrays that come from Python and go back to it.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <memory>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace relquery {

namespace nb = nanobind;

/// A NumPy array that C++ reads (const) or writes in place. In a signature, give arrays that are
/// written `nb::arg("name").noconvert()`: what is converted would be a copy.
template <typename T>
using Array = nb::ndarray<T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <typename T>
using Array2 = nb::ndarray<T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

/// Rows of numbers, one behind the other: `matrix[row][column]`.
template <typename T>
struct Matrix {
    T* data = nullptr;
    int64_t rows = 0, columns = 0;

    std::span<T> operator[](int64_t row) const {
        return {data + row * columns, static_cast<size_t>(columns)};
    }
    int64_t size() const { return rows * columns; }
};

template <typename T>
std::span<T> view(const Array<T>& array) {
    return {array.data(), array.shape(0)};
}

template <typename T>
Matrix<T> view(const Array2<T>& array) {
    return {array.data(), static_cast<int64_t>(array.shape(0)),
            static_cast<int64_t>(array.shape(1))};
}

/// What a vector holds, and its owner from now on.
template <typename T>
std::pair<T*, nb::capsule> kept(std::vector<T> numbers) {
    auto kept = std::make_unique<std::vector<T>>(std::move(numbers));
    T* data = kept->data();
    return {data, nb::capsule(kept.release(), [](void* each) noexcept {
                delete static_cast<std::vector<T>*>(each);
            })};
}

/// A NumPy array that owns the numbers of a vector.
template <typename T>
auto to_numpy(std::vector<T> numbers) {
    const size_t size = numbers.size();
    const auto [data, owner] = kept(std::move(numbers));
    return nb::ndarray<nb::numpy, T, nb::ndim<1>>(data, {size}, owner);
}

/// The same with so many columns; the vector has whole rows.
template <typename T>
auto to_numpy(std::vector<T> numbers, size_t rows, size_t columns) {
    const auto [data, owner] = kept(std::move(numbers));
    return nb::ndarray<nb::numpy, T, nb::ndim<2>>(data, {rows, columns}, owner);
}

/// The same for flags, of which a vector of bool has no array.
inline auto flags_to_numpy(std::vector<char> flags) {
    const size_t size = flags.size();
    const auto [data, owner] = kept(std::move(flags));
    return nb::ndarray<nb::numpy, bool, nb::ndim<1>>(reinterpret_cast<bool*>(data), {size}, owner);
}

/// The same for structs of whole numbers, one in each row.
template <typename T>
auto rows_to_numpy(std::vector<T> rows) {
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) % sizeof(int64_t) == 0);
    const size_t size = rows.size();
    const auto [data, owner] = kept(std::move(rows));
    return nb::ndarray<nb::numpy, int64_t, nb::ndim<2>>(reinterpret_cast<int64_t*>(data),
                                                        {size, sizeof(T) / sizeof(int64_t)}, owner);
}

template <typename T>
    requires std::is_arithmetic_v<T>
T to_python(T number) {
    return number;
}
template <typename T>
auto to_python(std::vector<T> numbers) {
    return to_numpy(std::move(numbers));
}
inline auto to_python(std::vector<char> flags) { return flags_to_numpy(std::move(flags)); }
template <typename... T>
nb::tuple to_python(std::tuple<T...> results) {
    return std::apply([](auto&... each) { return nb::make_tuple(to_python(std::move(each))...); },
                      results);
}

/// What a function returns that runs without the interpreter's lock.
template <typename Function>
auto released(Function function) {
    nb::gil_scoped_release without_lock;
    return function();
}

/// A function to be bound that runs without the interpreter's lock, its results as arrays.
template <typename Result, typename... Given>
auto unlocked(Result (*function)(Given...)) {
    return [function](Given... given) {
        return to_python(released([&] { return function(given...); }));
    };
}
template <typename Result, typename Class, typename... Given>
auto unlocked(Result (Class::*method)(Given...) const) {
    return [method](const Class& self, Given... given) {
        return to_python(released([&] { return (self.*method)(given...); }));
    };
}

/// Views as arguments of bound functions; what is written must not be a converted copy.
template <typename View, typename Array>
struct ViewCaster {
    nanobind::detail::make_caster<Array> array;

    static constexpr auto Name = nanobind::detail::make_caster<Array>::Name;
    template <typename>
    using Cast = View;
    template <typename>
    static constexpr bool can_cast() {
        return true;
    }

    template <typename Flags>
    bool from_python(nanobind::handle given, Flags flags,
                     nanobind::detail::cleanup_list* cleanup) noexcept {
        if (!std::is_const_v<typename Array::Scalar>)
            flags &= ~static_cast<Flags>(nanobind::detail::cast_flags::convert);
        return array.from_python(given, flags, cleanup);
    }
    operator View() { return view(array.value); }
};

}  // namespace relquery

template <typename T>
struct nanobind::detail::type_caster<std::span<T>>
    : relquery::ViewCaster<std::span<T>, relquery::Array<T>> {};
template <typename T>
struct nanobind::detail::type_caster<relquery::Matrix<T>>
    : relquery::ViewCaster<relquery::Matrix<T>, relquery::Array2<T>> {};
