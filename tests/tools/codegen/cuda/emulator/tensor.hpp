// Plays tensor cores and what feeds them (included by emulator.hpp).
//
// Sums are those of the device, not of IEEE: the products of a step and the sum before it are
// aligned to the largest exponent, cut off, added, and rounded toward zero (products of 16-bit and
// of TF32 numbers are exact in double); sums that are kept in fp16 are rounded to the nearest. A copy of a thread poisons where it goes as soon as it is
// asked for and lands when the thread waits for it, so whoever reads before that, or asks for a
// copy over what others still read, computes with NaN. Rows of `load_matrices` that share a bank
// are counted. Not played: which unit writes shared memory through which proxy.
#pragma once

#include <array>
#include <bit>

namespace emulator {

// Fraction bits that alignment keeps, and how many products of 16-bit numbers are added at once
// (half as many of TF32).
struct TensorCore {
    int bits, depth;
};
// Numbers of eight bits are cut off much earlier: about fourteen bits of a sum are kept.
constexpr TensorCore AMPERE{24, 8}, HOPPER{25, 16}, HOPPER_EIGHTS{13, 32};
// That of a warp's products; those of a warpgroup exist on Hopper alone.
inline TensorCore of_warp = AMPERE;
inline std::atomic<long> bank_conflicts{0};

inline double power_of_two(int exponent) { return std::bit_cast<double>((unsigned long long)(exponent + 1023) << 52); }
inline int exponent_of(double x, int least) {
    if (x == 0) return -126;
    return std::max((int)(std::bit_cast<unsigned long long>(x) >> 52 & 0x7ff) - 1023, least);
}
inline float toward_zero(double x) {
    if (std::fabs(x) >= 0x1p128) return (float)std::copysign(HUGE_VAL, x);
    const float near = (float)x;
    return std::fabs((double)near) > std::fabs(x) ? std::nextafterf(near, 0.0f) : near;
}

// A factor with the exponent it is aligned by.
struct Factor {
    double value;
    int exponent;
};
inline Factor factor(double value, int least) { return {value, exponent_of(value, least)}; }
// By way of float, to which there is an instruction.
inline Factor half_factor(unsigned short bits) { return factor((double)(float)std::bit_cast<_Float16>(bits), -14); }
inline Factor bfloat_factor(unsigned short bits) { return factor((double)std::bit_cast<float>((unsigned int)bits << 16), -126); }
// e4m3: exponents from -6 on, no infinities.
inline Factor eight_factor(unsigned short bits) {
    const int exponent = bits >> 3 & 15, fraction = bits & 7;
    const double size = exponent ? std::ldexp(8 + fraction, exponent - 10) : std::ldexp(fraction, -9);
    const double value = (bits & 0x7f) == 0x7f ? std::nan("") : size;
    return factor(bits & 0x80 ? -value : value, -6);
}
// The unit does not see the lower bits.
inline Factor tf32_factor(unsigned int bits) { return factor((double)std::bit_cast<float>(bits & 0xffffe000u), -126); }

// What a sum is rounded to when it is kept.
inline float to_nearest_half(double x) { return (float)(_Float16)x; }

// One step: `count` products added to a sum at once.
inline float one_step(float before, const Factor* left, const Factor* right, int count, int bits, float (*kept)(double) = toward_zero) {
    int top = exponent_of(before, -126);
    for (int k = 0; k < count; ++k) top = std::max(top, left[k].exponent + right[k].exponent);
    if (top > 2 * 127) {  // what is infinite or NaN has an exponent of 1024
        double plain = before;
        for (int k = 0; k < count; ++k) plain += left[k].value * right[k].value;
        if (!std::isfinite(plain)) return plain == plain ? (float)plain : std::bit_cast<float>(0x7fffffffu);
    }
    const double scale = power_of_two(bits - top);
    long long sum = (long long)(before * scale);
    for (int k = 0; k < count; ++k) sum += (long long)(left[k].value * right[k].value * scale);
    return kept((double)sum * power_of_two(top - bits));
}
inline float steps(float sum, const Factor* left, const Factor* right, int count, int together, int bits, float (*kept)(double) = toward_zero) {
    for (int k = 0; k < count; k += together) sum = one_step(sum, left + k, right + k, together, bits, kept);
    return sum;
}

// What a lane shows the others of its warp: its factors, or the row it names.
struct Shown {
    std::array<unsigned int, 6> words;
    const unsigned char* row;
};
inline thread_local std::vector<Shown> shown;
inline Shown* of_my_warp() {
    if (shown.size() < block->fibers.size() + 32) shown.resize(block->fibers.size() + 32);
    return shown.data() + block->current / 32 * 32;
}

// `DEPTH` positions, each register holding `32 / BITS` of them that are neighbours.
template <int PER_WORD, Factor (*READ)(unsigned int, int)>
inline void multiply(float (&sum)[4], const unsigned int (&left)[4], unsigned int right0, unsigned int right1, int together) {
    constexpr int DEPTH = 8 * PER_WORD;
    Shown* warp = of_my_warp();
    const int lane = block->current % 32, g = lane / 4, t = lane % 4;
    warp[lane].words = {left[0], left[1], left[2], left[3], right0, right1};
    warp_wait();
    Factor rows[2][DEPTH], columns[2][DEPTH];
    for (int i = 0; i < 2; ++i) {
        for (int k = 0; k < DEPTH; ++k) {
            const int other = k / PER_WORD % 4, upper = k / (4 * PER_WORD), part = k % PER_WORD;
            rows[i][k] = READ(warp[g * 4 + other].words[i + 2 * upper], part);
            columns[i][k] = READ(warp[(2 * t + i) * 4 + other].words[4 + upper], part);
        }
    }
    for (int i = 0; i < 4; ++i) sum[i] = steps(sum[i], rows[i / 2], columns[i % 2], DEPTH, together, of_warp.bits);
    warp_wait();
}
inline Factor read_half(unsigned int word, int part) { return half_factor(word >> 16 * part); }
inline Factor read_bfloat(unsigned int word, int part) { return bfloat_factor(word >> 16 * part); }
inline Factor read_tf32(unsigned int word, int) { return tf32_factor(word); }

// Eight rows are read at once, and must lie in different groups of four banks.
inline void count_conflicts(const Shown* rows) {
    int often[8] = {};
    for (int i = 0; i < 8; ++i) ++often[(uintptr_t)rows[i].row / 16 % 8];
    bank_conflicts += *std::max_element(often, often + 8) - 1;
}

template <bool TRANSPOSED> inline void load_matrices(unsigned int (&into)[4], const void* row) {
    if ((uintptr_t)row % 16) refuse("a row of a matrix is not aligned to 16 bytes");
    Shown* warp = of_my_warp();
    const int lane = block->current % 32, g = lane / 4, t = lane % 4;
    warp[lane].row = static_cast<const unsigned char*>(row);
    warp_wait();
    for (int i = 0; i < 4; ++i) {
        const Shown* rows = warp + 8 * i;
        if (lane == 0) count_conflicts(rows);
        for (int k = 0; k < 2; ++k) {
            const unsigned char* from = TRANSPOSED ? rows[2 * t + k].row + 2 * g : rows[g].row + 4 * t + 2 * k;
            memcpy(reinterpret_cast<unsigned char*>(&into[i]) + 2 * k, from, 2);
        }
    }
    warp_wait();
}

// ---- copies of threads ------------------------------------------------------------------------

struct ThreadCopy {
    unsigned char* into;
    std::array<unsigned char, 16> bytes;
    int size;
};
struct ThreadCopies {
    std::vector<ThreadCopy> open;
    std::vector<std::vector<ThreadCopy>> groups;
};
inline thread_local std::vector<ThreadCopies> thread_copies;
inline ThreadCopies& my_copies() {
    if (thread_copies.size() < block->fibers.size()) thread_copies.resize(block->fibers.size());
    return thread_copies[block->current];
}
// `from` is nullptr for zeros. What is read is read now: nobody may write there during a kernel.
inline void copy_later(void* shared, const void* from, int size) {
    ThreadCopy copy{static_cast<unsigned char*>(shared), {}, size};
    if (from != nullptr) memcpy(copy.bytes.data(), from, size);
    memset(shared, 0xff, size);
    my_copies().open.push_back(copy);
}
inline void land_groups(size_t pending) {
    auto& groups = my_copies().groups;
    const size_t over = groups.size() > pending ? groups.size() - pending : 0;
    for (size_t i = 0; i < over; ++i) {
        for (const ThreadCopy& copy : groups[i]) memcpy(copy.into, copy.bytes.data(), copy.size);
    }
    groups.erase(groups.begin(), groups.begin() + over);
}

// ---- products of warpgroups ---------------------------------------------------------------------

// One product that is asked for: `sums` are the lane's own, N / 2 of them, in fp16 two a register.
struct GroupProduct {
    void* sums;
    int columns, keep;
    unsigned long long left, right;
    bool left_turned, right_turned;
    Factor (*read)(unsigned short);
    // The left factor's rows g and g + 8 where it is in registers: they are read when it is asked for.
    bool in_registers = false;
    std::array<std::array<Factor, 16>, 2> rows = {};
    bool halves = false;
    int bytes = 2;  // of an element
};
// A lane's batches, and what its accumulators held before the products that are under way.
struct GroupLane {
    bool begun = false;
    std::vector<GroupProduct> open;
    std::vector<std::vector<GroupProduct>> batches;
    std::map<void*, std::vector<float>> held;
    std::map<void*, bool> halves;
};
inline thread_local std::vector<GroupLane> group_lanes;
inline GroupLane& my_group_lane() {
    if (group_lanes.size() < block->fibers.size()) group_lanes.resize(block->fibers.size());
    return group_lanes[block->current];
}
// An element of the rows that a descriptor names: lines of 128, 64 or 32 bytes in groups of eight,
// swizzled by their address. A line is a row's depth; turned (lines of 128 bytes only), it is 64 rows
// at one position of the depth.
inline unsigned short group_element(unsigned long long factor, bool turned, int row, int inner, int bytes = 2) {
    const unsigned int panel = (factor >> 16 & 0x3fff) * 16, eight = (factor >> 32 & 0x3fff) * 16, kind = factor >> 62;
    if (kind == 0 || eight == 0) refuse("a factor of a group is not swizzled");
    if (turned && kind != 1) refuse("a factor that lies along its side is not swizzled by 128 bytes");
    const unsigned int length = 256u >> kind;
    const int line = turned ? inner : row, within = turned ? row % 64 : inner;
    const unsigned int start = (factor & 0x3fff) * 16 + (turned ? row / 64 * panel : 0);
    const unsigned int at = start + line / 8 * eight + line % 8 * length + within * bytes;
    const unsigned int swizzled = at ^ (at >> 7 & (length / 16 - 1)) << 4;
    if (swizzled + bytes > block->shared) refuse("a factor of a group leaves shared memory");
    unsigned short bits = 0;
    memcpy(&bits, block->memory.get() + swizzled, bytes);
    return bits;
}
inline void to_floats(std::vector<float>& into, const float* sums, int count) { into.assign(sums, sums + count); }
inline void to_floats(std::vector<float>& into, const unsigned int* sums, int count) {
    for (int i = 0; i < 2 * count; ++i) into.push_back((float)std::bit_cast<_Float16>((unsigned short)(sums[i / 2] >> i % 2 * 16)));
}
inline void from_floats(const std::vector<float>& from, void* sums, bool halves) {
    for (size_t i = 0; i < from.size(); ++i) {
        if (halves) static_cast<_Float16*>(sums)[i] = (_Float16)from[i];
        else static_cast<float*>(sums)[i] = from[i];
    }
}
// The accumulators hold NaN until their products are waited for.
template <class SUM, int COUNT> inline void ask_for_product(SUM (&sums)[COUNT], GroupProduct product) {
    GroupLane& lane = my_group_lane();
    if (!lane.begun) refuse("a product of a group without its beginning");
    if (lane.held.find(sums) == lane.held.end()) {
        to_floats(lane.held[sums], sums, COUNT);
        for (SUM& one : sums) one = std::bit_cast<SUM>(0x7fffffffu);
    }
    product.sums = sums;
    product.halves = lane.halves[sums] = !std::is_same_v<SUM, float>;
    product.columns = 2 * (int)lane.held[sums].size();
    lane.open.push_back(product);
}
inline void do_product(const GroupProduct& one, std::vector<float>& held) {
    const int warp = block->current % 128 / 32, g = block->current % 32 / 4, t = block->current % 4;
    const int depth = 32 / one.bytes;
    const TensorCore core = one.bytes == 1 ? HOPPER_EIGHTS : HOPPER;
    Factor rows[2][32], column[32];
    for (int k = 0; k < depth; ++k) {
        for (int i = 0; i < 2; ++i) rows[i][k] = one.in_registers ? one.rows[i][k] : one.read(group_element(one.left, one.left_turned, warp * 16 + g + 8 * i, k, one.bytes));
    }
    for (int at = 0; at < one.columns / 2; at += 4) {
        for (int c = 0; c < 2; ++c) {
            for (int k = 0; k < depth; ++k) column[k] = one.read(group_element(one.right, one.right_turned, at * 2 + 2 * t + c, k, one.bytes));
            for (int i = 0; i < 2; ++i) {
                float& sum = held[at + 2 * i + c];
                sum = steps(one.keep ? sum : 0.0f, rows[i], column, depth, core.depth, core.bits, one.halves ? to_nearest_half : toward_zero);
            }
        }
    }
}
// Products are done as late as can be: all others run on before, and may spoil what is multiplied.
inline void finish_batches(size_t pending) {
    GroupLane& lane = my_group_lane();
    if (lane.batches.size() > pending) {
        block->moved = true;
        yield();
    }
    const size_t over = lane.batches.size() > pending ? lane.batches.size() - pending : 0;
    for (size_t i = 0; i < over; ++i) {
        for (const GroupProduct& one : lane.batches[i]) do_product(one, lane.held[one.sums]);
    }
    lane.batches.erase(lane.batches.begin(), lane.batches.begin() + over);
    lane.begun = false;
    for (auto entry = lane.held.begin(); entry != lane.held.end();) {
        bool awaited = false;
        for (const auto& batch : lane.batches) {
            for (const GroupProduct& one : batch) awaited |= one.sums == entry->first;
        }
        if (awaited) {
            ++entry;
            continue;
        }
        from_floats(entry->second, entry->first, lane.halves[entry->first]);
        entry = lane.held.erase(entry);
    }
}

// What is of one block begins anew with the next.
inline void end_of_tensor_block() {
    thread_copies.clear();
    group_lanes.clear();
}

}  // namespace emulator

// The tensor core that products of a warp are played on: 80 for Ampere and Ada, 90 for Hopper.
extern "C" __attribute__((visibility("default"))) void emulate_architecture(int number) {
    emulator::of_warp = number >= 90 ? emulator::HOPPER : emulator::AMPERE;
}
// Rows of matrices that had to wait for another of the same bank, since this was last asked.
extern "C" __attribute__((visibility("default"))) long matrix_bank_conflicts() { return emulator::bank_conflicts.exchange(0); }

namespace kw {

template <int BYTES> inline void copy_async(void* shared, const void* global) {
    struct alignas(BYTES) Word { char bytes[BYTES]; };
    check_alignment(static_cast<Word*>(shared));
    check_alignment(static_cast<const Word*>(global));
    emulator::copy_later(shared, global, BYTES);
}
template <int BYTES> inline void copy_async(void* shared, const void* global, unsigned long long) { copy_async<BYTES>(shared, global); }
inline void copy_async_or_zero(void* shared, const void* global, bool inside) {
    if (inside) return copy_async<16>(shared, global);
    emulator::copy_later(shared, nullptr, 16);
}
inline void copy_commit() {
    emulator::ThreadCopies& mine = emulator::my_copies();
    mine.groups.push_back(std::move(mine.open));
    mine.open.clear();
}
template <int PENDING> inline void copy_wait() { emulator::land_groups(PENDING); }
inline void arrive_after_copies(unsigned long long* barrier) {
    const auto copies = std::move(emulator::my_copies().open);
    emulator::my_copies().open.clear();
    emulator::bulk.late.push_back({barrier, [copies] {
        for (const emulator::ThreadCopy& copy : copies) memcpy(copy.into, copy.bytes.data(), copy.size);
    }});
}

template <bool TRANSPOSED> inline void load_matrices(unsigned int (&into)[4], const void* row) { emulator::load_matrices<TRANSPOSED>(into, row); }
template <class T> inline void multiply(float (&sum)[4], const unsigned int (&left)[4], unsigned int right0, unsigned int right1);
template <> inline void multiply<__half>(float (&sum)[4], const unsigned int (&left)[4], unsigned int right0, unsigned int right1) {
    emulator::multiply<2, emulator::read_half>(sum, left, right0, right1, emulator::of_warp.depth);
}
template <> inline void multiply<__nv_bfloat16>(float (&sum)[4], const unsigned int (&left)[4], unsigned int right0, unsigned int right1) {
    emulator::multiply<2, emulator::read_bfloat>(sum, left, right0, right1, emulator::of_warp.depth);
}
inline void multiply_tf32(float (&sum)[4], const unsigned int (&left)[4], unsigned int right0, unsigned int right1) {
    emulator::multiply<1, emulator::read_tf32>(sum, left, right0, right1, emulator::of_warp.depth / 2);
}
// Halves away from zero.
inline unsigned int to_tf32(float x) {
    const unsigned int bits = std::bit_cast<unsigned int>(x);
    return (bits & 0x7f800000) == 0x7f800000 ? bits : (bits + 0x1000) & 0xffffe000u;
}
inline void group_begin() { emulator::my_group_lane().begun = true; }
inline void group_commit() {
    emulator::GroupLane& lane = emulator::my_group_lane();
    lane.batches.push_back(std::move(lane.open));
    lane.open.clear();
}
template <int PENDING> inline void group_wait() { emulator::finish_batches(PENDING); }
template <class SUM, int COUNT> inline void settled(SUM (&)[COUNT]) {}
inline unsigned long long shared_factor(const void* rows, int panel_bytes, int line, int apart = 1) {
    const unsigned long long at = static_cast<const unsigned char*>(rows) - emulator::block->memory.get();
    return at >> 4 | (unsigned long long)(panel_bytes >> 4) << 16 | (unsigned long long)(line / 2 * apart) << 32 | (line == 128 ? 1ull : line == 64 ? 2ull : 3ull) << 62;
}
inline unsigned long long turned_group_factor(const void* panels, int panel_bytes) {
    if ((static_cast<const unsigned char*>(panels) - emulator::block->memory.get()) % 1024) emulator::refuse("a factor of a group does not begin at a multiple of 1024 bytes");
    return shared_factor(panels, panel_bytes, 128);
}
template <int LINE = 128, int APART = 1> inline unsigned long long group_factor(const void* rows) {
    // It may begin at any row of what lies there swizzled.
    if ((static_cast<const unsigned char*>(rows) - emulator::block->memory.get()) % LINE) emulator::refuse("a factor of a group does not begin at a row");
    return shared_factor(rows, 16, LINE, APART);
}
template <class T, int N> struct GroupProduct {
    template <bool LEFT_TURNED, bool RIGHT_TURNED>
    static void multiply(float (&sums)[N / 2], unsigned long long left, unsigned long long right, int keep) {
        const bool eights = sizeof(T) == 1;
        const auto read = eights ? emulator::eight_factor : std::is_same_v<T, __half> ? emulator::half_factor : emulator::bfloat_factor;
        emulator::GroupProduct product{nullptr, 0, keep, left, right, LEFT_TURNED, RIGHT_TURNED, read};
        product.bytes = sizeof(T);
        emulator::ask_for_product(sums, product);
    }
};
template <class T, int N> struct HalfProduct {
    template <bool LEFT_TURNED, bool RIGHT_TURNED>
    static void multiply(unsigned int (&sums)[N / 4], unsigned long long left, unsigned long long right, int keep) {
        emulator::ask_for_product(sums, {nullptr, 0, keep, left, right, LEFT_TURNED, RIGHT_TURNED, emulator::half_factor});
    }
};
// Lanes of a row hold its sixteen positions between them.
template <class T, int N> struct RegisterProduct {
    template <bool RIGHT_TURNED>
    static void multiply(float (&sums)[N / 2], const unsigned int (&left)[4], unsigned long long right, int keep) {
        const auto read = std::is_same_v<T, __half> ? emulator::half_factor : emulator::bfloat_factor;
        emulator::GroupProduct product{nullptr, 0, keep, 0, right, false, RIGHT_TURNED, read, true, {}};
        emulator::Shown* warp = emulator::of_my_warp();
        const int lane = emulator::block->current % 32, g = lane / 4;
        warp[lane].words = {left[0], left[1], left[2], left[3], 0, 0};
        emulator::warp_wait();
        for (int i = 0; i < 2; ++i) {
            for (int k = 0; k < 16; ++k) product.rows[i][k] = read((unsigned short)(warp[g * 4 + k / 2 % 4].words[i + k / 8 * 2] >> 16 * (k % 2)));
        }
        emulator::warp_wait();
        emulator::ask_for_product(sums, product);
    }
};
inline void written_for_groups() {}
template <int COUNT> inline void fewer_registers() {}
template <int COUNT> inline void more_registers() {}

}  // namespace kw
