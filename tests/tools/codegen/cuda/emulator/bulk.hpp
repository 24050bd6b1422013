// Plays phase barriers and bulk copies (included by emulator.hpp).
//
// A copy poisons where it goes as soon as it is asked for, and lands only when somebody polls its
// barrier, one copy a poll, the newest first: whoever reads before waiting, or asks for a copy
// over what others still read, computes with poison. A barrier that gets more arrivals or bytes
// than it was promised ends the process, as does a copy that is not of whole 16 bytes.
#pragma once

namespace emulator {

struct PhaseBarrier {
    unsigned int arrivals = 0, pending = 0, parity = 0;
    long long bytes = 0;
};
struct BulkCopy {
    unsigned long long* barrier;
    void* into;
    const void* from;
    unsigned int bytes;
};
// An arrival that waits for a thread's copies, and what makes these land.
struct LateArrival {
    unsigned long long* barrier;
    std::function<void()> land;
};
struct Bulk {
    std::map<unsigned long long*, PhaseBarrier> barriers;
    std::vector<BulkCopy> copies;
    std::vector<LateArrival> late;
    bool ready = false;
};

// A block is a system thread, so this is the block's.
inline thread_local Bulk bulk;

[[noreturn]] inline void refuse(const char* why) {
    fprintf(stderr, "%s\n", why);
    abort();
}
inline PhaseBarrier& phase_barrier(unsigned long long* at) {
    const auto found = bulk.barriers.find(at);
    if (found == bulk.barriers.end() || !bulk.ready) refuse("a barrier is used before it is ready");
    return found->second;
}
inline void settle(PhaseBarrier& one) {
    if (one.pending != 0 || one.bytes != 0) return;
    one.parity ^= 1;
    one.pending = one.arrivals;
}
inline void arrive(unsigned long long* at, unsigned int bytes) {
    PhaseBarrier& one = phase_barrier(at);
    if (one.pending == 0) refuse("more arrivals at a barrier than it was made for");
    --one.pending;
    one.bytes += bytes;
    settle(one);
}
inline void land_one(unsigned long long* at) {
    for (size_t i = bulk.copies.size(); i-- > 0;) {
        const BulkCopy copy = bulk.copies[i];
        if (copy.barrier != at) continue;
        bulk.copies.erase(bulk.copies.begin() + i);
        memcpy(copy.into, copy.from, copy.bytes);
        PhaseBarrier& one = phase_barrier(at);
        one.bytes -= copy.bytes;
        if (one.bytes < 0) refuse("more bytes arrive at a barrier than it expects");
        settle(one);
        return;
    }
    for (size_t i = bulk.late.size(); i-- > 0;) {
        if (bulk.late[i].barrier != at) continue;
        const LateArrival late = bulk.late[i];
        bulk.late.erase(bulk.late.begin() + i);
        late.land();
        arrive(at, 0);
        return;
    }
}
// What a device would leave behind: nothing may be under way when a block ends.
inline void end_of_block() {
    if (!bulk.copies.empty() || !bulk.late.empty()) refuse("a block ends while a copy into it is under way");
    bulk = {};
}

}  // namespace emulator

namespace kw {

inline void barrier_init(unsigned long long* at, unsigned int arrivals) { emulator::bulk.barriers[at] = {arrivals, arrivals, 0, 0}; }
inline void barriers_ready() { emulator::bulk.ready = true; }
inline void barrier_arrive(unsigned long long* at) { emulator::arrive(at, 0); }
inline void barrier_expect(unsigned long long* at, unsigned int bytes) { emulator::arrive(at, bytes); }
inline void barrier_wait(unsigned long long* at, unsigned int parity) {
    // The phase under way has parity `one.parity`: the other one is over.
    while (emulator::phase_barrier(at).parity == parity) {
        emulator::land_one(at);
        emulator::yield();
    }
}
template <int CACHE> inline unsigned long long cache_policy() { return CACHE; }
inline void bulk_load(void* shared, const void* global, unsigned int bytes, unsigned long long* at, unsigned long long) {
    if (bytes == 0 || bytes % 16 || (uintptr_t)shared % 16 || (uintptr_t)global % 16) emulator::refuse("a bulk copy is not of whole 16 bytes");
    const unsigned char* start = emulator::block->memory.get();
    const unsigned char* into = static_cast<unsigned char*>(shared);
    if (into < start || into + bytes > start + emulator::block->shared) emulator::refuse("a bulk copy leaves shared memory");
    emulator::phase_barrier(at);
    memset(shared, 0xff, bytes);
    emulator::bulk.copies.push_back({at, shared, global, bytes});
}

}  // namespace kw
