/// A step as kernels and what they are told, in the order in which they run.
#include <algorithm>
#include <cmath>
#include <deque>
#include <mutex>
#include <stdexcept>

#include "bindings.hpp"
#include "runtime/network.hpp"

namespace relquery {

namespace {

constexpr int64_t NOT_FINITE = -1;

/// What attention kernels are told about who sees what, and how.
AttentionArguments attention_of(const Seen& seen, Kind kind, int64_t heads,
                                const Store::Shape& shape, float scale, int64_t window, float cap) {
    AttentionArguments a{};
    a.kind = a.cached = kind, a.heads = heads, a.kv_heads = shape.heads;
    a.width = shape.width, a.value_width = shape.value_width;
    a.tasks = seen.tasks.data(), a.task_count = static_cast<int64_t>(seen.tasks.shape(0));
    a.visits = seen.visits.data(), a.tokens = seen.tokens.data();
    a.positions = seen.at.data(), a.shifts = seen.shifts.data();
    a.targets = seen.targets.data(), a.slots = seen.slots.data();
    a.key_positions = seen.positions.data(), a.scratch_from = SCRATCH;
    a.merged = seen.merged.data(), a.merged_count = static_cast<int64_t>(seen.merged.shape(0));
    a.work_bytes = attention_work(heads / shape.heads, shape.width, shape.value_width);
    const int exponent = std::ilogb(scale);
    a.scale = std::ldexp(1.0f, exponent), a.rest = scale / a.scale;
    a.cap = cap, a.window = window;
    a.shift_values = seen.shift_values.data();
    if (seen.key_places.size())
        a.row_places = seen.row_places.data(), a.key_places = seen.key_places.data();
    a.paired = a.tiled = 1;
    return a;
}

int64_t bytes_of_rounded(const ProductArguments& a) {
    return a.rows * rounded_bytes(a.compact, a.inputs);
}

/// Numbers of its partial results.
int64_t partials_of(const Seen& seen, const AttentionArguments& a) {
    return seen.places * a.heads * (2 + padded(a.value_width));
}

}  // namespace

/// The kernels that give logits of some rows, and what they are told.
class HeadSteps {
public:
    /// first: the row whose logits are the first.
    HeadSteps(Network& net, int64_t first, int64_t rows, unsigned threads) {
        const Head& head = *net.head_;
        const Weight& weight = net.weights_[head.weight];
        const auto& source = net.buffers_[head.source];
        product_.kind = net.kind_, product_.rows = rows, product_.threads = threads;
        product_.inputs = weight.inputs, product_.outputs = weight.outputs;
        product_.width = weight.width, product_.tiled = weight.tiled;
        product_.source = source.memory.data() + first * source.width * bytes_of(net.kind_);
        product_.matrix = weight.panels.data(), product_.bias = weight.bias.data();
        product_.compact = weight.compact, product_.work_bytes = weight.work_bytes();
        product_.result = net.logits();
        rounds_ = net.rounds(weight);
        finish_.kind = net.kind_, finish_.rows = rows, finish_.width = weight.outputs;
        finish_.source = finish_.result = net.logits();
        finish_.epsilon = head.scale, finish_.added_scale = head.cap;
        largest_.kind = net.kind_, largest_.rows = rows, largest_.width = weight.outputs;
        largest_.source = net.logits(), largest_.result = net.largest();
        largest_.nothing = NOT_FINITE;
        needs_finish_ = head.scale != 1 || head.cap != 0;
    }

    int64_t work_bytes() const {
        const int64_t row = needs_finish_ ? 4 * padded(finish_.width) : 0;
        return std::max(product_.work_bytes, row);
    }

    int64_t rounded_bytes() const { return rounds_ ? bytes_of_rounded(product_) : 0; }

    void add_to(std::vector<Step>& steps, Address work, Address rounded) {
        const Kernels& kernels = chosen_kernels();
        product_.work = finish_.work = work;
        if (rounds_) {
            product_.is_rounded = true, product_.rounded = rounded, rounding_ = product_;
            steps.push_back({kernels.round_rows, &rounding_});
        }
        steps.push_back({kernels.multiply, &product_});
        if (needs_finish_) steps.push_back({kernels.finish, &finish_});
        steps.push_back({kernels.find_largest, &largest_});
    }

private:
    ProductArguments product_{}, rounding_{};
    RowArguments finish_{};
    LargestArguments largest_{};
    bool needs_finish_ = false, rounds_ = false;
};

/// Tells the kernels of each slice what to compute. A step is cut into parts: no slice reads keys
/// of a layer before all have written theirs, so that a part ends where they are.
class StepBuilder {
public:
    StepBuilder(Network& network, const std::vector<Slice*>& slices, Store& store, Store& own,
                unsigned threads)
        : net_(network),
          kernels_(chosen_kernels()),
          slices_(slices),
          store_(store),
          own_(own),
          threads_(threads) {}

    /// Returns how many rows of results there are.
    int64_t run() {
        build();
        run_in_order(steps_.data(), static_cast<int64_t>(steps_.size()), threads_);
        net_.wanted_ = wanted_, net_.told_ = 0;
        return results();
    }

    /// Tells all kernels what to compute; the network holds the memory for it then.
    void build() {
        int64_t tokens = 0;
        for (const Slice* slice : slices_) {
            const auto count = static_cast<int64_t>(slice->tokens.size());
            places_.push_back({slice, tokens, count, wanted_of(*slice), wanted_});
            tokens += count;
            longest_ = std::max(longest_, count);
            wanted_ += places_.back().wanted;
        }
        reserve(tokens);
        for (size_t begin = 0; begin < net_.operations_.size();) {
            size_t end = begin;
            while (end < net_.operations_.size() &&
                   !std::holds_alternative<Rotate>(net_.operations_[end++])) {
            }
            // The last slice first: no other reads its keys, so that it may replace them by those
            // of the next layer where a store holds a layer at a time.
            for (auto place = places_.rbegin(); place != places_.rend(); ++place) {
                place_ = &*place;
                for (size_t at = begin; at < end && !place->has_ended; ++at)
                    std::visit([this](const auto& each) { tell(each); }, net_.operations_[at]);
            }
            begin = end;
        }
        if (net_.head_ && wanted_) {
            head_.emplace(net_, 0, results(), threads_);
            need(head_->work_bytes());
            need_rounded(head_->rounded_bytes());
        }
        work();
        if (head_) head_->add_to(steps_, net_.work_.data(), net_.rounded_.data());
    }

    /// Bytes of what the kernels are told, about.
    int64_t bytes() const {
        return static_cast<int64_t>(steps_.size() * sizeof(AttentionArguments));
    }

private:
    struct Place {
        const Slice* slice;
        int64_t first, tokens, wanted, first_wanted;
        int64_t rows = 0;  // of what is computed now
        bool is_chosen = false, is_whole = false, has_ended = false;
    };

    static int64_t wanted_of(const Slice& slice) {
        return static_cast<int64_t>(slice.wanted.size());
    }

    void reserve(int64_t tokens) {
        const int64_t size = bytes_of(net_.kind_);
        auto& buffers = net_.buffers_;
        for (size_t at = 0; at < buffers.size(); ++at) {
            const int64_t rows = is_wanted(at)              ? wanted_
                                 : at + 1 == buffers.size() ? results()
                                 : buffers[at].own          ? tokens
                                                            : longest_;
            buffers[at].memory.grow(static_cast<size_t>(rows * buffers[at].width * size));
        }
        for (const auto& each : net_.operations_)
            if (const auto* experts = std::get_if<Experts>(&each))
                net_.routes_.grow(static_cast<size_t>(longest_ * experts->chosen * (2 * 8 + 4) +
                                                      8 * width(experts->logits)));
        if (net_.head_ && static_cast<int64_t>(net_.largest_.size()) < results())
            net_.largest_.resize(results());
        for (Place& place : places_) place.rows = place.tokens;
    }

    Address at(int64_t number) const {
        if (place_->is_whole)  // all tokens are wanted: what is chosen is what there is
            for (const auto& each : net_.operations_)
                if (const auto* choose = std::get_if<Choose>(&each);
                    choose && choose->result == number)
                    number = choose->source;
        const auto& buffer = net_.buffers_[number];
        const int64_t first = is_wanted(number) ? place_->first_wanted
                              : buffer.own      ? place_->first
                                                : 0;
        return buffer.memory.data() + first * buffer.width * bytes_of(net_.kind_);
    }

    /// Whether a buffer has the wanted rows of all slices: the head's source, else the last one.
    bool is_wanted(int64_t number) const {
        const auto last = static_cast<int64_t>(net_.buffers_.size()) - 1;
        return number == (net_.head_ ? net_.head_->source : last);
    }

    int64_t results() const { return net_.head_ ? std::min(wanted_, HEAD_ROWS) : wanted_; }

    int64_t width(int64_t number) const { return net_.buffers_[number].width; }

    template <typename Arguments>
    void add(Body body, std::deque<Arguments>& held, const Arguments& arguments) {
        held.push_back(arguments);
        steps_.push_back({body, &held.back()});
    }

    void need(int64_t bytes) { work_bytes_ = std::max(work_bytes_, bytes); }
    void need_rounded(int64_t bytes) { rounded_bytes_ = std::max(rounded_bytes_, bytes); }

    RowArguments row_arguments(int64_t source, int64_t result, int64_t width) {
        RowArguments a{};
        a.kind = net_.kind_, a.rows = place_->rows, a.width = width;
        a.source = at(source), a.result = at(result), a.rounds_once = net_.rounds_once_;
        need(4 * padded(width));
        return a;
    }

    void tell(const LookUp& each) {
        EmbedArguments a{};
        a.kind = net_.kind_;
        a.rows = place_->tokens, a.width = width(each.result), a.scale = each.scale;
        const Slice& slice = *place_->slice;
        a.tokens = (each.of_positions ? slice.positions : slice.tokens).data();
        a.result = at(each.result);
        const int64_t known =
            each.weight >= 0 ? net_.weights_[each.weight].outputs : net_.rows_[each.rows].count;
        for (int64_t row = 0; row < a.rows; ++row)
            if (a.tokens[row] < 0 || a.tokens[row] >= known)
                throw std::out_of_range("A token id is not among those of the network.");
        if (each.weight >= 0) {
            const Weight& weight = net_.weights_[each.weight];
            a.panel = weight.width, a.source = weight.panels.data();
        } else {
            const Rows& rows = net_.rows_[each.rows];
            a.format = rows.format;
            a.source = rows.data();
        }
        add(kernels_.embed, embeds_, a);
    }

    void tell(const Normalize& each) {
        RowArguments a = row_arguments(each.source, each.result, width(each.source));
        a.added = each.added < 0 ? nullptr : at(each.added);
        a.weight = each.weight.data(), a.epsilon = each.epsilon;
        a.added_scale = each.added_scale, a.centered = each.centered;
        if (!each.bias.empty()) a.bias = each.bias.data();
        add(kernels_.normalize, rows_, a);
    }

    void tell(const Multiply& each) { multiply(each, place_->rows, nullptr); }

    /// ends: where the rows of each of its matrices end, null for one of all rows.
    void multiply(const Multiply& each, int64_t rows, const int64_t* ends) {
        const Weight& weight = net_.weights_[each.weight];
        ProductArguments a{};
        a.kind = net_.kind_, a.rows = rows;
        a.inputs = weight.inputs, a.outputs = weight.outputs, a.width = weight.width;
        a.source = at(each.source), a.matrix = weight.panels.data(), a.result = at(each.result);
        a.compact = weight.compact, a.work_bytes = weight.work_bytes();
        a.bias = weight.bias.data(), a.tiled = weight.tiled, a.threads = threads_;
        a.gated = each.activation.has_value();
        a.activation = static_cast<Activation>(each.activation.value_or(0));
        a.groups = ends ? weight.groups : 0, a.ends = ends;
        need(weight.work_bytes());
        if (net_.rounds(weight)) {
            need_rounded(bytes_of_rounded(a));
            a.is_rounded = true;
            add(kernels_.round_rows, products_, a);
        }
        add(kernels_.multiply, products_, a);
    }

    void tell(const Experts& each) {
        const int64_t all = place_->rows * each.chosen, hidden = width(each.source);
        RowArguments a = row_arguments(each.logits, each.logits, width(each.logits));
        a.chosen = each.chosen, a.divides = each.divides;
        a.places = reinterpret_cast<int64_t*>(net_.routes_.data());
        a.gathered = a.places + all, a.ends = a.gathered + all;
        a.shares = reinterpret_cast<float*>(a.ends + a.width);
        add(kernels_.route, rows_, a);
        add(kernels_.group, rows_, a);
        RowArguments gathering = row_arguments(each.source, each.gathered, hidden);
        gathering.rows = all, gathering.tokens = a.gathered;
        add(kernels_.look_up, rows_, gathering);
        if (each.both < 0) {
            multiply({each.gathered, each.up, each.gated, each.activation}, all, a.ends);
        } else {
            multiply({each.gathered, each.up, each.both, {}}, all, a.ends);
            RowArguments gating =
                row_arguments(each.both, each.gated, width(each.gated) / each.chosen);
            gating.rows = all, gating.activation = static_cast<Activation>(each.activation);
            gating.gated = true;
            add(kernels_.activate, rows_, gating);
        }
        multiply({each.gated, each.down, each.gathered, {}}, all, a.ends);
        a.source = at(each.gathered), a.result = at(each.result), a.width = hidden;
        add(kernels_.combine, rows_, a);
    }

    void tell(const Adapt& each) {
        const Slice& slice = *place_->slice;
        const bool is_other = place_->is_chosen && !place_->is_whole;
        const Adapted& adapted = is_other ? slice.wanted_adapted : slice.adapted;
        const auto count = static_cast<int64_t>(adapted.rows.size());
        if (!count) return;
        const Weight &first = net_.weights_[each.first], &second = net_.weights_[each.second];
        if (static_cast<int64_t>(adapted.ends.size()) != first.groups)
            throw std::invalid_argument("The rows are not those of so many adapters.");
        RowArguments a = row_arguments(each.source, each.gathered, first.inputs);
        a.rows = count, a.tokens = adapted.rows.data();
        add(kernels_.look_up, rows_, a);
        multiply({each.gathered, each.first, each.between, {}}, count, adapted.ends.data());
        multiply({each.between, each.second, each.gathered, {}}, count, adapted.ends.data());
        a = row_arguments(each.gathered, each.result, second.outputs);
        a.rows = count, a.tokens = adapted.rows.data();
        add(kernels_.add_to, rows_, a);
    }

    void tell(const Activate& each) {
        RowArguments a = row_arguments(each.source, each.result, width(each.result));
        a.activation = static_cast<Activation>(each.activation);
        a.gated = width(each.source) != width(each.result);
        add(kernels_.activate, rows_, a);
    }

    void tell(const Rotate& each) {
        RowArguments a = row_arguments(each.source, each.result, width(each.source));
        a.heads = each.heads, a.kv_heads = each.kv_heads;
        a.positions = place_->slice->positions.data(), a.slots = place_->slice->slots.data();
        a.scratch_from = SCRATCH;
        if (each.rotation >= 0) {
            const auto& [cosines, sines] = net_.tables_[each.rotation];
            a.cosines = cosines.data(), a.sines = sines.data();
            a.half = static_cast<int64_t>(cosines.shape(1));
        }
        if (!each.query_weight.empty()) {
            a.query_weight = each.query_weight.data(), a.key_weight = each.key_weight.data();
            a.epsilon = each.epsilon;
        }
        a.cached = store_.kind();
        a.keys = store_.keys(each.layer), a.values = store_.values(each.layer);
        a.store = store_.slots();
        a.own_keys = own_.keys(each.layer), a.own_values = own_.values(each.layer);
        a.own_store = own_.slots();
        add(kernels_.rotate, rows_, a);
        // What follows the last layer's keys is needed for the wanted tokens alone.
        if (each.layer + 1 == static_cast<int64_t>(store_.layers().size()) && !place_->wanted)
            place_->has_ended = true;
    }

    void tell(const Choose& each) {
        const int64_t line = width(each.source);
        place_->is_chosen = true;
        place_->is_whole = place_->wanted == place_->tokens;
        if (place_->is_whole) return;
        RowArguments a = row_arguments(each.source, each.result, line);
        a.rows = place_->wanted;
        a.tokens = place_->slice->wanted.data();
        add(kernels_.look_up, rows_, a);
    }

    void tell(const Attend& each) {
        const Slice& slice = *place_->slice;
        if (place_->is_chosen) place_->rows = place_->wanted;
        const bool is_other = place_->is_chosen && !place_->is_whole;
        if (is_other && !slice.wanted_seen)
            throw std::invalid_argument("Who wanted tokens see is not given.");
        const Seen& seen = is_other ? *slice.wanted_seen : slice.seen;
        const Store::Shape& shape = store_.layers()[each.layer];
        const int64_t size = bytes_of(net_.kind_);
        AttentionArguments a =
            attention_of(seen, net_.kind_, each.heads, shape, each.scale, each.window, each.cap);
        a.cached = store_.kind();
        a.queries = at(each.source), a.outputs = at(each.result);
        a.query_head = shape.width * size, a.query_token = each.heads * a.query_head;
        a.keys = store_.keys(each.layer), a.values = store_.values(each.layer);
        a.store = store_.slots();
        a.own_keys = own_.keys(each.layer), a.own_values = own_.values(each.layer);
        a.own_store = own_.slots();
        if (each.rotation >= 0 && seen.shift_values.size()) {
            const auto& [cosines, sines] = seen.turns.at(static_cast<size_t>(each.rotation));
            a.cosines = cosines.data(), a.sines = sines.data();
            a.half = static_cast<int64_t>(cosines.shape(1));
        }
        a.ahead = each.ahead;
        need(a.work_bytes);
        partial_numbers_ = std::max(partial_numbers_, partials_of(seen, a));
        add(kernels_.attend, attentions_, a);
        if (a.merged_count) add(kernels_.merge, attentions_, a);
    }

    /// Gives the kernels their threads' memory.
    void work() {
        net_.work_.grow(static_cast<size_t>(work_bytes_ * threads_));
        net_.partials_.grow(static_cast<size_t>(4 * partial_numbers_));
        for (auto& each : rows_) each.work = net_.work_.data();
        net_.rounded_.grow(static_cast<size_t>(rounded_bytes_));
        for (auto& each : products_) {
            each.work = net_.work_.data();
            if (each.is_rounded) each.rounded = net_.rounded_.data();
        }
        for (auto& each : attentions_) {
            each.work = net_.work_.data();
            each.partials = reinterpret_cast<float*>(net_.partials_.data());
        }
    }

    Network& net_;
    const Kernels& kernels_;
    const std::vector<Slice*>& slices_;
    Store &store_, &own_;
    const int64_t threads_;
    std::vector<Place> places_;
    Place* place_ = nullptr;
    int64_t longest_ = 0, wanted_ = 0, work_bytes_ = 0, partial_numbers_ = 0;
    int64_t rounded_bytes_ = 0;
    std::deque<RowArguments> rows_;
    std::deque<EmbedArguments> embeds_;
    std::deque<ProductArguments> products_;
    std::deque<AttentionArguments> attentions_;
    std::optional<HeadSteps> head_;
    std::vector<Step> steps_;
};

int64_t Network::run(const std::vector<Slice*>& slices, Store& store, Store& own,
                     unsigned threads) {
    const std::lock_guard lock(*turn_);
    if (operations_.empty()) throw std::runtime_error("The network is closed.");
    return StepBuilder(*this, slices, store, own, threads).run();
}

int64_t Network::next_logits(unsigned threads) {
    const std::lock_guard lock(*turn_);
    if (operations_.empty()) throw std::runtime_error("The network is closed.");
    told_ += HEAD_ROWS;
    const int64_t rows = std::min(wanted_ - told_, HEAD_ROWS);
    if (!head_ || rows <= 0) throw std::out_of_range("There are no more logits.");
    HeadSteps head(*this, told_, rows, threads);
    work_.grow(static_cast<size_t>(head.work_bytes() * threads));
    rounded_.grow(static_cast<size_t>(head.rounded_bytes()));
    std::vector<Step> steps;
    head.add_to(steps, work_.data(), rounded_.data());
    run_in_order(steps.data(), static_cast<int64_t>(steps.size()), threads);
    return rows;
}

int64_t Network::step_bytes(const std::vector<Slice*>& slices, Store& store, Store& own,
                            unsigned threads) {
    const std::lock_guard lock(*turn_);
    forget();
    StepBuilder builder(*this, slices, store, own, threads);
    builder.build();
    size_t bytes = own.size() + work_.size() + partials_.size() + routes_.size() + rounded_.size() +
                   8 * largest_.size();
    for (const Buffer& each : buffers_) bytes += each.memory.size();
    for (const auto& [cosines, sines] : tables_)
        if (cosines.is_valid()) bytes += 8 * cosines.size();
    forget();
    return builder.bytes() + static_cast<int64_t>(bytes);
}

void Network::forget() {
    for (Buffer& each : buffers_) each.memory = Memory();
    work_ = Memory(), partials_ = Memory(), routes_ = Memory(), rounded_ = Memory();
    largest_ = {};
}

}  // namespace relquery
