// Plays a CUDA device on the host, well enough to run the playbook's kernels in tests.
//
// A block is a system thread whose CUDA threads are fibers that switch at barriers and shuffles;
// the blocks of a cluster, and up to sixteen others, run at the same time. Shared memory is what
// is local to the system thread, and starts poisoned. A warp runs as far ahead of the others as
// barriers let it, the first warp in even blocks and the last one in odd blocks. Writing past the dynamic shared memory that
// was asked for ends the process. Not played: timing, caches, other limits, and warps that diverge
// at a shuffle.
#pragma once
#include <csetjmp>
#include <ucontext.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <climits>
#include <cmath>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#define __device__
#define __global__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __shared__ static thread_local
#define __grid_constant__

struct dim3 {
    unsigned int x = 1, y = 1, z = 1;
};
struct uint2 {
    unsigned int x, y;
};
struct alignas(16) uint4 {
    unsigned int x, y, z, w;
};

inline thread_local dim3 threadIdx, blockIdx, blockDim, gridDim;

struct __half {
    _Float16 value;
};
struct __nv_bfloat16 {
    unsigned short bits;
};
inline float __half2float(__half x) { return static_cast<float>(x.value); }
inline __half __float2half_rn(float x) { return {static_cast<_Float16>(x)}; }
inline __half __double2half(double x) { return {static_cast<_Float16>(x)}; }
inline float __bfloat162float(__nv_bfloat16 x) {
    const unsigned int bits = static_cast<unsigned int>(x.bits) << 16;
    float out;
    memcpy(&out, &bits, 4);
    return out;
}
inline __nv_bfloat16 __float2bfloat16_rn(float x) {
    unsigned int bits;
    memcpy(&bits, &x, 4);
    if (x != x) return {0x7fff};
    return {static_cast<unsigned short>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16)};
}
inline __nv_bfloat16 __double2bfloat16(double x) { return __float2bfloat16_rn(static_cast<float>(x)); }

namespace emulator {

constexpr size_t STACK = 128 * 1024;
// What lies behind a block's dynamic shared memory and must stay as it was.
constexpr size_t GUARD = 4096;
constexpr unsigned int TOGETHER = 16;

struct Barrier {
    int arrived = 0;
    unsigned int generation = 0;
};

// What other blocks of a cluster bring or say, by places in dynamic shared memory: an arrival where
// there are no bytes. The block reads it whenever it waits.
struct Posted {
    size_t barrier, into;
    std::vector<unsigned char> bytes;
};
struct Inbox {
    std::mutex lock;
    std::condition_variable came;
    std::vector<Posted> posted;
};

struct Cluster {
    explicit Cluster(int size) : meeting(size), anchors(size), memories(size), inboxes(size) {}
    std::barrier<> meeting;
    std::vector<char*> anchors;
    std::vector<unsigned char*> memories;
    std::vector<Inbox> inboxes;
};

// A fiber begins in a context of its own. From then on it is left and entered by jumps alone: a
// switch of contexts asks the system for the signals' mask each time, which took half of all time.
struct Fiber {
    ucontext_t first;
    jmp_buf at;
    bool begun = false;
};

struct Block {
    std::vector<Fiber> fibers;
    std::vector<char> finished;
    std::vector<std::unique_ptr<char[]>> stacks;
    std::vector<unsigned int> lanes;
    std::vector<Barrier> warps;
    std::unique_ptr<unsigned char[]> memory;
    size_t shared = 0;
    jmp_buf scheduler;
    Barrier whole;
    int live = 0;
    unsigned int current = 0;
    bool stuck = false;
    // Whether anything happened since this was last asked that somebody may wait for.
    bool moved = false;
    Cluster* cluster = nullptr;
    int rank = 0;
    const std::function<void()>* body = nullptr;
};

inline thread_local Block* block = nullptr;
inline thread_local char anchor = 0;

__attribute__((noinline)) inline void enter(Fiber& fiber) {
    if (_setjmp(block->scheduler)) return;
    if (fiber.begun) _longjmp(fiber.at, 1);
    fiber.begun = true;
    setcontext(&fiber.first);
}

__attribute__((noinline)) inline void leave(Fiber& fiber) {
    if (!_setjmp(fiber.at)) _longjmp(block->scheduler, 1);
}

// Lets the other threads run. Only what waits for its own warp is sure to go on with it alone.
inline void yield(bool within_warp = false) {
    block->stuck |= !within_warp;
    const unsigned int me = block->current;
    leave(block->fibers[me]);
    threadIdx.x = me;
}

inline void wait(Barrier& barrier, int count, bool within_warp) {
    const unsigned int generation = barrier.generation;
    if (++barrier.arrived == count) {
        barrier.arrived = 0;
        ++barrier.generation;
        block->moved = true;
        return;
    }
    while (barrier.generation == generation) yield(within_warp);
}

inline void warp_wait() {
    const unsigned int warp = block->current / 32;
    const int lanes = std::min(32u, blockDim.x - warp * 32);
    wait(block->warps[warp], lanes, true);
}

inline unsigned int exchange(unsigned int value, int from) {
    const unsigned int me = block->current, warp = me / 32 * 32;
    block->lanes[me] = value;
    warp_wait();
    const unsigned int other = block->lanes[warp + from];
    warp_wait();
    return other;
}

inline void fiber() {
    (*block->body)();
    block->finished[block->current] = 1;
    --block->live;
    block->moved = true;
    _longjmp(block->scheduler, 1);
}

// Runs a warp until it is over or one of its lanes waits for others than its own warp.
inline void run_warp(Block& mine, unsigned int warp, unsigned int threads) {
    bool over = false;
    mine.stuck = false;
    while (!over && !mine.stuck) {
        over = true;
        for (unsigned int i = warp * 32; i < std::min(threads, warp * 32 + 32); ++i) {
            if (mine.finished[i]) continue;
            over = false;
            mine.current = i;
            threadIdx.x = i;
            enter(mine.fibers[i]);
        }
    }
}

inline void wait_for_mail();
inline void end_of_block();
inline void end_of_tensor_block();

inline void run_block(unsigned int index, unsigned int threads, size_t shared, Cluster* cluster, int rank, const std::function<void()>& body) {
    Block mine;
    block = &mine;
    blockIdx.x = index;
    mine.fibers.resize(threads);
    mine.finished.assign(threads, 0);
    mine.lanes.assign(threads + 32, 0);
    mine.warps.resize(threads / 32 + 1);
    mine.shared = shared;
    mine.memory.reset(new (std::align_val_t(1024)) unsigned char[shared + GUARD]);
    memset(mine.memory.get(), 0xff, shared + GUARD);
    mine.live = threads;
    mine.cluster = cluster;
    mine.rank = rank;
    mine.body = &body;
    cluster->anchors[rank] = &anchor;
    cluster->memories[rank] = mine.memory.get();
    cluster->meeting.arrive_and_wait();
    for (unsigned int i = 0; i < threads; ++i) {
        mine.stacks.emplace_back(new char[STACK]);
        ucontext_t& first = mine.fibers[i].first;
        getcontext(&first);
        first.uc_stack.ss_sp = mine.stacks[i].get();
        first.uc_stack.ss_size = STACK;
        first.uc_link = nullptr;
        makecontext(&first, fiber, 0);
    }
    const unsigned int warps = (threads + 31) / 32;
    while (mine.live > 0) {
        mine.moved = false;
        for (unsigned int turn = 0; turn < warps; ++turn) run_warp(mine, index % 2 ? warps - 1 - turn : turn, threads);
        // Everybody waits for another block, which needs the processor more.
        if (!mine.moved && mine.live > 0) wait_for_mail();
    }
    end_of_block();
    end_of_tensor_block();
    block = nullptr;
    for (size_t i = 0; i < GUARD; ++i) {
        if (mine.memory[shared + i] == 0xff) continue;
        fprintf(stderr, "a write past the shared memory that was asked for\n");
        abort();
    }
    ::operator delete[](mine.memory.release(), std::align_val_t(1024));
}

inline void launch(unsigned int grid, unsigned int threads, unsigned int cluster, size_t shared, const std::function<void()>& body) {
    const unsigned int wave = std::max(cluster, TOGETHER / cluster * cluster);
    for (unsigned int start = 0; start < grid; start += wave) {
        std::vector<std::unique_ptr<Cluster>> clusters;
        std::vector<std::thread> running;
        for (unsigned int i = start; i < std::min(grid, start + wave); ++i) {
            if (i % cluster == 0) clusters.emplace_back(new Cluster(cluster));
            Cluster* group = clusters.back().get();
            running.emplace_back([=, &body] {
                blockDim.x = threads;
                gridDim.x = grid;
                run_block(i, threads, shared, group, i % cluster, body);
            });
        }
        for (auto& one : running) one.join();
    }
}

}  // namespace emulator

#include "bulk.hpp"

inline void __syncwarp() { emulator::warp_wait(); }
inline void __syncthreads() { emulator::wait(emulator::block->whole, blockDim.x, false); }
inline void __threadfence() { std::atomic_thread_fence(std::memory_order_seq_cst); }
inline unsigned int atomicMax(unsigned int* at, unsigned int other) {
    unsigned int found = __atomic_load_n(at, __ATOMIC_SEQ_CST);
    while (found < other && !__atomic_compare_exchange_n(at, &found, other, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
    }
    return found;
}
inline unsigned int atomicAdd(unsigned int* at, unsigned int by) { return __atomic_fetch_add(at, by, __ATOMIC_SEQ_CST); }
inline unsigned int atomicOr(unsigned int* at, unsigned int bits) { return __atomic_fetch_or(at, bits, __ATOMIC_SEQ_CST); }
inline unsigned int __shfl_xor_sync(unsigned int, unsigned int value, int mask) {
    return emulator::exchange(value, (threadIdx.x % 32) ^ mask);
}
inline unsigned int __shfl_up_sync(unsigned int, unsigned int value, int delta) {
    const int lane = threadIdx.x % 32;
    return emulator::exchange(value, lane < delta ? lane : lane - delta);
}
inline unsigned int __shfl_sync(unsigned int, unsigned int value, int lane) { return emulator::exchange(value, lane % 32); }
inline bool __any_sync(unsigned int, bool value) {
    unsigned int any = value;
    for (int mask = 16; mask; mask /= 2) any |= __shfl_xor_sync(0, any, mask);
    return any;
}
inline unsigned int __ballot_sync(unsigned int, bool value) {
    unsigned int bits = (unsigned int)value << threadIdx.x % 32;
    for (int mask = 16; mask; mask /= 2) bits |= __shfl_xor_sync(0, bits, mask);
    return bits;
}
inline int __popc(unsigned int bits) { return __builtin_popcount(bits); }
inline int __ffs(unsigned int bits) { return __builtin_ffs((int)bits); }

// A misaligned vector access faults on a device; so it does here.
template <class T> inline void check_alignment(const T* at) {
    if (reinterpret_cast<uintptr_t>(at) % sizeof(T)) {
        fprintf(stderr, "misaligned access of %zu bytes\n", sizeof(T));
        abort();
    }
}
inline unsigned int __byte_perm(unsigned int low, unsigned int high, unsigned int chosen) {
    const unsigned long long both = (unsigned long long)high << 32 | low;
    unsigned int out = 0;
    for (int at = 0; at < 4; ++at) out |= (unsigned int)(both >> (chosen >> 4 * at & 7) * 8 & 0xff) << 8 * at;
    return out;
}
template <class T> inline T __ldg(const T* at) { check_alignment(at); return *at; }
template <class T> inline T __ldcs(const T* at) { check_alignment(at); return *at; }
template <class T> inline T __ldcg(const T* at) { check_alignment(at); return *at; }
template <class T> inline void __stcs(T* at, T value) { check_alignment(at); *at = value; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
inline float __int_as_float(int bits) { float out; memcpy(&out, &bits, 4); return out; }

#include "tensor.hpp"

namespace kw {

template <int> void block_of() {}
inline unsigned char* dynamic_shared() { return emulator::block->memory.get(); }
inline unsigned int acquire(const unsigned int* counter) { return __atomic_load_n(counter, __ATOMIC_ACQUIRE); }
// Whoever waits for another block leaves the processor to it: yielding alone hardly does.
inline void pause() { std::this_thread::sleep_for(std::chrono::microseconds(20)); }
inline void tell(unsigned long long* at, float state, int step) {
    unsigned int bits;
    memcpy(&bits, &state, 4);
    __atomic_store_n(at, (unsigned long long)(unsigned int)step << 32 | bits, __ATOMIC_RELAXED);
}
inline unsigned long long ask(const unsigned long long* at) {
    const unsigned long long word = __atomic_load_n(at, __ATOMIC_RELAXED);
    std::this_thread::yield();
    return word;
}
inline void wait_for_grid(unsigned int* present) {
    atomicAdd(present, 1u);
    while (acquire(present) < gridDim.x) pause();
}
inline int told_step(unsigned long long word) { return (int)(word >> 32); }
inline float told_state(unsigned long long word) {
    const unsigned int bits = (unsigned int)word;
    float state;
    memcpy(&state, &bits, 4);
    return state;
}
inline int cluster_rank() { return emulator::block->rank; }
inline void cluster_sync() {
    __syncthreads();
    if (threadIdx.x == 0) emulator::block->cluster->meeting.arrive_and_wait();
    __syncthreads();
}
// Dynamic memory is known of every block; locals of a system thread lie at the same distance from each other in every system thread.
template <class T> inline const T* of_block(const T* mine, int rank) {
    const auto place = reinterpret_cast<const unsigned char*>(mine) - emulator::block->memory.get();
    if (place >= 0 && place < (long)emulator::block->shared) return reinterpret_cast<const T*>(emulator::block->cluster->memories[rank] + place);
    const auto away = reinterpret_cast<const char*>(mine) - &emulator::anchor;
    return reinterpret_cast<const T*>(emulator::block->cluster->anchors[rank] + away);
}
inline float maximum_raw(float a, float b) { return a != a || a > b ? a : b; }
inline float exp2_raw(float x) { return std::exp2(x); }
inline float reciprocal_raw(float x) { return 1.0f / x; }
inline float minimum_raw(float a, float b) { return a != a || a < b ? a : b; }

}  // namespace kw
