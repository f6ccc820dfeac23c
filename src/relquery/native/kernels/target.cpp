/// The kernels for one target: compiled once for each, with its instructions.
#include "kernels/attention/attention.hpp"
#include "kernels/copy.hpp"
#include "kernels/pack.hpp"
#include "kernels/panels.hpp"
#include "kernels/rows.hpp"

namespace relquery::RELQUERY_TARGET {

extern const Kernels KERNELS;
const Kernels KERNELS = {
    .attend = [](void* a) { Attention(*static_cast<AttentionArguments*>(a)).attend(); },
    .merge = [](void* a) { Attention(*static_cast<AttentionArguments*>(a)).merge(); },
    .multiply = multiply,
    .round_rows = round_rows,
    .look_up = go_through_rows<[](auto& passes, int64_t row) { passes.look_up(row); }>,
    .normalize = go_through_rows<[](auto& passes, int64_t row) { passes.normalize(row); }>,
    .rotate = go_through_rows<[](auto& passes, int64_t row) { passes.rotate(row); }>,
    .activate = go_through_rows<[](auto& passes, int64_t row) { passes.activate(row); }>,
    .find_largest = find_largest,
    .pack = pack,
    .embed = embed,
    .copy = copy,
    .finish = go_through_rows<[](auto& passes, int64_t row) { passes.finish(row); }>,
    .route = go_through_rows<[](auto& passes, int64_t row) { passes.route(row); }>,
    .group = group,
    .combine = go_through_rows<[](auto& passes, int64_t row) { passes.combine(row); }>,
    .add_to = go_through_rows<[](auto& passes, int64_t row) { passes.add_to(row); }>,
};

}  // namespace relquery::RELQUERY_TARGET
