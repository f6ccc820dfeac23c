#include "solvers/problem.hpp"

namespace relquery {

namespace {

/// An attribute as it is: the view of a converted copy would outlive it.
template <typename T>
T attribute(nb::handle object, const char* name) {
    return nb::cast<T>(object.attr(name), false);
}

}  // namespace

OwnedProblem::OwnedProblem(nb::handle problem) {
    const auto copied = [&](const char* name, std::vector<int32_t>& own) {
        const auto given = view(attribute<Array2<const int32_t>>(problem, name));
        own.assign(given.data, given.data + given.size());
        return Matrix<int32_t>{own.data(), given.rows, given.columns};
    };
    items = copied("items", own_items);
    places = copied("places", own_places);
    weights = view(attribute<Array<const int64_t>>(problem, "weights"));
    classes = view(attribute<Array<const int32_t>>(problem, "classes"));
    implied_begin = view(attribute<Array<const int64_t>>(problem, "implied_begin"));
    implied = view(attribute<Array<const int32_t>>(problem, "implied"));
    pairs = view(attribute<Array2<const int32_t>>(problem, "pairs"));
    stopped = attribute<Array<const bool>>(problem, "stopped").data();
}

Objective objective_of(nb::handle objective) {
    const auto number = [&](const char* name) { return nb::cast<double>(objective.attr(name)); };
    return {attribute<int64_t>(objective, "start"), attribute<int64_t>(objective, "minimum"),
            attribute<int64_t>(objective, "granularity"), number("read"), number("write")};
}

}  // namespace relquery
