// Plays phase barriers, bulk copies, and copies and stores by tensor maps (included by emulator.hpp).
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
    std::vector<unsigned char> bytes;
};
// An arrival that waits for a thread's copies, and what makes these land.
struct LateArrival {
    unsigned long long* barrier;
    std::function<void()> land;
};
// A box that a thread has asked to be stored, in the batch of that number.
struct BoxStore {
    unsigned int thread, batch;
    const unsigned char* shared;
    std::vector<unsigned char*> into;  // of each element, or none where it lies outside
    size_t element, swizzle;
};
struct Bulk {
    std::vector<BoxStore> stores;
    std::map<unsigned int, unsigned int> batches;  // those that each thread has committed
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
    block->moved = true;
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
        block->moved = true;
        memcpy(copy.into, copy.bytes.data(), copy.bytes.size());
        PhaseBarrier& one = phase_barrier(at);
        one.bytes -= copy.bytes.size();
        // What another block of the cluster brings may come before this one expects it.
        if (one.bytes < 0 && block->cluster->inboxes.size() == 1) refuse("more bytes arrive at a barrier than it expects");
        settle(one);
        return;
    }
    for (size_t i = bulk.late.size(); i-- > 0;) {
        if (bulk.late[i].barrier != at) continue;
        const LateArrival late = bulk.late[i];
        bulk.late.erase(bulk.late.begin() + i);
        block->moved = true;
        late.land();
        arrive(at, 0);
        return;
    }
}
inline void begin_copy(unsigned long long* at, void* into, std::vector<unsigned char> bytes) {
    const unsigned char *start = block->memory.get(), *first = static_cast<unsigned char*>(into);
    if (first < start || first + bytes.size() > start + block->shared) refuse("a bulk copy leaves shared memory");
    phase_barrier(at);
    memset(into, 0xff, bytes.size());
    bulk.copies.push_back({at, into, std::move(bytes)});
}
inline size_t place_of(const void* at) {
    const size_t place = static_cast<const unsigned char*>(at) - block->memory.get();
    if (place >= block->shared) refuse("what a cluster shares is not in dynamic shared memory");
    return place;
}
inline void post(int rank, Posted posted) {
    Inbox& inbox = block->cluster->inboxes[rank];
    const std::lock_guard<std::mutex> held(inbox.lock);
    inbox.posted.push_back(std::move(posted));
    inbox.came.notify_one();
}
inline void read_inbox() {
    if (block->cluster->inboxes.size() == 1) return;
    std::vector<Posted> posted;
    {
        Inbox& inbox = block->cluster->inboxes[block->rank];
        const std::lock_guard<std::mutex> held(inbox.lock);
        posted.swap(inbox.posted);
    }
    for (Posted& one : posted) {
        auto* at = reinterpret_cast<unsigned long long*>(block->memory.get() + one.barrier);
        if (one.bytes.empty()) arrive(at, 0);
        else begin_copy(at, block->memory.get() + one.into, std::move(one.bytes));
    }
    block->moved |= !posted.empty();
}
inline void wait_for_mail() {
    if (block->cluster->inboxes.size() == 1) return;
    Inbox& inbox = block->cluster->inboxes[block->rank];
    std::unique_lock<std::mutex> held(inbox.lock);
    inbox.came.wait_for(held, std::chrono::milliseconds(1), [&] { return !inbox.posted.empty(); });
}
// What a device would leave behind: nothing may be under way when a block ends.
inline void end_of_block() {
    read_inbox();
    if (!bulk.copies.empty() || !bulk.late.empty()) refuse("a block ends while a copy into it is under way");
    if (!bulk.stores.empty()) refuse("a block ends while a box of it is still to be stored");
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
    emulator::read_inbox();
    while (emulator::phase_barrier(at).parity == parity) {
        emulator::read_inbox();
        emulator::land_one(at);
        emulator::yield();
    }
}
template <int CACHE> inline unsigned long long cache_policy() { return CACHE; }
inline void bulk_load(void* shared, const void* global, unsigned int bytes, unsigned long long* at, unsigned long long) {
    if (bytes == 0 || bytes % 16 || (uintptr_t)shared % 16 || (uintptr_t)global % 16) emulator::refuse("a bulk copy is not of whole 16 bytes");
    const auto* from = static_cast<const unsigned char*>(global);
    emulator::begin_copy(at, shared, {from, from + bytes});
}

// As the tests' `tensor_map` writes it, the contiguous dimension first; strides are in bytes.
struct alignas(64) TensorMap {
    const unsigned char* start;
    unsigned long long sizes[5], strides[5];
    unsigned short box[5], rank, element, swizzle;
};
inline void map_ready(const TensorMap&) {}

}  // namespace kw

namespace emulator {

// Where the elements of a box lie in the tensor, in the box's order; none of those outside.
inline std::vector<unsigned char*> places_of(const kw::TensorMap& map, std::initializer_list<int> at) {
    if (at.size() != map.rank) refuse("a tensor map of another rank");
    if ((uintptr_t)map.start % 16) refuse("a tensor map is not aligned to 16 bytes");
    size_t elements = 1;
    for (int d = 0; d < map.rank; ++d) elements *= map.box[d];
    std::vector<unsigned char*> places(elements, nullptr);
    for (size_t i = 0; i < elements; ++i) {
        size_t left = i;
        const unsigned char* from = map.start;
        bool inside = true;
        for (int d = 0; d < map.rank; ++d) {
            const long long position = at.begin()[d] + (long long)(left % map.box[d]);
            left /= map.box[d];
            inside &= position >= 0 && position < (long long)map.sizes[d];
            from += position * (long long)(d ? map.strides[d] : map.element);
        }
        if (inside) places[i] = const_cast<unsigned char*>(from);
    }
    return places;
}
inline void check_box(size_t place, const kw::TensorMap& map) {
    const size_t line = map.box[0] * map.element;
    if (place % (map.swizzle ? 8 * map.swizzle : 128)) refuse("a box does not begin where its swizzle does");
    if (line % 16 || (map.swizzle && line > map.swizzle)) refuse("the inner side of a box is too long or no multiple of 16 bytes");
}
// 16-byte pieces are permuted by the lines of 128 bytes they lie in.
inline size_t swizzled_place(size_t into, size_t swizzle) {
    return swizzle ? into ^ (into >> 7 & (swizzle / 16 - 1)) << 4 : into;
}
// A box as it will lie in shared memory from `shared` on; outside of the tensor there are zeros.
inline std::vector<unsigned char> box_of(const void* shared, const kw::TensorMap& map, std::initializer_list<int> at) {
    const size_t place = place_of(shared);
    check_box(place, map);
    const auto places = places_of(map, at);
    std::vector<unsigned char> bytes(places.size() * map.element, 0);
    for (size_t i = 0; i < places.size(); ++i) {
        if (places[i]) memcpy(bytes.data() + (swizzled_place(place + i * map.element, map.swizzle) - place), places[i], map.element);
    }
    return bytes;
}
// Stores of a thread's batches but the newest `pending`: as late as a device may, and boxes are poison then.
inline void store_boxes(unsigned int pending) {
    const unsigned int thread = threadIdx.x, committed = bulk.batches[thread];
    std::vector<BoxStore> left;
    for (BoxStore& one : bulk.stores) {
        if (one.thread != thread || one.batch + pending >= committed) {
            left.push_back(std::move(one));
            continue;
        }
        const size_t place = place_of(one.shared);
        for (size_t i = 0; i < one.into.size(); ++i) {
            if (one.into[i]) memcpy(one.into[i], block->memory.get() + swizzled_place(place + i * one.element, one.swizzle), one.element);
        }
        memset(const_cast<unsigned char*>(one.shared), 0xff, one.into.size() * one.element);
    }
    bulk.stores.swap(left);
}

}  // namespace emulator

namespace kw {

template <class... At> inline void map_load(void* shared, const TensorMap& map, unsigned long long* barrier, At... at) {
    emulator::begin_copy(barrier, shared, emulator::box_of(shared, map, {at...}));
}
template <class... At> inline void map_load_shared(void* shared, const TensorMap& map, unsigned long long* barrier, unsigned short blocks, At... at) {
    const auto bytes = emulator::box_of(shared, map, {at...});
    for (size_t rank = 0; rank < emulator::block->cluster->inboxes.size(); ++rank) {
        if (blocks >> rank & 1) emulator::post(rank, {emulator::place_of(barrier), emulator::place_of(shared), bytes});
    }
}
template <class... At> inline void map_store(const void* shared, const TensorMap& map, At... at) {
    emulator::check_box(emulator::place_of(shared), map);
    emulator::bulk.stores.push_back({threadIdx.x, emulator::bulk.batches[threadIdx.x], static_cast<const unsigned char*>(shared), emulator::places_of(map, {at...}), map.element, map.swizzle});
}
inline void stores_commit() { ++emulator::bulk.batches[threadIdx.x]; }
template <int PENDING> inline void stores_wait() { emulator::store_boxes(PENDING); }
inline void barrier_wait_for_others(unsigned long long* at, unsigned int parity) { barrier_wait(at, parity); }
inline void store_at(float* at, float value, unsigned long long* barrier, int rank) {
    const auto* bytes = reinterpret_cast<const unsigned char*>(&value);
    emulator::post(rank, {emulator::place_of(barrier), emulator::place_of(at), {bytes, bytes + 4}});
}
inline void barrier_arrive_at(unsigned long long* barrier, int rank) { emulator::post(rank, {emulator::place_of(barrier), 0, {}}); }
inline void barrier_give_at(unsigned long long* barrier, int rank) { barrier_arrive_at(barrier, rank); }

}  // namespace kw
