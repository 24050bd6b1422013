// What kernels on tensor cores lean on besides `kernelwright.cuh`: fragments from shared memory,
// products of a warp (sm_80 and later) and of a warpgroup (sm_90a), and what feeds them, copies by
// tensor maps (sm_90 and later) among it.
//
// A 16-bit element takes two bytes of a 32-bit register, the lower position the lower half. A lane
// is called by g = lane / 4 and t = lane % 4. Lane (g, t) holds of a 16 x 8 product the elements
// (g, 2t), (g, 2t + 1), (g + 8, 2t), (g + 8, 2t + 1): accumulators are float32, except that products
// of a warpgroup can also leave sums in fp16, two a register (`HalfProduct`).
//
// Tensor cores do not add as fp32 does. The products of a step and the sum before it are aligned to
// the largest exponent among them and cut off (25 fraction bits on Hopper and Blackwell, 24 on
// Ampere and Ada), and the fp32 result is rounded toward zero: a bias that grows with the number of
// steps. A kernel that owes fp32's accuracy starts from zero every few steps and adds what it has
// to a total of its own ("promotion").
#pragma once

#include "kernelwright.cuh"

namespace kw {

// A number of eight bits: four of exponent, three of significand, no infinities. Nothing here reads
// one by itself: they are factors of a warpgroup's products. Of these the sums keep 13 fraction bits
// or so below the largest exponent of a step, so they are to be promoted often.
struct E4M3 {
    unsigned char bits;
};

// Where the 16-byte chunk `chunk` of row `row` lies in a tile of shared memory whose rows are CHUNKS
// chunks (4 or 8, so 64 or 128 bytes), in bytes. Chunks are permuted so that any eight rows'
// chunks at one place, and any row's neighbouring chunks, lie in different banks. For rows of 128
// bytes in a tile that starts at a multiple of 1024 bytes this is the 128-byte swizzle of warpgroup
// products and tensor maps.
template <int CHUNKS> __device__ __forceinline__ int swizzled(int row, int chunk) {
    static_assert(CHUNKS == 4 || CHUNKS == 8, "rows of 64 or 128 bytes");
    const int mask = CHUNKS == 8 ? row & 7 : (row >> 1) & 3;
    return row * (CHUNKS * 16) + ((chunk ^ mask) * 16);
}

// The block's dynamic shared memory from the next multiple of 1024 bytes on, where swizzled rows of
// 128 bytes begin; as much more has to be asked for.
__device__ __forceinline__ unsigned char* swizzled_shared() {
    unsigned char* start = dynamic_shared();
#ifdef __CUDACC__
    return start + (1024 - (unsigned int)__cvta_generic_to_shared(start) % 1024) % 1024;
#else
    return start + (1024 - (unsigned long long)start % 1024) % 1024;
#endif
}

// A value that all lanes of a warp have alike, known to be so: what is computed from it is computed
// once a warp, and descriptors of factors are then where products of groups want them.
__device__ __forceinline__ int of_warp(int value) { return (int)__shfl_sync(0xffffffffu, (unsigned int)value, 0); }

// How a block's warps lie over its tile: so many below each other that a warp's part is as square as
// can be, since a square part reads the fewest elements for its products.
__device__ constexpr int warps_down(int rows, int columns, int warps) {
    int best = 0;
    for (int n = 1; n <= warps; n *= 2) {
        const bool fits = rows % (16 * n) == 0 && columns % (16 * (warps / n)) == 0;
        const int edges = rows / n + columns / (warps / n);
        if (fits && (best == 0 || edges < rows / best + columns / (warps / best))) best = n;
    }
    return best;
}

// The tile that a block computes, of DOWN x ACROSS: bands of GROUP tiles below each other are walked
// column by column, so that blocks that run together read few different rows and columns.
struct TilePlace {
    int row, column;
};
template <int DOWN, int ACROSS, int GROUP> __device__ __forceinline__ TilePlace tile_place(int number) {
    const int band = number / (GROUP * ACROSS), within = number % (GROUP * ACROSS);
    const int left = DOWN - band * GROUP, height = left < GROUP ? left : GROUP;
    return {band * GROUP + within % height, within / height};
}

// ---- float32 as two scaled 16-bit parts --------------------------------------------------------
//
// A row (or column) is multiplied by the power of two that brings its largest magnitude into
// [2^14, 2^15), and each number is the sum of two __half: 22 bits, down to 2^-25 of what is scaled.
// A number below 2^-3 there, 2^18 times smaller than the row's largest, has fewer bits: it is short.
// Where products of lower parts are summed first, lower parts are raised by 2^11 and their sums brought
// down again before products of upper parts are added: 22 bits then reach down to 2^-14 of what is
// scaled, 2^29 times smaller than the row's largest, and what is off is 2^-36. That is for gradients
// of a cross entropy, of whose rows most numbers are 2^18 times smaller than the largest.

// What stands for the power of two of a row that holds an infinity or NaN, which have no parts.
constexpr int NOT_FINITE = 1 << 20;
// And of a row of zeros: its sums are zero whatever its power of two would be.
constexpr int ALL_ZERO = 1 << 19;
// Sums of at most 2^47 stay within float32 when they are multiplied by two powers of such exponents.
constexpr int NEAR = 40;
// What lower parts are raised by, where they are.
constexpr float RAISED = 2048.0f;
// A short factor is off by at most 2^-25, or where lower parts are raised 2^-36, and meets one of at
// most 2^15. Allowed is what a sum in float32 may be off by itself: four roundings, or of a long one
// half of the square root of its depth, as its own roundings go either way. A sum is in doubt below so
// many times the number of short factors.
__device__ constexpr float short_weight(int depth, bool is_raised) {
    int root = 8;
    while ((root + 1) * (root + 1) <= depth && root < 32768) ++root;
    return 4096.0f * 8.0f / (float)root / (is_raised ? RAISED : 1.0f);
}
constexpr float SHORT_WEIGHT = short_weight(64, false);
// Lanes of a warp with results to be summed from the factors, from which on each sums its own.
constexpr int MANY_REPAIRS = 16;

// `x`, of which compilers do not know that it is the same every time: they keep nothing that follows of it.
__device__ __forceinline__ int anew(int x) {
    asm volatile("" : "+r"(x));
    return x;
}
__device__ __forceinline__ unsigned int larger(unsigned int a, unsigned int b) { return a > b ? a : b; }
// The bits of |x|; they are ordered as magnitudes are, infinity and then NaN last.
__device__ __forceinline__ unsigned int magnitude_bits(float x) {
    unsigned int bits;
    memcpy(&bits, &x, 4);
    return bits & 0x7fffffffu;
}
// The exponent of the power of two for a row whose largest magnitude has these bits.
__device__ __forceinline__ int scaling_of(unsigned int largest) {
    if (largest >= 0x7f800000u) return NOT_FINITE;
    if (largest == 0) return 0;
    if (largest >= 0x00800000u) return 14 + 127 - (int)(largest >> 23);
    // A denormal is so many times 2^-149; as a float that number has an exponent of its own.
    const unsigned int bits = magnitude_bits((float)(int)largest);
    return 14 + 127 + 149 - (int)(bits >> 23);
}
// 2^exponent, between 2^-126 and 2^127.
__device__ __forceinline__ float power_of_two(int exponent) { return __int_as_float((exponent + 127) << 23); }
// 2^exponent for exponents of at most 0, and zero where that is below float32.
__device__ __forceinline__ float shrinking(int exponent) { return power_of_two(exponent > -127 ? exponent : -127); }
// x 2^exponent in two steps, since the power alone may be beyond float32.
__device__ __forceinline__ float scaled(float x, int exponent) {
    const int half = exponent / 2;
    return x * power_of_two(half) * power_of_two(exponent - half);
}
__device__ __forceinline__ bool is_short(float x, float scaled) { return x != 0.0f && ::fabsf(scaled) < 0.125f; }
// Whether the sum of a row's products may be off by more than a sum in float32 would be.
__device__ __forceinline__ bool falls_short(float sum, int short_factors, float weight) {
    return ::fabsf(sum) < (float)short_factors * weight;
}

// Of what one 16-bit number is to stand for: whether it has fewer than its eleven bits. It is then off
// by at most 2^-25 and meets a factor of at most 2^15.
__device__ __forceinline__ bool is_subnormal_half(float x, float scaled) { return x != 0.0f && ::fabsf(scaled) < 0x1p-14f; }

// Where a sample stands for all numbers, its largest is brought `margin` powers of two lower than
// `scaling_of` says: the largest bits that this serves as well, infinities aside.
__device__ __forceinline__ unsigned int served_by_sample(unsigned int largest, int margin) {
    const unsigned int field = largest >> 23;
    if (field == 0) return largest;
    const unsigned int most = ((field + margin + 1) << 23) - 1;
    return most < 0x7f7fffffu ? most : 0x7f7fffffu;
}
// The exponent of that power of two, or where numbers beyond were `missed`, that of their largest.
__device__ __forceinline__ int sampled_scaling(unsigned int largest, int margin, unsigned int missed) {
    return missed > 0 ? scaling_of(missed) : scaling_of(largest) - margin;
}

// Of a row that is scaled piece by piece: the exponent of a piece whose largest magnitude has these
// bits, at most 126, or 127 for a piece of zeros. Infinities stay what they are: they and NaN make
// the lower part and so the sum NaN, which is found there.
__device__ __forceinline__ int piece_scaling(unsigned int largest) {
    if (largest == 0) return 127;
    const int exponent = 14 + 127 - (int)(largest >> 23);
    return exponent < 126 ? exponent : 126;
}
// Twice the bits of |x|, less one: ordered as magnitudes are, with zero last.
__device__ __forceinline__ unsigned int nonzero_bits(float x) { return 2 * magnitude_bits(x) - 1; }
__device__ __forceinline__ unsigned int smaller(unsigned int a, unsigned int b) { return a < b ? a : b; }
// The `nonzero_bits` below which a number is short after scaling by 2^exponent.
__device__ __forceinline__ unsigned int short_below(int exponent) {
    const int field = 124 - exponent;
    return field > 0 ? ((unsigned int)field << 24) - 1 : (0x800000u >> -field) - 1;
}
// A side, a row or a column, that is scaled piece by piece keeps the exponents of its largest and of its
// smallest piece so far, in the lower and the upper half of a word; it begins with no piece but zeros.
constexpr int NO_PIECES = (int)(0xff00u << 16 | 127u);
__device__ __forceinline__ int largest_piece(int spread) { return (int)(short)(spread & 0xffff); }
__device__ __forceinline__ int smallest_piece(int spread) { return spread >> 16; }
// What a piece is scaled by: the power of two that totals have where the piece reaches close to it, which
// nearly all do, else its own. `factor` brings sums of it to that of totals, `shrink` totals to a new one; below `least` it is short.
struct Piece {
    float scale, factor, shrink, least;
    int spread;
};
// A power of two for totals leaves a bit for larger pieces, and serves those up to eight times smaller.
constexpr int PIECE_ROOM = 1, PIECE_REACH = 4;
// How far below the bits of a magnitude that is too large those are of the least within reach.
constexpr unsigned int WITHIN_REACH = (unsigned int)(PIECE_REACH + 1) << 23;
// Totals keep what pieces bring that are up to 2^-60 of the largest of both sides. Where there are
// smaller ones, sums below 2^-48 are in doubt: so many short numbers.
constexpr int PIECE_SPREAD = 60;
constexpr float PIECES_LOST = 0x1p-60f;
__device__ __forceinline__ bool is_wide(int largest, int smallest) { return largest != 127 && smallest - largest > PIECE_SPREAD; }
// `most` is the piece's largest magnitude; NaN is none, and comes out in sums.
__device__ __forceinline__ Piece piece_of(float most, int spread) {
    const int before = largest_piece(spread), own = piece_scaling(magnitude_bits(most));
    const int now = own < before ? own - PIECE_ROOM : before;
    const int exponent = own - now <= PIECE_REACH || own == 127 ? now : own;
    const int least = own == 127 || own < smallest_piece(spread) ? smallest_piece(spread) : own;
    Piece piece;
    piece.scale = power_of_two(exponent < 126 ? exponent : 126);
    piece.factor = shrinking(now - exponent);
    piece.shrink = shrinking(now - before);
    piece.least = __int_as_float((int)((short_below(exponent) + 1) / 2));
    piece.spread = (int)((unsigned int)least << 16 | ((unsigned int)now & 0xffffu));
    return piece;
}
// What tells that a side's totals serve further pieces as they are, and how these are scaled then: bits
// of the least magnitude that is too large, of the least that is not short (as `nonzero_bits`), of the
// power of two, and the word itself.
__device__ __forceinline__ Vec<unsigned int, 4> totals_scaling(int spread) {
    const int largest = largest_piece(spread);
    const unsigned int beyond = largest == 127 ? 1u : (unsigned int)(142 - largest) << 23;
    return {beyond, short_below(largest), (unsigned int)((largest < 126 ? largest : 126) + 127) << 23, (unsigned int)spread};
}
// Two numbers as upper and lower parts; the first one is the lower half of a register.
__device__ __forceinline__ void split_pair(float first, float second, unsigned int& high, unsigned int& low) {
#ifdef __CUDACC__
    const __half2 upper = __floats2half2_rn(first, second);
    const float2 back = __half22float2(upper);
    const __half2 lower = __floats2half2_rn(first - back.x, second - back.y);
#else
    const __half upper[2] = {__float2half_rn(first), __float2half_rn(second)};
    const __half lower[2] = {__float2half_rn(first - __half2float(upper[0])), __float2half_rn(second - __half2float(upper[1]))};
#endif
    memcpy(&high, &upper, 4);
    memcpy(&low, &lower, 4);
}
// The same with lower parts raised.
__device__ __forceinline__ void split_raised(float first, float second, unsigned int& high, unsigned int& low) {
#ifdef __CUDACC__
    const __half2 upper = __floats2half2_rn(first, second);
    const float2 back = __half22float2(upper);
    const __half2 lower = __floats2half2_rn((first - back.x) * RAISED, (second - back.y) * RAISED);
#else
    const __half upper[2] = {__float2half_rn(first), __float2half_rn(second)};
    const __half lower[2] = {__float2half_rn((first - __half2float(upper[0])) * RAISED), __float2half_rn((second - __half2float(upper[1])) * RAISED)};
#endif
    memcpy(&high, &upper, 4);
    memcpy(&low, &lower, 4);
}

// Two numbers rounded to T, __half or __nv_bfloat16; the first one is the lower half of a register.
template <class T> __device__ __forceinline__ unsigned int rounded_pair(float first, float second);
#ifdef __CUDACC__
template <> __device__ __forceinline__ unsigned int rounded_pair<__half>(float first, float second) {
    const __half2 pair = __floats2half2_rn(first, second);
    unsigned int bits;
    memcpy(&bits, &pair, 4);
    return bits;
}
template <> __device__ __forceinline__ unsigned int rounded_pair<__nv_bfloat16>(float first, float second) {
    unsigned int bits;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(second), "f"(first));
    return bits;
}
#else
template <class T> __device__ __forceinline__ unsigned int rounded_pair(float first, float second) {
    const T pair[2] = {to<T>(first), to<T>(second)};
    unsigned int bits;
    memcpy(&bits, pair, 4);
    return bits;
}
#endif

#ifdef __CUDACC__
#if __CUDA_ARCH__ >= 800

// Four 8 x 8 matrices of 16-bit elements from shared memory. Lanes 0 to 7 name the rows of the
// first, 8 to 15 of the second, and so on; a row is 16 contiguous, aligned bytes. Lane (g, t) gets
// of each matrix the elements (g, 2t) and (g, 2t + 1), TRANSPOSED (2t, g) and (2t + 1, g).
template <bool TRANSPOSED> __device__ __forceinline__ void load_matrices(unsigned int (&into)[4], const void* row) {
    const unsigned int at = shared_address(row);
    if constexpr (TRANSPOSED) {
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(into[0]), "=r"(into[1]), "=r"(into[2]), "=r"(into[3]) : "r"(at) : "memory");
    } else {
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(into[0]), "=r"(into[1]), "=r"(into[2]), "=r"(into[3]) : "r"(at) : "memory");
    }
}

// sum += left x right: 16 x 16 times 16 x 8 elements of T, __half or __nv_bfloat16. Of the left
// factor lane (g, t) holds, two neighbours along the depth a register, (g, 2t), (g + 8, 2t),
// (g, 2t + 8), (g + 8, 2t + 8); of the right one (2t, g) and (2t + 8, g).
template <class T> __device__ __forceinline__ void multiply(float (&sum)[4], const unsigned int (&left)[4], unsigned int right0, unsigned int right1);
template <> __device__ __forceinline__ void multiply<__half>(float (&sum)[4], const unsigned int (&left)[4], unsigned int right0, unsigned int right1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right0), "r"(right1));
}
template <> __device__ __forceinline__ void multiply<__nv_bfloat16>(float (&sum)[4], const unsigned int (&left)[4], unsigned int right0, unsigned int right1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right0), "r"(right1));
}

// sum += left x right: 16 x 8 times 8 x 8 elements of TF32, each the upper 19 bits of a register
// (`to_tf32` rounds to them). The left factor's are (g, t), (g + 8, t), (g, t + 4), (g + 8, t + 4),
// the right one's (t, g) and (t + 4, g).
__device__ __forceinline__ void multiply_tf32(float (&sum)[4], const unsigned int (&left)[4], unsigned int right0, unsigned int right1) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right0), "r"(right1));
}
// To the nearest TF32 number, halves away from zero.
__device__ __forceinline__ unsigned int to_tf32(float x) {
    unsigned int out;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(out) : "f"(x));
    return out;
}

// `copy_async` of 16 bytes, or 16 zero bytes where there is nothing to read; the address must be
// one that may be formed, as that of the buffer is, and is not read then.
__device__ __forceinline__ void copy_async_or_zero(void* shared, const void* global, bool inside) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(shared)), "l"(global), "r"(inside ? 16 : 0) : "memory");
}
#endif  // sm_80

#if __CUDA_ARCH__ >= 900
// This thread arrives at the barrier when all copies that it has asked for so far have landed.
__device__ __forceinline__ void arrive_after_copies(unsigned long long* barrier) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_address(barrier)) : "memory");
}
#endif

// ---- copies by tensor maps -----------------------------------------------------------------------

// What a plan's `tensor_map(...)` passes, as a parameter `const __grid_constant__ kw::TensorMap name`.
struct alignas(64) TensorMap {
    unsigned long long words[16];
};

#if __CUDA_ARCH__ >= 900
// Says that a map will be used soon.
__device__ __forceinline__ void map_ready(const TensorMap& map) { asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory"); }

#define KW_MAP_LOAD(rank, places, mask, list, ...)                                                                            \
    __device__ __forceinline__ void map_load(void* shared, const TensorMap& map, unsigned long long* barrier, list) {         \
        asm volatile("cp.async.bulk.tensor." #rank "d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"               \
                     " [%0], [%1, {" places "}], [%2];"                                                                       \
                     ::"r"(shared_address(shared)), "l"(&map), "r"(shared_address(barrier)), __VA_ARGS__ : "memory");         \
    }                                                                                                                         \
    __device__ __forceinline__ void map_load_shared(void* shared, const TensorMap& map, unsigned long long* barrier,          \
                                                    unsigned short blocks, list) {                                            \
        asm volatile("cp.async.bulk.tensor." #rank "d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"               \
                     ".multicast::cluster [%0], [%1, {" places "}], [%2], %" #mask ";"                                        \
                     ::"r"(shared_address(shared)), "l"(&map), "r"(shared_address(barrier)), __VA_ARGS__, "h"(blocks)         \
                     : "memory");                                                                                             \
    }
#define KW_COMMA ,
// One thread asks for the map's box from an element on, the contiguous dimension's place first; the
// barrier is told of all the box's bytes, those that lie outside of the tensor (zeros) among them.
// Under a swizzle of 128 bytes rows go where `swizzled<8>` says, from a multiple of 1024 bytes on.
// `map_load_shared` brings the box to the same place of every block of the cluster whose bit is set
// in `blocks`, and tells the same barrier of each.
KW_MAP_LOAD(2, "%3, %4", 5, int x KW_COMMA int y, "r"(x), "r"(y))
KW_MAP_LOAD(3, "%3, %4, %5", 6, int x KW_COMMA int y KW_COMMA int z, "r"(x), "r"(y), "r"(z))
KW_MAP_LOAD(4, "%3, %4, %5, %6", 7, int x KW_COMMA int y KW_COMMA int z KW_COMMA int u, "r"(x), "r"(y), "r"(z), "r"(u))
KW_MAP_LOAD(5, "%3, %4, %5, %6, %7", 8, int x KW_COMMA int y KW_COMMA int z KW_COMMA int u KW_COMMA int v, "r"(x), "r"(y), "r"(z), "r"(u), "r"(v))
#undef KW_MAP_LOAD

#define KW_MAP_STORE(rank, places, list, ...)                                                                                 \
    __device__ __forceinline__ void map_store(const void* shared, const TensorMap& map, list) {                               \
        asm volatile("cp.async.bulk.tensor." #rank "d.global.shared::cta.bulk_group [%0, {" places "}], [%1];"                \
                     ::"l"(&map), "r"(shared_address(shared)), __VA_ARGS__ : "memory");                                       \
    }
// One thread has the map's box stored from shared memory, where `map_load` would bring it; what lies
// outside of the tensor is left out. Whoever wrote it says `written_for_groups` first. Stores up to
// a `stores_commit` are a batch.
KW_MAP_STORE(2, "%2, %3", int x KW_COMMA int y, "r"(x), "r"(y))
KW_MAP_STORE(3, "%2, %3, %4", int x KW_COMMA int y KW_COMMA int z, "r"(x), "r"(y), "r"(z))
KW_MAP_STORE(4, "%2, %3, %4, %5", int x KW_COMMA int y KW_COMMA int z KW_COMMA int u, "r"(x), "r"(y), "r"(z), "r"(u))
KW_MAP_STORE(5, "%2, %3, %4, %5, %6", int x KW_COMMA int y KW_COMMA int z KW_COMMA int u KW_COMMA int v, "r"(x), "r"(y), "r"(z), "r"(u), "r"(v))
#undef KW_COMMA
#undef KW_MAP_STORE
__device__ __forceinline__ void stores_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
// Waits until at most PENDING of this thread's batches have shared memory left to read.
template <int PENDING> __device__ __forceinline__ void stores_wait() { asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(PENDING) : "memory"); }

// `barrier_arrive` at the same barrier of another block of the cluster; writes are not ordered by it.
__device__ __forceinline__ void barrier_arrive_at(unsigned long long* barrier, int rank) {
    asm volatile(
        "{\n.reg .b32 there;\nmapa.shared::cluster.u32 there, %0, %1;\nmbarrier.arrive.shared::cluster.b64 _, [there];\n}"
        ::"r"(shared_address(barrier)), "r"(rank) : "memory");
}
// The same, with everything that lanes of this warp wrote before a `__syncwarp`.
__device__ __forceinline__ void barrier_give_at(unsigned long long* barrier, int rank) {
    asm volatile(
        "{\n.reg .b32 there;\nmapa.shared::cluster.u32 there, %0, %1;\nmbarrier.arrive.release.cluster.shared::cluster.b64 _, [there];\n}"
        ::"r"(shared_address(barrier)), "r"(rank) : "memory");
}
// `barrier_wait`, behind which what other blocks of the cluster gave can be read.
__device__ __forceinline__ void barrier_wait_for_others(unsigned long long* barrier, unsigned int parity) {
    unsigned int over = 0;
    while (over == 0) {
        asm volatile(
            "{\n.reg .pred over;\nmbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 over, [%1], %2;\nselp.u32 %0, 1, 0, over;\n}"
            : "=r"(over) : "r"(shared_address(barrier)), "r"(parity) : "memory");
    }
}
#endif  // sm_90

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
// ---- products of a warpgroup -----------------------------------------------------------------
//
// Four warps, 128 threads from a multiple of 128 on, multiply what lies in shared memory without
// reading it: 64 rows by N columns, 16 positions of the depth (of eight bits 32) an instruction,
// while they go on. A
// batch of products is: `group_begin`, products, `group_commit`, `group_wait`, `settled`.

// Says that this warp's accumulators, and what was written to shared memory before, may be used.
__device__ __forceinline__ void group_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void group_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Waits until at most PENDING batches are under way.
template <int PENDING> __device__ __forceinline__ void group_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory"); }
// The compiler takes accumulators for ready as soon as a product is asked for: nothing that uses
// them moves above this.
template <int COUNT> __device__ __forceinline__ void settled(float (&sums)[COUNT]) {
#pragma unroll
    for (int i = 0; i < COUNT; ++i) asm volatile("" : "+f"(sums[i])::"memory");
}
template <int COUNT> __device__ __forceinline__ void settled(unsigned int (&sums)[COUNT]) {
#pragma unroll
    for (int i = 0; i < COUNT; ++i) asm volatile("" : "+r"(sums[i])::"memory");
}

// A factor in shared memory as a product of a group names it: rows (of the right factor columns) of
// LINE / 2 positions of the depth, LINE bytes each in the order of a swizzle of LINE bytes (of 128
// that of `swizzled<8>`), from a multiple of 8 LINE bytes on. Sixteen positions further is the same
// plus GROUP_STEP<true>. The swizzle goes by the address, so a factor may begin at any of the rows.
// Of every APART blocks of eight rows it takes one.
template <int LINE = 128, int APART = 1> __device__ __forceinline__ unsigned long long group_factor(const void* rows) {
    static_assert(LINE == 128 || LINE == 64 || LINE == 32, "a swizzle of products of a group");
    constexpr unsigned long long EIGHT_ROWS = LINE / 2 * APART, SWIZZLE = LINE == 128 ? 1 : LINE == 64 ? 2 : 3;
    const unsigned long long start = (shared_address(rows) & 0x3ffff) >> 4;
    return start | (1ull << 16) | (EIGHT_ROWS << 32) | (SWIZZLE << 62);
}
// The same for a factor that lies along its side: panels of 64 rows, `panel_bytes` apart, in which
// each position of the depth is a line of 128 bytes. Sixteen positions are GROUP_STEP<false>.
__device__ __forceinline__ unsigned long long turned_group_factor(const void* panels, int panel_bytes) {
    const unsigned long long start = (shared_address(panels) & 0x3ffff) >> 4;
    return start | ((unsigned long long)(panel_bytes >> 4) << 16) | (64ull << 32) | (1ull << 62);
}

// sums (+)= left x right; from zero where `keep` is 0. A left factor in registers is 16 x 16 a warp,
// held as by `multiply`; registers stay as they are until the products are waited for. Thread (warp w, g, t) holds of columns 8 j and
// on the four results of rows 16 w and on that `multiply` would leave it, at 4 j.
template <class T, int N> struct GroupProduct;
template <class T, int N> struct RegisterProduct;
// The same with sums in fp16, rounded to it after every sixteen positions: register i holds what
// would be floats 2 i (the lower half) and 2 i + 1. Only products of __half leave such sums.
template <class T, int N> struct HalfProduct;

#define KW_FOUR(i) "+f"(sums[i]), "+f"(sums[i + 1]), "+f"(sums[i + 2]), "+f"(sums[i + 3])
#define KW_SIXTEEN(i) KW_FOUR(i), KW_FOUR(i + 4), KW_FOUR(i + 8), KW_FOUR(i + 12)
#define KW_32 KW_SIXTEEN(0)
#define KW_64 KW_SIXTEEN(0), KW_SIXTEEN(16)
#define KW_128 KW_64, KW_SIXTEEN(32), KW_SIXTEEN(48)
#define KW_192 KW_128, KW_SIXTEEN(64), KW_SIXTEEN(80)
#define KW_256 KW_192, KW_SIXTEEN(96), KW_SIXTEEN(112)
#define KW_NAMES_32 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define KW_NAMES_64 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define KW_NAMES_128 KW_NAMES_64 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define KW_NAMES_192 KW_NAMES_128 ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define KW_NAMES_256 KW_NAMES_192 ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define KW_GROUP_PRODUCT(type, kind, n, left, right, keep, left_turned, right_turned)                                 \
    template <> struct GroupProduct<type, n> {                                                                        \
        template <bool LEFT_TURNED, bool RIGHT_TURNED>                                                                \
        static __device__ __forceinline__ void multiply(float (&sums)[n / 2], unsigned long long from_left,           \
                                                        unsigned long long from_right, int kept) {                    \
            asm volatile("{\n.reg .pred kept;\nsetp.ne.b32 kept, %" #keep ", 0;\n"                                     \
                         "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." #kind "." #kind " {" KW_NAMES_##n "}, %"    \
                         #left ", %" #right ", kept, 1, 1, %" #left_turned ", %" #right_turned ";\n}"                 \
                         : KW_##n                                                                                     \
                         : "l"(from_left), "l"(from_right), "r"(kept), "n"((int)LEFT_TURNED), "n"((int)RIGHT_TURNED)); \
        }                                                                                                             \
    };
// The same with the left factor in registers, operands `left0` to `left3` of the instruction.
#define KW_REGISTER_PRODUCT(type, kind, n, left0, left1, left2, left3, right, keep, right_turned)                     \
    template <> struct RegisterProduct<type, n> {                                                                     \
        template <bool RIGHT_TURNED>                                                                                  \
        static __device__ __forceinline__ void multiply(float (&sums)[n / 2], const unsigned int (&left)[4],          \
                                                        unsigned long long from_right, int kept) {                    \
            asm volatile("{\n.reg .pred kept;\nsetp.ne.b32 kept, %" #keep ", 0;\n"                                     \
                         "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." #kind "." #kind " {" KW_NAMES_##n "}, {%"   \
                         #left0 ", %" #left1 ", %" #left2 ", %" #left3 "}, %" #right ", kept, 1, 1, %" #right_turned ";\n}" \
                         : KW_##n                                                                                     \
                         : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "l"(from_right), "r"(kept),        \
                           "n"((int)RIGHT_TURNED));                                                                   \
        }                                                                                                             \
    };
// Numbers of operands: seven from n / 2 on.
#define KW_GROUP_PRODUCTS(n, a, b, c, d, e, f, g)               \
    KW_GROUP_PRODUCT(__half, f16, n, a, b, c, d, e)             \
    KW_GROUP_PRODUCT(__nv_bfloat16, bf16, n, a, b, c, d, e)     \
    KW_REGISTER_PRODUCT(__half, f16, n, a, b, c, d, e, f, g)    \
    KW_REGISTER_PRODUCT(__nv_bfloat16, bf16, n, a, b, c, d, e, f, g)
KW_GROUP_PRODUCTS(32, 16, 17, 18, 19, 20, 21, 22)
KW_GROUP_PRODUCTS(64, 32, 33, 34, 35, 36, 37, 38)
KW_GROUP_PRODUCTS(128, 64, 65, 66, 67, 68, 69, 70)
KW_GROUP_PRODUCTS(192, 96, 97, 98, 99, 100, 101, 102)
KW_GROUP_PRODUCTS(256, 128, 129, 130, 131, 132, 133, 134)
#define KW_PAIRS_FOUR(i) "+r"(sums[i]), "+r"(sums[i + 1]), "+r"(sums[i + 2]), "+r"(sums[i + 3])
#define KW_PAIRS_64 KW_PAIRS_FOUR(0), KW_PAIRS_FOUR(4), KW_PAIRS_FOUR(8), KW_PAIRS_FOUR(12)
#define KW_PAIRS_128 KW_PAIRS_64, KW_PAIRS_FOUR(16), KW_PAIRS_FOUR(20), KW_PAIRS_FOUR(24), KW_PAIRS_FOUR(28)
#define KW_PAIRS_192 KW_PAIRS_128, KW_PAIRS_FOUR(32), KW_PAIRS_FOUR(36), KW_PAIRS_FOUR(40), KW_PAIRS_FOUR(44)
#define KW_PAIRS_256 KW_PAIRS_192, KW_PAIRS_FOUR(48), KW_PAIRS_FOUR(52), KW_PAIRS_FOUR(56), KW_PAIRS_FOUR(60)
#define KW_NAMES_96 KW_NAMES_64 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define KW_HALF_PRODUCT(n, names, left, right, keep, left_turned, right_turned)                                       \
    template <> struct HalfProduct<__half, n> {                                                                       \
        template <bool LEFT_TURNED, bool RIGHT_TURNED>                                                                \
        static __device__ __forceinline__ void multiply(unsigned int (&sums)[n / 4], unsigned long long from_left,    \
                                                        unsigned long long from_right, int kept) {                    \
            asm volatile("{\n.reg .pred kept;\nsetp.ne.b32 kept, %" #keep ", 0;\n"                                     \
                         "wgmma.mma_async.sync.aligned.m64n" #n "k16.f16.f16.f16 {" names "}, %" #left ", %" #right    \
                         ", kept, 1, 1, %" #left_turned ", %" #right_turned ";\n}"                                    \
                         : KW_PAIRS_##n                                                                               \
                         : "l"(from_left), "l"(from_right), "r"(kept), "n"((int)LEFT_TURNED), "n"((int)RIGHT_TURNED)); \
        }                                                                                                             \
    };
KW_HALF_PRODUCT(64, KW_NAMES_32, 16, 17, 18, 19, 20)
KW_HALF_PRODUCT(128, KW_NAMES_64, 32, 33, 34, 35, 36)
KW_HALF_PRODUCT(192, KW_NAMES_96, 48, 49, 50, 51, 52)
KW_HALF_PRODUCT(256, KW_NAMES_128, 64, 65, 66, 67, 68)
// Factors of eight bits lie along the depth, 32 positions an instruction: GROUP_STEP<true> as well.
#define KW_EIGHT_PRODUCT(n, left, right, keep)                                                                        \
    template <> struct GroupProduct<E4M3, n> {                                                                        \
        template <bool LEFT_TURNED, bool RIGHT_TURNED>                                                                \
        static __device__ __forceinline__ void multiply(float (&sums)[n / 2], unsigned long long from_left,           \
                                                        unsigned long long from_right, int kept) {                    \
            static_assert(!LEFT_TURNED && !RIGHT_TURNED, "factors of eight bits lie along the depth");                 \
            asm volatile("{\n.reg .pred kept;\nsetp.ne.b32 kept, %" #keep ", 0;\n"                                     \
                         "wgmma.mma_async.sync.aligned.m64n" #n "k32.f32.e4m3.e4m3 {" KW_NAMES_##n "}, %" #left ", %"  \
                         #right ", kept, 1, 1;\n}"                                                                    \
                         : KW_##n                                                                                     \
                         : "l"(from_left), "l"(from_right), "r"(kept));                                                \
        }                                                                                                             \
    };
KW_EIGHT_PRODUCT(64, 32, 33, 34)
KW_EIGHT_PRODUCT(128, 64, 65, 66)
KW_EIGHT_PRODUCT(192, 96, 97, 98)
#undef KW_EIGHT_PRODUCT
#undef KW_HALF_PRODUCT
#undef KW_PAIRS_FOUR
#undef KW_PAIRS_64
#undef KW_PAIRS_128
#undef KW_PAIRS_192
#undef KW_PAIRS_256
#undef KW_NAMES_96
#undef KW_GROUP_PRODUCTS
#undef KW_GROUP_PRODUCT
#undef KW_REGISTER_PRODUCT
#undef KW_FOUR
#undef KW_SIXTEEN
#undef KW_32
#undef KW_64
#undef KW_128
#undef KW_192
#undef KW_256
#undef KW_NAMES_32
#undef KW_NAMES_64
#undef KW_NAMES_128
#undef KW_NAMES_192
#undef KW_NAMES_256

// What this thread wrote to shared memory, by copies it has waited for or by itself, is there for
// products of a group and for bulk copies: they read past the path that threads write through.
__device__ __forceinline__ void written_for_groups() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// Registers that a thread of this warpgroup has from now on: fewer for one that only copies, more for
// those that multiply. All its warps say so; what the block started with must be enough.
template <int COUNT> __device__ __forceinline__ void fewer_registers() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT)); }
template <int COUNT> __device__ __forceinline__ void more_registers() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT)); }
#endif  // sm_90a
#endif  // __CUDACC__

#if !defined(__CUDACC__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
template <bool ALONG_DEPTH> constexpr int GROUP_STEP = ALONG_DEPTH ? 2 : 128;
template <class T, int N, bool LEFT_TURNED = false, bool RIGHT_TURNED = false>
__device__ __forceinline__ void multiply_group(float (&sums)[N / 2], unsigned long long left, unsigned long long right, int keep) {
    GroupProduct<T, N>::template multiply<LEFT_TURNED, RIGHT_TURNED>(sums, left, right, keep);
}
template <class T, int N, bool RIGHT_TURNED = false>
__device__ __forceinline__ void multiply_group(float (&sums)[N / 2], const unsigned int (&left)[4], unsigned long long right, int keep) {
    RegisterProduct<T, N>::template multiply<RIGHT_TURNED>(sums, left, right, keep);
}
template <class T, int N, bool LEFT_TURNED = false, bool RIGHT_TURNED = false>
__device__ __forceinline__ void multiply_group(unsigned int (&sums)[N / 4], unsigned long long left, unsigned long long right, int keep) {
    HalfProduct<T, N>::template multiply<LEFT_TURNED, RIGHT_TURNED>(sums, left, right, keep);
}
#endif

// What a thread keeps of BN columns a row of 64: a float each, or two fp16 sums a register.
template <class Sum, int BN> constexpr int SUMS = BN / 2;
template <int BN> constexpr int SUMS<unsigned int, BN> = BN / 4;
// Sum i as float, counted as products leave floats.
template <int COUNT> __device__ __forceinline__ float sum_at(const float (&sums)[COUNT], int i) { return sums[i]; }
template <int COUNT> __device__ __forceinline__ float sum_at(const unsigned int (&sums)[COUNT], int i) {
    const unsigned short bits = (unsigned short)(sums[i / 2] >> i % 2 * 16);
    __half half;
    memcpy(&half, &bits, 2);
    return to<float>(half);
}

#if !defined(__CUDACC__) || __CUDA_ARCH__ >= 800
// A tile of one factor in shared memory: SIDE rows of the left or columns of the right factor, and
// DEPTH positions along which products are summed, 16-bit elements in 16-byte chunks. Chunks lie
// along the depth, or along the side in panels of at most 64, whichever is how the factor lies in
// memory; `load_matrices` turns what lies along the side.
template <int SIDE, int DEPTH, bool ALONG_DEPTH> struct FactorTile {
    static constexpr int CHUNKS = ALONG_DEPTH ? DEPTH / 8 : SIDE < 64 ? SIDE / 8 : 8;
    static constexpr int BYTES = SIDE * DEPTH * 2;
    // The byte where the chunk with an element begins.
    static __device__ __forceinline__ int at(int side, int depth) {
        if constexpr (ALONG_DEPTH) {
            return swizzled<CHUNKS>(side, depth / 8);
        } else {
            const int panel = side / (CHUNKS * 8), chunk = side / 8 % CHUNKS;
            return panel * (DEPTH * CHUNKS * 16) + swizzled<CHUNKS>(depth, chunk);
        }
    }
    // The left factor's 16 x 16 elements from (side, depth) on, as `multiply` takes them.
    static __device__ __forceinline__ void left(unsigned int (&into)[4], const unsigned char* tile, int side, int depth) {
        const int lane = threadIdx.x % 32;
        if constexpr (ALONG_DEPTH) {
            load_matrices<false>(into, tile + at(side + lane % 16, depth + lane / 16 * 8));
        } else {
            load_matrices<true>(into, tile + at(side + lane / 8 % 2 * 8, depth + lane / 16 * 8 + lane % 8));
        }
    }
    // The right factor's 16 x 16: two registers for the first eight columns, two for the others.
    static __device__ __forceinline__ void right(unsigned int (&into)[4], const unsigned char* tile, int side, int depth) {
        const int lane = threadIdx.x % 32;
        if constexpr (ALONG_DEPTH) {
            load_matrices<false>(into, tile + at(side + lane / 16 * 8 + lane % 8, depth + lane / 8 % 2 * 8));
        } else {
            load_matrices<true>(into, tile + at(side + lane / 16 * 8, depth + lane / 8 % 2 * 8 + lane % 8));
        }
    }
};
#endif

// Eight neighbouring 16-bit elements, or truth values, as four words of a pair each; aligned.
template <class T> __device__ __forceinline__ void load_pairs(unsigned int (&pairs)[4], const T* from) {
    static_assert(sizeof(T) == 2, "of other types a pair is no word");
    const Vec<T, 8> eight = load<DEFAULT, 8>(from);
    memcpy(pairs, &eight, 16);
}
__device__ __forceinline__ void load_pairs(unsigned int (&pairs)[4], const bool* from) {
    const Vec<bool, 8> eight = load<DEFAULT, 8>(from);
    unsigned int words[2];
    memcpy(words, &eight, 8);
#pragma unroll
    for (int i = 0; i < 4; ++i) pairs[i] = words[i / 2] >> i % 2 * 16 & 0xffff;
}
// Pairs of four neighbouring lanes, turned: lane t gets pair t of lane 0 to lane 3. What lanes have
// read eight at once is then where products leave their results, in blocks of eight columns.
__device__ __forceinline__ void turn_pairs(unsigned int (&pairs)[4]) {
    const bool odd = threadIdx.x & 1, upper = threadIdx.x & 2;
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
        const unsigned int low = pairs[i], high = pairs[i + 1], other = shuffle_xor(odd ? low : high, 1);
        pairs[i] = odd ? other : low;
        pairs[i + 1] = odd ? high : other;
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        const unsigned int low = pairs[i], high = pairs[i + 2], other = shuffle_xor(upper ? low : high, 2);
        pairs[i] = upper ? other : low;
        pairs[i + 2] = upper ? high : other;
    }
}

// Columns that products leave with four neighbouring lanes: lane t holds the pairs
// at columns 2 t of blocks 0 to 3, `values[2 * block]` and the next. Afterwards it holds all eight
// columns of block t. All lanes of the warp take part.
__device__ __forceinline__ void whole_blocks(float (&values)[8]) {
    const bool odd = threadIdx.x & 1, upper = threadIdx.x & 2;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const int at = i / 2 * 4 + i % 2;  // of block 0 with block 1, then of block 2 with block 3
        const float low = values[at], high = values[at + 2], other = shuffle_xor(odd ? low : high, 1);
        values[at] = odd ? other : low;
        values[at + 2] = odd ? high : other;
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const float low = values[i], high = values[i + 4], other = shuffle_xor(upper ? low : high, 2);
        values[i] = upper ? other : low;
        values[i + 4] = upper ? high : other;
    }
}

}  // namespace kw
