#include "runtime/pool.hpp"

#if !defined(_WIN32)
#include <pthread.h>
#endif

#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

namespace relquery {

namespace {

/// Threads that wait for work: awake for a moment after the last, then asleep.
class Pool {
public:
    void run(Body body, void* arguments, unsigned threads) {
        const std::lock_guard one_at_a_time(turn_);
        while (others_.size() + 1 < threads) start();
        body_ = body, arguments_ = arguments, wanted_ = threads;
        left_.store(static_cast<unsigned>(others_.size()), std::memory_order_relaxed);
        number_.fetch_add(1, std::memory_order_release);
        number_.notify_all();
        body(arguments);
        for (int looks = 0; left_.load(std::memory_order_acquire) != 0; ++looks) {
            pause_thread();
            if (looks > SPINS) std::this_thread::yield();
        }
    }

private:
    void start() {
        const auto index = static_cast<unsigned>(others_.size()) + 1;
        others_.emplace_back([this, index, seen = number_.load()] { work(index, seen); });
        others_.back().detach();
    }

    [[noreturn]] void work(unsigned index, unsigned seen) {
        for (;;) {
            for (int looks = 0; looks < SPINS && number_.load(std::memory_order_acquire) == seen;
                 ++looks)
                pause_thread();
            number_.wait(seen, std::memory_order_acquire);
            ++seen;
            if (index < wanted_) body_(arguments_);
            left_.fetch_sub(1, std::memory_order_release);
        }
    }

    std::mutex turn_;
    std::vector<std::thread> others_;
    std::atomic<unsigned> number_ = 0;  // of the run
    std::atomic<unsigned> left_ = 0;    // threads that have not ended it
    Body body_ = nullptr;
    void* arguments_ = nullptr;
    unsigned wanted_ = 0;
};

Pool* pool;

/// The pool of this process, which is never destroyed: its threads sleep when the process ends. A
/// process that forks has none of them, and begins anew.
Pool& the_pool() {
    static std::once_flag once;
    std::call_once(once, [] {
        pool = new Pool;
#if !defined(_WIN32)
        pthread_atfork(nullptr, nullptr, [] { pool = new Pool; });
#endif
    });
    return *pool;
}

struct InOrder {
    const Step* steps;
    int64_t count, threads;
    int64_t arrived = 0;  // how often threads have ended a step
};

void wait_for(const int64_t& arrived, int64_t goal) {
    for (int looks = 0; __atomic_load_n(&arrived, __ATOMIC_ACQUIRE) < goal; ++looks) {
        pause_thread();
        if (looks > SPINS) std::this_thread::yield();
    }
}

void run_one(void* arguments) {
    auto& a = *static_cast<InOrder*>(arguments);
    for (int64_t step = 0; step < a.count; ++step) {
        wait_for(a.arrived, step * a.threads);
        a.steps[step].body(a.steps[step].arguments);
        __atomic_fetch_add(&a.arrived, 1, __ATOMIC_ACQ_REL);
    }
}

}  // namespace

void run_on_threads(Body body, void* arguments, unsigned threads) {
    if (threads <= 1) return body(arguments);
    the_pool().run(body, arguments, threads);
}

void run_in_order(const Step* steps, int64_t count, unsigned threads) {
    for (int64_t step = 0; step < count; ++step) *steps[step].arguments = {0, 0};
    InOrder order{steps, count, threads < 1 ? 1 : threads};
    run_on_threads(run_one, &order, threads);
}

}  // namespace relquery
