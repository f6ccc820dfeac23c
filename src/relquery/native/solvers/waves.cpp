#include <algorithm>

#include "bindings.hpp"

namespace relquery {

namespace {

constexpr double ENOUGH = 0.99;  // of the tokens that are read if requests are sent one by one

/// Which prefixes of blocks the requests share: relquery.reordering.prompts.waves.Sharing.
struct Sharing {
    Matrix<const int64_t> first;
    Matrix<const bool> cached;
    Matrix<const int64_t> ends;

    /// Whether a request could read its prefix up to a block from an earlier one.
    bool is_written(int64_t request, int64_t block) const {
        return cached[request][block] && first[request][block] < request;
    }
};

/// Who reads from whom if requests are sent one by one. source: the request that wrote what this
/// one reads, or -1. level: how many it waits for, one after the other. number: a number for each
/// that others read from, or -1.
struct Readings {
    std::vector<int64_t> source, level, number;
    int64_t numbered = 0, levels = 1;

    explicit Readings(const Sharing& sharing)
        : source(sharing.first.rows, -1), level(sharing.first.rows), number(source) {
        for (int64_t i = 0; i < sharing.first.rows; ++i) {
            int64_t k = sharing.first.columns - 1;
            while (k >= 0 && !sharing.is_written(i, k)) --k;
            if (k < 0) continue;
            const int64_t above = source[i] = sharing.first[i][k];
            level[i] = level[above] + 1;
            levels = std::max(levels, level[i] + 1);
            if (number[above] < 0) number[above] = numbered++;
        }
    }
};

/// Tokens read from the cache if the requests of a wave are sent together.
int64_t served(const Sharing& sharing, std::span<const int64_t> waves) {
    int64_t total = 0;
    for (int64_t i = 0; i < sharing.first.rows; ++i) {
        const auto is_read = [&](int64_t k) {
            return sharing.cached[i][k] && waves[sharing.first[i][k]] < waves[i];
        };
        int64_t k = sharing.first.columns - 1;
        while (k >= 0 && !is_read(k)) --k;
        if (k >= 0) total += sharing.ends[i][k];
    }
    return total;
}

/// The dynamic program over the tree of who reads from whom, for so many waves.
class Arrangement {
public:
    Arrangement(const Sharing& sharing, const Readings& readings, int64_t waves)
        : sharing_(sharing),
          readings_(readings),
          waves_(waves),
          best_(readings.numbered * waves * readings.levels),
          tokens_(readings.levels) {
        for (int64_t i = sharing.first.rows - 1; i >= 0; --i)
            if (readings.source[i] >= 0) weigh(i);
    }

    /// The best choice, read off the table from the top down.
    std::vector<int64_t> waves() {
        const auto& level = readings_.level;
        std::vector<int64_t> waves(level.size()), begun(level.size());
        for (int64_t i = 0; i < static_cast<int64_t>(level.size()); ++i) {
            const int64_t above = readings_.source[i];
            if (above < 0) continue;
            read_above(i);
            const int64_t wave = waves[above], since = begun[above];
            const bool is_later = later(i, wave) > together(i, wave, since);
            waves[i] = wave + is_later;
            begun[i] = is_later ? level[i] : since;
        }
        return waves;
    }

private:
    const Sharing& sharing_;
    const Readings& readings_;
    int64_t waves_;
    // The most tokens that those below a request read, by its number, its wave, and the level of
    // the first request on its path that is in this wave.
    std::vector<int64_t> best_;
    std::vector<int64_t> tokens_;  // what a request reads of those of levels below each level

    int64_t* best(int64_t number, int64_t wave) {
        return &best_[(number * waves_ + wave) * readings_.levels];
    }

    int64_t below(int64_t request, int64_t wave, int64_t begun) {
        const int64_t own = readings_.number[request];
        return own >= 0 ? best(own, wave)[begun] : 0;
    }

    /// Tokens of a request and those below it if it is sent in the wave of the one above it.
    int64_t together(int64_t request, int64_t wave, int64_t begun) {
        return tokens_[begun] + below(request, wave, begun);
    }

    /// The same if it is sent in the next wave; 0 if there is none.
    int64_t later(int64_t request, int64_t wave) {
        const int64_t level = readings_.level[request];
        return wave + 1 < waves_ ? tokens_[level] + below(request, wave + 1, level) : 0;
    }

    void read_above(int64_t request) {
        const int64_t level = readings_.level[request];
        std::fill_n(tokens_.begin(), level + 1, 0);
        for (int64_t k = 0; k < sharing_.first.columns; ++k) {
            if (!sharing_.is_written(request, k)) continue;
            // With marks of its own, it may miss the level of one whose shorter prefix it has.
            const int64_t above = readings_.level[sharing_.first[request][k]];
            if (above < level) tokens_[above + 1] = sharing_.ends[request][k];
        }
        for (int64_t above = 0; above < level; ++above)
            tokens_[above + 1] = std::max(tokens_[above + 1], tokens_[above]);
    }

    void weigh(int64_t request) {
        const int64_t above = readings_.source[request];
        read_above(request);
        for (int64_t wave = 0; wave < waves_; ++wave) {
            const int64_t if_later = later(request, wave);
            int64_t* total = best(readings_.number[above], wave);
            for (int64_t begun = 0; begun <= readings_.level[above]; ++begun)
                total[begun] += std::max(together(request, wave, begun), if_later);
        }
    }
};

using Places = Matrix<const int64_t>;
using Marks = Matrix<const bool>;

/// The wave of each request. most: the highest number of waves; 0: the fewest that read ENOUGH.
std::vector<int64_t> arrange(Places first, Marks cached, Places ends, int64_t most) {
    const Sharing sharing{first, cached, ends};
    Readings readings(sharing);
    const auto in_waves = [&](int64_t waves) {
        return waves == 1 ? std::vector<int64_t>(first.rows)
                          : Arrangement(sharing, readings, waves).waves();
    };
    if (most) return in_waves(std::min(most, readings.levels));
    const double goal = ENOUGH * static_cast<double>(served(sharing, readings.level));
    for (int64_t waves = 1; waves < readings.levels; ++waves) {
        auto found = in_waves(waves);
        if (static_cast<double>(served(sharing, found)) >= goal) return found;
    }
    return std::move(readings.level);
}

std::vector<int64_t> writers(Places first, Marks cached, Places ends) {
    return Readings({first, cached, ends}).source;
}

int64_t served_in(Places first, Marks cached, Places ends, std::span<const int64_t> waves) {
    return served({first, cached, ends}, waves);
}

}  // namespace

void bind_waves(nb::module_& module) {
    module.def("writers", unlocked(writers));
    module.def("arrange", unlocked(arrange));
    module.def("served", unlocked(served_in));
}

}  // namespace relquery
