/// Memory in pages of its own: zeros until it is written, and gone at once when it is given back.
#pragma once

#if defined(_WIN32)
#include <cstdlib>
#else
#include <sys/mman.h>
#endif

#include <cstddef>
#include <new>
#include <utility>

#include "kernels/arguments.hpp"

namespace relquery {

class Memory {
public:
    Memory() = default;
    explicit Memory(size_t bytes) : bytes_(bytes) {
        if (bytes == 0) return;
#if defined(_WIN32)
        void* found = std::calloc(bytes, 1);
        if (found == nullptr) throw std::bad_alloc();
#else
        void* found = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (found == MAP_FAILED) throw std::bad_alloc();
#if defined(MADV_HUGEPAGE)
        constexpr size_t LARGE = size_t(1) << 22;  // below, whole huge pages would be waste
        if (bytes >= LARGE) madvise(found, bytes, MADV_HUGEPAGE);
#endif
#endif
        data_ = static_cast<Address>(found);
    }
    Memory(Memory&& other) noexcept
        : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
    Memory& operator=(Memory&& other) noexcept {
        std::swap(data_, other.data_);
        std::swap(bytes_, other.bytes_);
        return *this;
    }
    ~Memory() {
#if defined(_WIN32)
        std::free(data_);
#else
        if (data_) munmap(data_, bytes_);
#endif
    }

    Address data() const { return data_; }
    size_t size() const { return bytes_; }

    /// Makes it so large at least; what it held is lost then.
    void grow(size_t bytes) {
        if (bytes > bytes_) *this = Memory(bytes);
    }

private:
    Address data_ = nullptr;
    size_t bytes_ = 0;
};

}  // namespace relquery
