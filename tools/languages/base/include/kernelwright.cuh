// What every CUDA kernel of a candidate may lean on: limits, conversions, vector accesses, math
// with PyTorch's corner cases, reductions over warps, blocks and clusters, scans, and the few
// machine instructions that C++ has no word for.
//
// NVRTC has no host headers, so fixed-width integers and limits are given here. The header needs
// only the CUDA built-ins; a plain C++ compiler can read it after a header that supplies those,
// which is how kernels are run on a machine without a GPU in tests.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#ifdef __CUDACC__
using int8_t = signed char;
using uint8_t = unsigned char;
using int16_t = short;
using uint16_t = unsigned short;
using int32_t = int;
using uint32_t = unsigned int;
using int64_t = long long;
using uint64_t = unsigned long long;
#endif

#ifndef INFINITY
#define INFINITY __int_as_float(0x7f800000)
#endif
#ifndef NAN
#define NAN __int_as_float(0x7fffffff)
#endif
#ifndef FLT_MAX
#define FLT_MAX 3.402823466e+38f
#endif
#ifndef FLT_MIN
#define FLT_MIN 1.175494351e-38f
#endif
#ifndef DBL_MAX
#define DBL_MAX 1.7976931348623158e+308
#endif

namespace kw {

// ---- limits ------------------------------------------------------------------------------

// The identity of max (`least`) and of min (`greatest`).
template <class T> __device__ __forceinline__ T least();
template <> __device__ __forceinline__ float least<float>() { return -INFINITY; }
template <> __device__ __forceinline__ double least<double>() { return -(double)INFINITY; }
template <> __device__ __forceinline__ long long least<long long>() { return -9223372036854775807LL - 1; }
template <> __device__ __forceinline__ bool least<bool>() { return false; }
template <class T> __device__ __forceinline__ T greatest();
template <> __device__ __forceinline__ float greatest<float>() { return INFINITY; }
template <> __device__ __forceinline__ double greatest<double>() { return (double)INFINITY; }
template <> __device__ __forceinline__ long long greatest<long long>() { return 9223372036854775807LL; }
template <> __device__ __forceinline__ bool greatest<bool>() { return true; }

template <class T> __device__ __forceinline__ bool is_nan(T x) { return x != x; }

// ---- conversions: storage types to the types computed in, and back ---------------------------

template <class To, class From> struct Convert {
    static __device__ __forceinline__ To from(From x) { return static_cast<To>(x); }
};
template <class To> struct Convert<To, __half> {
    static __device__ __forceinline__ To from(__half x) { return static_cast<To>(__half2float(x)); }
};
template <class To> struct Convert<To, __nv_bfloat16> {
    static __device__ __forceinline__ To from(__nv_bfloat16 x) { return static_cast<To>(__bfloat162float(x)); }
};
template <class From> struct Convert<__half, From> {
    static __device__ __forceinline__ __half from(From x) { return __float2half_rn(static_cast<float>(x)); }
};
template <class From> struct Convert<__nv_bfloat16, From> {
    static __device__ __forceinline__ __nv_bfloat16 from(From x) { return __float2bfloat16_rn(static_cast<float>(x)); }
};
template <> struct Convert<__half, double> {
    static __device__ __forceinline__ __half from(double x) { return __double2half(x); }
};
template <> struct Convert<__nv_bfloat16, double> {
    static __device__ __forceinline__ __nv_bfloat16 from(double x) { return __double2bfloat16(x); }
};
template <> struct Convert<__half, __half> {
    static __device__ __forceinline__ __half from(__half x) { return x; }
};
template <> struct Convert<__nv_bfloat16, __nv_bfloat16> {
    static __device__ __forceinline__ __nv_bfloat16 from(__nv_bfloat16 x) { return x; }
};
// Floats go to the narrow integers by way of a wide one, as PyTorch does, so that -1 is 255.
template <> struct Convert<unsigned char, float> {
    static __device__ __forceinline__ unsigned char from(float x) { return static_cast<unsigned char>(static_cast<long long>(x)); }
};
template <> struct Convert<unsigned char, double> {
    static __device__ __forceinline__ unsigned char from(double x) { return static_cast<unsigned char>(static_cast<long long>(x)); }
};

template <class To, class From> __device__ __forceinline__ To to(From x) { return Convert<To, From>::from(x); }

// ---- memory --------------------------------------------------------------------------------

// How a load or store treats the caches: DEFAULT keeps lines as usual (loads through the
// read-only path), STREAM marks them first to evict, for data that is touched once.
constexpr int DEFAULT = 0;
constexpr int STREAM = 1;
// Of copies only: hold lines as long as can be, for data that will be read again.
constexpr int RETAIN = 2;

template <int BYTES> struct Word;
template <> struct Word<1> { using type = unsigned char; };
template <> struct Word<2> { using type = unsigned short; };
template <> struct Word<4> { using type = unsigned int; };
template <> struct Word<8> { using type = uint2; };
template <> struct Word<16> { using type = uint4; };

// N consecutive elements, aligned for the widest access that fits (at most 16 bytes).
template <class T, int N> struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) Vec {
    T data[N];
    __device__ __forceinline__ T& operator[](int k) { return data[k]; }
    __device__ __forceinline__ const T& operator[](int k) const { return data[k]; }
};

// N elements from an address aligned to min(16, N * sizeof(T)) bytes; nobody may write there
// while the kernel runs (for that, see `load_shared_with_others`).
template <int CACHE, int N, class T> __device__ __forceinline__ Vec<T, N> load(const T* at) {
    constexpr int BYTES = sizeof(T) * N;
    constexpr int WIDTH = BYTES < 16 ? BYTES : 16;
    using W = typename Word<WIDTH>::type;
    Vec<T, N> out;
    const W* from = reinterpret_cast<const W*>(at);
#pragma unroll
    for (int i = 0; i < BYTES / WIDTH; ++i) {
        const W word = CACHE == STREAM ? __ldcs(from + i) : __ldg(from + i);
        memcpy(reinterpret_cast<char*>(&out) + i * WIDTH, &word, WIDTH);
    }
    return out;
}

template <int CACHE, class T> __device__ __forceinline__ T load_one(const T* at) {
    return load<CACHE, 1>(at)[0];
}

// The same where `holds`; zeros where not, from no address. Whole words are chosen, not elements.
template <int CACHE, int N, class T> __device__ __forceinline__ Vec<T, N> load_if(bool holds, const T* at) {
    constexpr int BYTES = sizeof(T) * N;
    constexpr int WIDTH = BYTES < 16 ? BYTES : 16;
    using W = typename Word<WIDTH>::type;
    Vec<T, N> out;
    const W* from = reinterpret_cast<const W*>(at);
#pragma unroll
    for (int i = 0; i < BYTES / WIDTH; ++i) {
        W word = {};
        if (holds) word = CACHE == STREAM ? __ldcs(from + i) : __ldg(from + i);
        memcpy(reinterpret_cast<char*>(&out) + i * WIDTH, &word, WIDTH);
    }
    return out;
}

// Elements in another type; of bfloat16 two at a time, an instruction each, which the compiler does
// not repeat where it is used, as it does shifts.
template <class To, class From, int N> __device__ __forceinline__ Vec<To, N> widened(const Vec<From, N>& values) {
    Vec<To, N> out;
#pragma unroll
    for (int k = 0; k < N; ++k) out[k] = to<To>(values[k]);
    return out;
}
template <class To, int N> __device__ __forceinline__ Vec<float, N> widened(const Vec<__nv_bfloat16, N>& values) {
    Vec<float, N> out;
    if constexpr (N % 2 == 0) {
#pragma unroll
        for (int k = 0; k < N; k += 2) {
            unsigned int word;
            memcpy(&word, &values.data[k], 4);
            const unsigned int parts[2] = {__byte_perm(word, 0, 0x1044), __byte_perm(word, 0, 0x3244)};
            memcpy(&out.data[k], parts, 8);
        }
    } else {
#pragma unroll
        for (int k = 0; k < N; ++k) out[k] = to<float>(values[k]);
    }
    return out;
}

template <int CACHE, int N, class T> __device__ __forceinline__ void store(T* at, const Vec<T, N>& values) {
    constexpr int BYTES = sizeof(T) * N;
    constexpr int WIDTH = BYTES < 16 ? BYTES : 16;
    using W = typename Word<WIDTH>::type;
    W* into = reinterpret_cast<W*>(at);
#pragma unroll
    for (int i = 0; i < BYTES / WIDTH; ++i) {
        W word;
        memcpy(&word, reinterpret_cast<const char*>(&values) + i * WIDTH, WIDTH);
        if (CACHE == STREAM) {
            __stcs(into + i, word);
        } else {
            into[i] = word;
        }
    }
}

// A value of 4-byte words, past the first-level cache or through it as what nobody writes any more.
// It is read in the largest words that its size is a multiple of: 32 lanes that each read four words
// far apart ask the cache for 128 places, and for 32 where the four are one. `at` is an element of an
// array that lies on a multiple of 16 bytes.
template <bool WRITTEN_NOW, class T> __device__ __forceinline__ T load_words(const T* at) {
    constexpr int WIDTH = sizeof(T) % 16 == 0 ? 16 : sizeof(T) % 8 == 0 ? 8 : 4;
    using W = typename Word<WIDTH>::type;
    T out;
    const W* from = reinterpret_cast<const W*>(at);
#pragma unroll
    for (int i = 0; i < (int)(sizeof(T) / WIDTH); ++i) {
        const W word = WRITTEN_NOW ? __ldcg(from + i) : __ldg(from + i);
        memcpy(reinterpret_cast<char*>(&out) + WIDTH * i, &word, WIDTH);
    }
    return out;
}

// A value that another block wrote during this launch: past the first-level cache, which is not
// coherent. Its size must be a multiple of 4 bytes.
template <class T> __device__ __forceinline__ T load_shared_with_others(const T* at) {
    return load_words<true>(at);
}

// What an earlier launch left: read-only here, so that reads may move ahead of writes.
template <class T> __device__ __forceinline__ T load_finished(const T* at) {
    return load_words<false>(at);
}

// Combines every STEP-th of the parts from `first` on that an earlier launch left, `apart` from each
// other. Some are read before the first is combined: a division branches, and no read moves ahead of
// a branch. Large parts are read two or four at a time, as registers are few where blocks have many
// threads.
template <int STEP, class P>
__device__ __forceinline__ void combine_finished(P& into, const P* parts, int first, int end, long long apart) {
    constexpr int AHEAD = sizeof(P) > 32 ? 2 : sizeof(P) > 16 ? 4 : 8;
    for (int begin = first; begin < end; begin += AHEAD * STEP) {
        P found[AHEAD];
#pragma unroll
        for (int u = 0; u < AHEAD; ++u) {
            const int at = begin + u * STEP;
            if (at < end) found[u] = load_finished(parts + at * apart);
        }
#pragma unroll
        for (int u = 0; u < AHEAD; ++u) {
            if (begin + u * STEP < end) into.combine(found[u]);
        }
    }
}

// Has the last-level cache fetch the line of this address, which will be read soon.
__device__ __forceinline__ void prefetch([[maybe_unused]] const void* at) {
#ifdef __CUDACC__
    asm volatile("prefetch.global.L2 [%0];" ::"l"(at));
#endif
}

// Raw room for N values of T in shared memory, whatever T's constructors are.
template <class T, int N> struct Slots {
    alignas(16) unsigned char bytes[N * sizeof(T)];
    __device__ __forceinline__ T* data() { return reinterpret_cast<T*>(bytes); }
};

#ifdef __CUDACC__
// A block has so many threads along x: what a compiler is not told it does not use, and decodes
// positions of threads that are not there.
template <int THREADS> __device__ __forceinline__ void block_of() { __builtin_assume(threadIdx.x < THREADS); }

// The block's dynamic shared memory.
__device__ __forceinline__ unsigned char* dynamic_shared() {
    extern __shared__ __align__(128) unsigned char kw_dynamic_shared[];
    return kw_dynamic_shared;
}

// A copy from global to shared memory that does not pass through registers: 4, 8 or 16 bytes.
template <int BYTES> __device__ __forceinline__ void copy_async(void* shared, const void* global) {
    const unsigned int into = (unsigned int)__cvta_generic_to_shared(shared);
    if constexpr (BYTES == 16) {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(into), "l"(global) : "memory");
    } else {
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(into), "l"(global), "n"(BYTES) : "memory");
    }
}
// Closes the group of copies this thread has started.
__device__ __forceinline__ void copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits until at most PENDING of this thread's groups are still under way.
template <int PENDING> __device__ __forceinline__ void copy_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

// A counter in global memory, read so that what was written before it was raised is seen.
__device__ __forceinline__ unsigned int acquire(const unsigned int* counter) {
    unsigned int value;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(counter) : "memory");
    return value;
}

// Lets others run while this thread waits for them.
__device__ __forceinline__ void pause() { __nanosleep(32); }

// A state and the number of its step in one word of global memory, which other blocks of the same
// launch see whole or not at all; each of them asks until the number is the one it waits for.
__device__ __forceinline__ void tell(unsigned long long* at, float state, int step) {
    const unsigned long long word = (unsigned long long)(unsigned int)step << 32 | __float_as_uint(state);
    asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(at), "l"(word) : "memory");
}
__device__ __forceinline__ unsigned long long ask(const unsigned long long* at) {
    unsigned long long word;
    asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(word) : "l"(at) : "memory");
    return word;
}
// Waits until all blocks of the grid run, for none of them ends before the others have begun; `present`
// counts from zero. A device that cannot run them together ends the launch with an error: nobody hangs.
__device__ __forceinline__ void wait_for_grid(unsigned int* present) {
    unsigned long long begun, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begun));
    atomicAdd(present, 1u);
    while (acquire(present) < gridDim.x) {
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
        if (now - begun > 2000000000ULL) asm volatile("trap;");
        pause();
    }
}
__device__ __forceinline__ int told_step(unsigned long long word) { return (int)(word >> 32); }
__device__ __forceinline__ float told_state(unsigned long long word) { return __uint_as_float((unsigned int)word); }

#if __CUDA_ARCH__ >= 800
__device__ __forceinline__ unsigned int shared_address(const void* shared) {
    return (unsigned int)__cvta_generic_to_shared(shared);
}
// How long the L2 should hold what a copy reads: DEFAULT, STREAM or RETAIN.
template <int CACHE> __device__ __forceinline__ unsigned long long cache_policy() {
    unsigned long long policy;
    if constexpr (CACHE == RETAIN) {
        asm volatile("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
    } else if constexpr (CACHE == STREAM) {
        asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    } else {
        asm volatile("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(policy));
    }
    return policy;
}
// The address as one register of the thread's own. ptxas 13.0 joins a uniform part of the address
// of a copy under a cache policy to the instruction, which then is one that no device knows; this
// zero, which it cannot see through, keeps the address whole.
__device__ __forceinline__ unsigned int whole_address(const void* shared) {
    unsigned int lane, before;
    asm("mov.u32 %0, %%laneid;" : "=r"(lane));
    asm("mov.u32 %0, %%lanemask_lt;" : "=r"(before));
    return shared_address(shared) ^ (before >> lane);
}
// `copy_async` under a cache policy.
template <int BYTES> __device__ __forceinline__ void copy_async(void* shared, const void* global, unsigned long long policy) {
    const unsigned int into = whole_address(shared);
    if constexpr (BYTES == 16) {
        asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;" ::"r"(into), "l"(global), "l"(policy) : "memory");
    } else {
        asm volatile("cp.async.ca.shared.global.L2::cache_hint [%0], [%1], %2, %3;" ::"r"(into), "l"(global), "n"(BYTES), "l"(policy) : "memory");
    }
}
#endif

#if __CUDA_ARCH__ >= 900
__device__ __forceinline__ void cluster_sync() {
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}
__device__ __forceinline__ int cluster_rank() {
    unsigned int rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return (int)rank;
}
// Phase barriers in shared memory, each a 64-bit word. A phase is over when `arrivals` threads have
// arrived and every byte that was announced has come; the phases have parities 0, 1, 0, ...
__device__ __forceinline__ void barrier_init(unsigned long long* barrier, unsigned int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
}
// After the thread that initialised them, before a `__syncthreads` and the first copy.
__device__ __forceinline__ void barriers_ready() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
__device__ __forceinline__ void barrier_arrive(unsigned long long* barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}
// One arrival, and `bytes` that copies will bring in this phase.
__device__ __forceinline__ void barrier_expect(unsigned long long* barrier, unsigned int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes) : "memory");
}
// Waits for the end of the phase of that parity; a fresh barrier lets parity 1 through at once.
__device__ __forceinline__ void barrier_wait(unsigned long long* barrier, unsigned int parity) {
    unsigned int over = 0;
    while (over == 0) {
        asm volatile(
            "{\n.reg .pred over;\nmbarrier.try_wait.parity.shared::cta.b64 over, [%1], %2;\nselp.u32 %0, 1, 0, over;\n}"
            : "=r"(over) : "r"(shared_address(barrier)), "r"(parity) : "memory");
    }
}

// Stores a value into the shared memory of a block of the cluster, and tells the barrier there that its
// four bytes have come; no thread waits for it. `at` and `barrier` are this block's own places.
__device__ __forceinline__ void store_at(float* at, float value, unsigned long long* barrier, int rank) {
    asm volatile(
        "{\n.reg .b32 there, told;\nmapa.shared::cluster.u32 there, %0, %3;\nmapa.shared::cluster.u32 told, %1, %3;\n"
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [there], %2, [told];\n}"
        ::"r"(shared_address(at)), "r"(shared_address(barrier)), "r"(__float_as_uint(value)), "r"(rank) : "memory");
}

// Copies a run of bytes from global to shared memory without any thread's help, and tells the
// barrier. One thread asks for it; addresses and size are multiples of 16 bytes.
__device__ __forceinline__ void bulk_load(void* shared, const void* global, unsigned int bytes, unsigned long long* barrier, unsigned long long policy) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;"
        ::"r"(shared_address(shared)), "l"(global), "r"(bytes), "r"(shared_address(barrier)), "l"(policy) : "memory");
}

// The same variable of shared memory in another block of the cluster.
template <class T> __device__ __forceinline__ const T* of_block(const T* mine, int rank) {
    unsigned long long address;
    asm volatile("mapa.u64 %0, %1, %2;" : "=l"(address) : "l"(mine), "r"(rank));
    return reinterpret_cast<const T*>(address);
}
#endif

__device__ __forceinline__ float maximum_raw(float a, float b) {
    float out;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(out) : "f"(a), "f"(b));
    return out;
}
__device__ __forceinline__ float minimum_raw(float a, float b) {
    float out;
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(out) : "f"(a), "f"(b));
    return out;
}
__device__ __forceinline__ float exp2_raw(float x) {
    float out;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(x));
    return out;
}
// Within one unit in the last place, in one instruction where a division takes a dozen.
__device__ __forceinline__ float reciprocal_raw(float x) {
    float out;
    asm("rcp.approx.f32 %0, %1;" : "=f"(out) : "f"(x));
    return out;
}
#endif  // __CUDACC__

// ---- math, with PyTorch's corner cases --------------------------------------------------------

// NaN wins, as in torch.maximum.
template <class T> __device__ __forceinline__ T maximum(T a, T b) { return a != a || a > b ? a : b; }
template <class T> __device__ __forceinline__ T minimum(T a, T b) { return a != a || a < b ? a : b; }
template <> __device__ __forceinline__ float maximum(float a, float b) { return maximum_raw(a, b); }
template <> __device__ __forceinline__ float minimum(float a, float b) { return minimum_raw(a, b); }

#define KW_UNARY(name, single, twice)                                           \
    __device__ __forceinline__ float name(float x) { return single(x); }        \
    __device__ __forceinline__ double name(double x) { return twice(x); }
KW_UNARY(exp, ::expf, ::exp)
KW_UNARY(exp2, ::exp2f, ::exp2)
KW_UNARY(expm1, ::expm1f, ::expm1)
KW_UNARY(log, ::logf, ::log)
KW_UNARY(log2, ::log2f, ::log2)
KW_UNARY(log10, ::log10f, ::log10)
KW_UNARY(log1p, ::log1pf, ::log1p)
KW_UNARY(sqrt, ::sqrtf, ::sqrt)
KW_UNARY(sin, ::sinf, ::sin)
KW_UNARY(cos, ::cosf, ::cos)
KW_UNARY(tan, ::tanf, ::tan)
KW_UNARY(asin, ::asinf, ::asin)
KW_UNARY(acos, ::acosf, ::acos)
KW_UNARY(atan, ::atanf, ::atan)
KW_UNARY(sinh, ::sinhf, ::sinh)
KW_UNARY(cosh, ::coshf, ::cosh)
KW_UNARY(tanh, ::tanhf, ::tanh)
KW_UNARY(asinh, ::asinhf, ::asinh)
KW_UNARY(acosh, ::acoshf, ::acosh)
KW_UNARY(atanh, ::atanhf, ::atanh)
KW_UNARY(erf, ::erff, ::erf)
KW_UNARY(erfc, ::erfcf, ::erfc)
KW_UNARY(lgamma, ::lgammaf, ::lgamma)
KW_UNARY(floor, ::floorf, ::floor)
KW_UNARY(ceil, ::ceilf, ::ceil)
KW_UNARY(round, ::rintf, ::rint)  // halves go to the even neighbour
KW_UNARY(trunc, ::truncf, ::trunc)
#undef KW_UNARY
// x (1 + erf(x / sqrt 2)) / 2, off by at most 1.7e-7 of the larger of 1 and the result. The share of x
// that is missing (or, below zero, left) is 2 to a polynomial's power wherever x is: half of what erf
// costs, without a branch, and small results keep their digits.
__device__ __forceinline__ float gelu(float x) {
    const float t = ::fabsf(x);
    float p = ::fmaf(-2.77308541e-08f, t, 8.34424952e-07f);
    p = ::fmaf(p, t, -1.07376763e-05f);
    p = ::fmaf(p, t, 7.5229771e-05f);
    p = ::fmaf(p, t, -0.00027549488f);
    p = ::fmaf(p, t, -9.20994353e-06f);
    p = ::fmaf(p, t, 0.00695942622f);
    p = ::fmaf(p, t, -0.0524507314f);
    p = ::fmaf(p, t, -0.459217459f);
    p = ::fmaf(p, t, -1.15110457f);
    const float missing = exp2_raw(::fmaf(p, t, -1.0f));
    return x * (x < 0.0f ? missing : 1.0f - missing);
}
// tanh, off by at most 2e-7 of one, in two special functions and without a branch: for what is rounded
// to a half type anyway.
__device__ __forceinline__ float quick_tanh(float x) {
    return ::fmaf(-2.0f, reciprocal_raw(1.0f + exp2_raw(2.885390081777927f * x)), 1.0f);
}
// Rounding an integer is the identity.
__device__ __forceinline__ long long floor(long long x) { return x; }
__device__ __forceinline__ long long ceil(long long x) { return x; }
__device__ __forceinline__ long long round(long long x) { return x; }
__device__ __forceinline__ long long trunc(long long x) { return x; }

__device__ __forceinline__ float rsqrt(float x) { return ::rsqrtf(x); }
__device__ __forceinline__ double rsqrt(double x) { return 1.0 / ::sqrt(x); }
__device__ __forceinline__ float abs(float x) { return ::fabsf(x); }
__device__ __forceinline__ double abs(double x) { return ::fabs(x); }
__device__ __forceinline__ long long abs(long long x) { return x < 0 ? -x : x; }
__device__ __forceinline__ bool abs(bool x) { return x; }
template <class T> __device__ __forceinline__ T sign(T x) { return static_cast<T>((T(0) < x) - (x < T(0))); }
__device__ __forceinline__ bool sign(bool x) { return x; }
// NaN stays NaN, as in torch.relu.
template <class T> __device__ __forceinline__ T relu(T x) { return x < T(0) ? T(0) : x; }
template <class T> __device__ __forceinline__ T sigmoid(T x) { return T(1) / (T(1) + exp(-x)); }
// The sum is at least one, so that only its rounding and the reciprocal's are left.
template <> __device__ __forceinline__ float sigmoid(float x) { return reciprocal_raw(1.0f + exp(-x)); }
template <class T> __device__ __forceinline__ bool is_infinite(T x) { return x == greatest<T>() || x == least<T>(); }
__device__ __forceinline__ bool is_infinite(long long) { return false; }
__device__ __forceinline__ bool is_infinite(bool) { return false; }

__device__ __forceinline__ float pow(float a, float b) { return ::powf(a, b); }
__device__ __forceinline__ double pow(double a, double b) { return ::pow(a, b); }
__device__ __forceinline__ long long pow(long long a, long long b) {
    // Negative exponents leave only the units, as in ATen's integer power.
    if (b < 0) return a == 1 ? 1 : (a == -1 ? (b % 2 ? -1 : 1) : 0);
    unsigned long long result = 1, base = (unsigned long long)a;
    for (; b; b >>= 1, base *= base) {
        if (b & 1) result *= base;
    }
    return (long long)result;
}
__device__ __forceinline__ float atan2(float a, float b) { return ::atan2f(a, b); }
__device__ __forceinline__ double atan2(double a, double b) { return ::atan2(a, b); }
__device__ __forceinline__ float hypot(float a, float b) { return ::hypotf(a, b); }
__device__ __forceinline__ double hypot(double a, double b) { return ::hypot(a, b); }
__device__ __forceinline__ float copysign(float a, float b) { return ::copysignf(a, b); }
__device__ __forceinline__ double copysign(double a, double b) { return ::copysign(a, b); }
__device__ __forceinline__ float fmod(float a, float b) { return ::fmodf(a, b); }
__device__ __forceinline__ double fmod(double a, double b) { return ::fmod(a, b); }
__device__ __forceinline__ long long fmod(long long a, long long b) { return b == 0 ? 0 : a % b; }
// The result takes the divisor's sign, as in Python.
template <class T> __device__ __forceinline__ T remainder(T a, T b) {
    const T rest = fmod(a, b);
    return rest != T(0) && ((rest < T(0)) != (b < T(0))) ? rest + b : rest;
}
// ATen's floor division: exact where a / b rounds up to the next integer.
template <class T> __device__ __forceinline__ T floordiv(T a, T b) {
    if (b == T(0)) return a / b;
    const T rest = fmod(a, b);
    T quotient = (a - rest) / b;
    if (rest != T(0) && ((b < T(0)) != (rest < T(0)))) quotient -= T(1);
    if (quotient == T(0)) return copysign(T(0), a / b);
    T floored = floor(quotient);
    if (quotient - floored > T(0.5)) floored += T(1);
    return floored;
}
template <> __device__ __forceinline__ long long floordiv(long long a, long long b) {
    if (b == 0) return 0;
    const long long quotient = a / b;
    return a % b != 0 && ((a < 0) != (b < 0)) ? quotient - 1 : quotient;
}
template <class T> __device__ __forceinline__ T truncdiv(T a, T b) { return trunc(a / b); }
template <> __device__ __forceinline__ long long truncdiv(long long a, long long b) { return b == 0 ? 0 : a / b; }
__device__ __forceinline__ long long shift_left(long long a, long long b) {
    return b < 0 || b > 63 ? 0 : (long long)((unsigned long long)a << b);
}
__device__ __forceinline__ long long shift_right(long long a, long long b) {
    return a >> (b < 0 || b > 63 ? 63 : b);
}
// a / b where b is the same for a whole row: one reciprocal for the row and two products an
// element (an error of 1.5 units in the last place). The power of two keeps the reciprocal of
// very large and very small divisors in the normal range.
__device__ __forceinline__ float divide_by_row(float a, float b) {
    const float size = ::fabsf(b);
    const float scale = size < 1e-37f ? 18446744073709551616.0f : size > 1e37f ? 5.421010862427522e-20f : 1.0f;
    const float inverse = 1.0f / (b * scale);
    return (a * scale) * inverse;
}
// a / b by an inverse of b that is off by a unit in the last place, refined once: at most one unit off.
// Where the rest is not finite (divisors of zero and infinity, NaN) the first quotient is the answer.
__device__ __forceinline__ float quotient(float a, float b, float inverse) {
    const float first = a * inverse, rest = ::fmaf(-first, b, a);
    return ::fabsf(rest) < INFINITY ? ::fmaf(rest, inverse, first) : first;
}
// The same without an inverse. The division of IEEE 754 has a branch for rare operands, and no two of
// them overlap; what follows a product of matrices has few warps, and waits for each of them. The power
// of two keeps the inverse in the normal range, and what it does to a the result does not see.
__device__ __forceinline__ float quotient(float a, float b) {
    const float size = ::fabsf(b);
    const float scale = size < 7.8886091e-31f ? 1073741824.0f : size > 1.2676506e30f ? 9.3132257e-10f : 1.0f;
    return quotient(a * scale, b * scale, reciprocal_raw(b * scale));
}
// A product that is rounded by itself: no compiler fuses it into a sum or a difference.
__device__ __forceinline__ float product(float a, float b) { return __fmul_rn(a, b); }
__device__ __forceinline__ double product(double a, double b) { return __dmul_rn(a, b); }
__device__ __forceinline__ float multiply_add(float a, float b, float c) { return ::fmaf(a, b, c); }
__device__ __forceinline__ double multiply_add(double a, double b, double c) { return ::fma(a, b, c); }
__device__ __forceinline__ long long multiply_add(long long a, long long b, long long c) { return a * b + c; }

// ---- what a reduction keeps of a row -----------------------------------------------------------
//
// A partial starts as the identity, takes N values at once (so that their sums form a tree and
// divisions are shared), and combines with another partial. Sizes are multiples of 4 bytes.

template <int N, class T> __device__ __forceinline__ T tree_sum(const T* v) {
    if constexpr (N == 1) {
        return v[0];
    } else {
        return tree_sum<N / 2>(v) + tree_sum<N - N / 2>(v + N / 2);
    }
}

// A sum that carries what rounding took away (Knuth's two-sum), so that the order in which
// blocks and lanes combine costs no accuracy.
template <class T> struct Sum {
    T high = 0, low = 0;
    __device__ __forceinline__ void add_one(T x) {
        const T total = high + x;
        const T seen = total - high;
        low += (high - (total - seen)) + (x - seen);
        high = total;
    }
    template <int N> __device__ __forceinline__ void add(const T* v) { add_one(tree_sum<N>(v)); }
    __device__ __forceinline__ void combine(const Sum& o) {
        add_one(o.high);
        low += o.low;
    }
    // An infinite sum has no remainder: the compensation is then NaN and is dropped.
    __device__ __forceinline__ T value() const { return low == low ? high + low : high; }
};
template <> struct Sum<long long> {
    long long total = 0;
    template <int N> __device__ __forceinline__ void add(const long long* v) { total += tree_sum<N>(v); }
    __device__ __forceinline__ void combine(const Sum& o) { total += o.total; }
    __device__ __forceinline__ long long value() const { return total; }
};

template <class T> struct Product {
    T total = 1;
    template <int N> __device__ __forceinline__ void add(const T* v) {
#pragma unroll
        for (int i = 0; i < N; ++i) total *= v[i];
    }
    __device__ __forceinline__ void combine(const Product& o) { total *= o.total; }
    __device__ __forceinline__ T value() const { return total; }
};

template <class T> struct Maximum {
    T best = least<T>();
    template <int N> __device__ __forceinline__ void add(const T* v) {
#pragma unroll
        for (int i = 0; i < N; ++i) best = maximum(best, v[i]);
    }
    __device__ __forceinline__ void combine(const Maximum& o) { best = maximum(best, o.best); }
    __device__ __forceinline__ T value() const { return best; }
};
template <class T> struct Minimum {
    T best = greatest<T>();
    template <int N> __device__ __forceinline__ void add(const T* v) {
#pragma unroll
        for (int i = 0; i < N; ++i) best = minimum(best, v[i]);
    }
    __device__ __forceinline__ void combine(const Minimum& o) { best = minimum(best, o.best); }
    __device__ __forceinline__ T value() const { return best; }
};

struct Any {
    int seen = 0;
    template <int N> __device__ __forceinline__ void add(const bool* v) {
#pragma unroll
        for (int i = 0; i < N; ++i) seen |= v[i];
    }
    __device__ __forceinline__ void combine(const Any& o) { seen |= o.seen; }
    __device__ __forceinline__ bool value() const { return seen != 0; }
};
struct All {
    int kept = 1;
    template <int N> __device__ __forceinline__ void add(const bool* v) {
#pragma unroll
        for (int i = 0; i < N; ++i) kept &= v[i];
    }
    __device__ __forceinline__ void combine(const All& o) { kept &= o.kept; }
    __device__ __forceinline__ bool value() const { return kept != 0; }
};

// The first position of the extremum; a NaN is more extreme than any number. `at` is -1 while
// nothing was seen.
template <class T, class I, bool LARGEST> struct ArgExtremum {
    T best = T(0);
    I at = -1;
    static __device__ __forceinline__ bool beats(T a, T b) {
        return LARGEST ? (a > b || (a != a && b == b)) : (a < b || (a != a && b == b));
    }
    template <int N> __device__ __forceinline__ void add(const T* v, const I* positions) {
#pragma unroll
        for (int i = 0; i < N; ++i) take(v[i], positions[i]);
    }
    // At rising positions the first of equals is the one that came first.
    template <int N> __device__ __forceinline__ void add_rising(const T* v, const I* positions) {
        T top = v[0];
        I where = positions[0];
#pragma unroll
        for (int i = 1; i < N; ++i) {
            // Not beaten means neither smaller nor equal, so that a NaN passes; none beats a NaN.
            const bool better = top == top && !(LARGEST ? v[i] <= top : v[i] >= top);
            top = better ? v[i] : top;
            where = better ? positions[i] : where;
        }
        take(top, where);
    }
    __device__ __forceinline__ void take(T value, I position) {
        const bool same = value == best || (value != value && best != best);
        if (at < 0 || beats(value, best) || (same && position < at)) {
            best = value;
            at = position;
        }
    }
    __device__ __forceinline__ void combine(const ArgExtremum& o) {
        if (o.at >= 0) take(o.best, o.at);
    }
    __device__ __forceinline__ long long value() const { return at; }
};
template <class T, class I> using ArgMaximum = ArgExtremum<T, I, true>;
template <class T, class I> using ArgMinimum = ArgExtremum<T, I, false>;

// Mean and sum of squared distances from it. N values are first reduced around their own mean
// and then merged by Chan's formula: one division for N values, and no cancellation. The mean
// carries what rounding took away, so that data far from zero keeps a good one.
template <class T> struct Moments {
    T count = 0, mean = 0, low = 0, m2 = 0;
    template <int N> __device__ __forceinline__ void add(const T* v) {
        const T middle = tree_sum<N>(v) * (T(1) / T(N));
        T gaps[N], squares[N];
#pragma unroll
        for (int i = 0; i < N; ++i) {
            gaps[i] = v[i] - middle;
            squares[i] = gaps[i] * gaps[i];
        }
        // The distances from a rounded mean do not quite add up to zero: that is its error.
        merge(T(N), middle, tree_sum<N>(gaps) * (T(1) / T(N)), tree_sum<N>(squares));
    }
    __device__ __forceinline__ void merge(T n, T other_mean, T other_low, T other_m2) {
        const T total = count + n;
        const T weight = total > T(0) ? n / total : T(0);
        const T delta = (other_mean - mean) + (other_low - low);
        const T step = delta * weight;
        const T moved = mean + step;
        low += step - (moved - mean);
        mean = moved;
        // The order keeps 0 * delta from overflowing while this side is still empty.
        m2 += other_m2 + (delta * (count * weight)) * delta;
        count = total;
    }
    __device__ __forceinline__ void combine(const Moments& o) { merge(o.count, o.mean, o.low, o.m2); }
    __device__ __forceinline__ T value() const { return low == low ? mean + low : mean; }
    __device__ __forceinline__ T second() const { return m2; }
};

// Maximum and sum of exp(x - maximum), in one pass. While everything seen is -inf the sum stays
// 0; a whole row of -inf has the sum NaN, as exp(-inf - -inf) says.
template <class T> struct OnlineSoftmax {
    T best = least<T>(), total = 0;
    template <int N> __device__ __forceinline__ void add(const T* v) {
        T top = best;
#pragma unroll
        for (int i = 0; i < N; ++i) top = maximum(top, v[i]);
        T terms[N];
#pragma unroll
        for (int i = 0; i < N; ++i) terms[i] = kw::exp(v[i] - top);
        if (top == least<T>()) return;
        total = total * kw::exp(best - top) + tree_sum<N>(terms);
        best = top;
    }
    __device__ __forceinline__ void combine(const OnlineSoftmax& o) {
        const T top = maximum(best, o.best);
        if (top == least<T>()) return;
        total = total * kw::exp(best - top) + o.total * kw::exp(o.best - top);
        best = top;
    }
    __device__ __forceinline__ T value() const { return best; }
    __device__ __forceinline__ T second() const { return best == least<T>() ? T(NAN) : total; }
};

// Adds COUNT groups of N values, of which the first `valid` exist. At most 16 values go in at
// once: enough to share divisions, few enough to stay in registers.
template <int COUNT, int N, class P, class T> __device__ __forceinline__ void add(P& partial, const T* values, int valid) {
    constexpr int GROUP = N >= 16 ? 1 : (16 / N < COUNT ? 16 / N : COUNT);
#pragma unroll
    for (int first = 0; first < COUNT; first += GROUP) {
        if (first + GROUP <= COUNT && first + GROUP <= valid) {
            partial.template add<GROUP * N>(values + first * N);
        } else {
#pragma unroll
            for (int u = first; u < first + GROUP; ++u) {
                if (u < COUNT && u < valid) partial.template add<N>(values + u * N);
            }
        }
    }
}
template <int COUNT, int N, class P, class T, class I>
__device__ __forceinline__ void add_at(P& partial, const T* values, const I* positions, int valid) {
#pragma unroll
    for (int u = 0; u < COUNT; ++u) {
        if (u < valid) partial.template add<N>(values + u * N, positions + u * N);
    }
}
// The same where positions rise from value to value.
template <int COUNT, int N, class P, class T, class I>
__device__ __forceinline__ void add_rising(P& partial, const T* values, const I* positions, int valid) {
    if (valid == COUNT) {
        partial.template add_rising<COUNT * N>(values, positions);
    } else {
#pragma unroll
        for (int u = 0; u < COUNT; ++u) {
            if (u < valid) partial.template add_rising<N>(values + u * N, positions + u * N);
        }
    }
}

// ---- reductions over threads ---------------------------------------------------------------------

template <class T> __device__ __forceinline__ T shuffle_xor(T value, int mask) {
    unsigned int words[sizeof(T) / 4];
    memcpy(words, &value, sizeof(T));
#pragma unroll
    for (int i = 0; i < (int)(sizeof(T) / 4); ++i) words[i] = __shfl_xor_sync(0xffffffffu, words[i], mask);
    memcpy(&value, words, sizeof(T));
    return value;
}
template <class T> __device__ __forceinline__ T shuffle_up(T value, int delta) {
    unsigned int words[sizeof(T) / 4];
    memcpy(words, &value, sizeof(T));
#pragma unroll
    for (int i = 0; i < (int)(sizeof(T) / 4); ++i) words[i] = __shfl_up_sync(0xffffffffu, words[i], delta);
    memcpy(&value, words, sizeof(T));
    return value;
}
template <class T> __device__ __forceinline__ T shuffle_from(T value, int lane) {
    unsigned int words[sizeof(T) / 4];
    memcpy(words, &value, sizeof(T));
#pragma unroll
    for (int i = 0; i < (int)(sizeof(T) / 4); ++i) words[i] = __shfl_sync(0xffffffffu, words[i], lane);
    memcpy(&value, words, sizeof(T));
    return value;
}

// ---- strips: neighbouring outputs of one thread ---------------------------------------------------

// The largest power of two that divides N, at most LIMIT (itself a power of two).
template <int N, int LIMIT> struct Dividing {
    static constexpr int value = N % LIMIT == 0 ? LIMIT : Dividing<N, LIMIT / 2>::value;
};
template <int N> struct Dividing<N, 1> {
    static constexpr int value = 1;
};

// LENGTH elements, PITCH apart, from position `start` of a buffer on, in vectors of WIDTH (which
// divides LENGTH, and `start` where PITCH is one). With GUARDED, what lies outside the buffer's
// EXTENT elements is taken from its ends instead, element by element.
template <bool GUARDED, int WIDTH, int PITCH, int LENGTH, class T, class I>
__device__ __forceinline__ void load_strip(T* into, const T* from, I start, I extent) {
    if constexpr (GUARDED) {
#pragma unroll
        for (int e = 0; e < LENGTH; ++e) {
            const I at = start + e * PITCH;
            into[e] = load_one<DEFAULT>(from + (at < 0 ? 0 : at < extent ? at : extent - 1));
        }
    } else {
#pragma unroll
        for (int i = 0; i < LENGTH; i += WIDTH) {
            const Vec<T, WIDTH> loaded = load<DEFAULT, WIDTH>(from + (start + i * PITCH));
#pragma unroll
            for (int e = 0; e < WIDTH; ++e) into[i + e] = loaded[e];
        }
    }
}

// Writes the first `count` of a lane's N neighbours to `at`, in vectors of CHUNK (a divisor of `at`,
// `count` and N). Smaller chunks pass through shared memory (`slots`, one for each lane of the
// warp), so that neighbouring lanes write neighbouring chunks. All 32 lanes call it together.
template <int CACHE, int CHUNK, int N, class T, class I>
__device__ __forceinline__ void store_strip(T* to, I at, int count, const Vec<T, N>& values, Vec<T, N>* slots) {
    constexpr int PARTS = N / CHUNK;
    if constexpr (PARTS == 1) {
        if (count > 0) store<CACHE>(to + at, values);
    } else {
        const int lane = threadIdx.x % 32;
        __syncwarp();
        slots[lane] = values;
        __syncwarp();
#pragma unroll
        for (int i = 0; i < PARTS; ++i) {
            const int chunk = i * 32 + lane, from = chunk / PARTS, first = chunk % PARTS * CHUNK;
            const I base = shuffle_from(at, from);
            if (first < shuffle_from(count, from)) {
                Vec<T, CHUNK> part;
                memcpy(&part, &slots[from].data[first], sizeof(part));
                store<CACHE>(to + (base + first), part);
            }
        }
    }
}

// Where element `e` of a line lies in shared memory. SPREAD leaves one bank in 32 free, so that lanes
// whose elements are an even number apart meet in no bank.
template <bool SPREAD, class T> __device__ __forceinline__ int line_slot(int e) {
    constexpr int ROW = 128 / (int)sizeof(T), GAP = sizeof(T) < 4 ? 4 / (int)sizeof(T) : 1;
    return SPREAD ? e + e / ROW * GAP : e;
}
template <bool SPREAD, class T> __device__ constexpr int line_room(int length) {
    return SPREAD ? (length + (length / (128 / (int)sizeof(T)) + 1) * (sizeof(T) < 4 ? 4 / (int)sizeof(T) : 1) + 15) / 16 * 16 : length;
}

// A block brings PLANES x LINES lines of a buffer of `extent` elements into shared memory, in vectors
// of 16 bytes from the multiple of a vector at or before `from` on, as far as `needed` elements of each
// reach; what lies outside of the buffer is not read. With SPREAD a line begins at its own first
// element, else with the vector that holds it.
template <bool SPREAD, int CACHE, int THREADS, int UNROLL, int PLANES, int LINES, int LENGTH, class T, class I>
__device__ __forceinline__ void stage_lines(T* room, const T* g, I from, I plane_pitch, I line_pitch, I extent, int needed) {
    constexpr int WIDTH = 16 / (int)sizeof(T), VECTORS = LENGTH / WIDTH, COUNT = PLANES * LINES * VECTORS;
    for (int first = threadIdx.x; first < COUNT; first += THREADS * UNROLL) {
        Vec<T, WIDTH> held[UNROLL];
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) {
            const int mine = first + u * THREADS, line = mine / VECTORS, begin = mine % VECTORS * WIDTH;
            const I start = from + line / LINES * plane_pitch + line % LINES * line_pitch;
            const int shift = (int)(start & (WIDTH - 1));
            const I at = start - shift + begin;
            if (mine >= COUNT || begin >= needed + shift) continue;
            if (at >= 0 && at + WIDTH <= extent) {
                held[u] = load<CACHE, WIDTH>(g + at);
            } else {
#pragma unroll
                for (int e = 0; e < WIDTH; ++e) held[u][e] = at + e >= 0 && at + e < extent ? g[at + e] : T(0);
            }
        }
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) {
            const int mine = first + u * THREADS, line = mine / VECTORS, begin = mine % VECTORS * WIDTH;
            const I start = from + line / LINES * plane_pitch + line % LINES * line_pitch;
            const int shift = (int)(start & (WIDTH - 1));
            if (mine >= COUNT || begin >= needed + shift) continue;
            T* const into = room + line * line_room<SPREAD, T>(LENGTH);
            if (SPREAD) {
#pragma unroll
                for (int e = 0; e < WIDTH; ++e) {
                    if (begin + e >= shift) into[line_slot<SPREAD, T>(begin + e - shift)] = held[u][e];
                }
            } else {
                *reinterpret_cast<Vec<T, WIDTH>*>(into + begin) = held[u];
            }
        }
    }
}

// A tile of ALONG x ACROSS elements that is read in groups of VECTOR neighbours across, and written
// along. Where its elements lie in shared memory, and which group a thread takes at its turn.
template <int ALONG, int ACROSS, int VECTOR> struct Turned {
    static_assert(ACROSS % VECTOR == 0, "whole groups");
    // Up to 8 lanes (16 of single elements) take groups that lie side by side, others the next along.
    static constexpr int GROUPS = ACROSS / VECTOR, MOST = VECTOR > 1 ? 8 : 16;
    static constexpr int STRIPS = (GROUPS + MOST - 1) / MOST, LANES = (GROUPS + STRIPS - 1) / STRIPS;
    // Turns in all; with UNEVEN the last strip has some that take nothing.
    static constexpr int TURNS = STRIPS * LANES * ALONG;
    static constexpr bool UNEVEN = STRIPS * LANES != GROUPS;
    static __device__ __forceinline__ int along(unsigned int turn) { return turn / LANES % ALONG; }
    static __device__ __forceinline__ int across(unsigned int turn) { return (turn / (LANES * ALONG) * LANES + turn % LANES) * VECTOR; }

    // What lies along is a line of whole 16-byte chunks, so that it can be read as vectors. In 128
    // bytes of shared memory there are 8 chunks: the lines of a group of lanes begin APART chunks
    // from each other there, a gap of SKEW chunks after each group. Lanes that write together meet
    // in a bank at most in twos, and those that read lines read whole ones.
    static constexpr int APART = LANES < 8 ? 8 / LANES : 1;
    template <class T> static __device__ constexpr int line() { return (ALONG * (int)sizeof(T) + 15) / 16; }
    template <class T> static __device__ constexpr int skew() {
        return (3 * APART - VECTOR * line<T>() % (2 * APART)) % (2 * APART);
    }
    // Elements from a line of a group to the next.
    template <class T> static __device__ constexpr int pitch() { return line<T>() * (16 / (int)sizeof(T)); }
    template <class T> static __device__ constexpr int room() {
        return (ACROSS * line<T>() + GROUPS * skew<T>()) * (16 / (int)sizeof(T));
    }
    template <class T> static __device__ __forceinline__ int slot(int along, int across) {
        return (across * line<T>() + (int)((unsigned int)across / VECTOR) * skew<T>()) * (16 / (int)sizeof(T)) + along;
    }
};

// Over groups of LANES neighbouring lanes (a power of two); every lane gets the result. All 32
// lanes must call it together.
template <int LANES, class P> __device__ __forceinline__ P warp_reduce(P partial) {
#pragma unroll
    for (int mask = LANES / 2; mask > 0; mask /= 2) partial.combine(shuffle_xor(partial, mask));
    return partial;
}

// Over the block; every thread gets the result. One barrier: between two calls for the same P
// in one block the caller places another (`__syncthreads`).
template <int THREADS, class P> __device__ __forceinline__ P block_reduce(P partial) {
    static_assert(THREADS % 32 == 0 && THREADS <= 1024, "whole warps");
    partial = warp_reduce<32>(partial);
    constexpr int WARPS = THREADS / 32;
    if constexpr (WARPS > 1) {
        __shared__ Slots<P, WARPS> slots;
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
        if (lane == 0) slots.data()[warp] = partial;
        __syncthreads();
        P mine;
        if (lane < WARPS) mine = slots.data()[lane];
        partial = warp_reduce<32>(mine);
    }
    return partial;
}

#if !defined(__CUDACC__) || __CUDA_ARCH__ >= 900
// Over the blocks of a cluster; every thread gets the result. The same rule as for
// block_reduce, with `cluster_sync`: also before the kernel ends, since others read our memory.
template <int THREADS, int BLOCKS, class P> __device__ __forceinline__ P cluster_reduce(P partial) {
    __shared__ Slots<P, 1> own;
    partial = block_reduce<THREADS>(partial);
    if (threadIdx.x == 0) *own.data() = partial;
    cluster_sync();
    P other;
    const int lane = threadIdx.x % 32;
    if (lane < BLOCKS) other = *of_block(own.data(), lane);
    return warp_reduce<32>(other);
}
#endif

// Over the TY threads that share a column, for V columns a thread: thread (tx, ty) is number
// ty * TX + tx. Every thread gets its columns' results. The caller places a barrier between two
// calls for the same P.
template <int TX, int TY, int V, class P> __device__ __forceinline__ void column_reduce(P (&partials)[V], int tx, int ty) {
    if constexpr (TY > 1) {
        __shared__ Slots<P, TX * TY * V> slots;
        P* mine = slots.data();
#pragma unroll
        for (int k = 0; k < V; ++k) mine[(ty * V + k) * TX + tx] = partials[k];
        __syncthreads();
#pragma unroll
        for (int half = TY / 2; half > 0; half /= 2) {
            if (ty < half) {
#pragma unroll
                for (int k = 0; k < V; ++k) {
                    partials[k].combine(mine[((ty + half) * V + k) * TX + tx]);
                    mine[(ty * V + k) * TX + tx] = partials[k];
                }
            }
            __syncthreads();
        }
#pragma unroll
        for (int k = 0; k < V; ++k) partials[k] = mine[k * TX + tx];
    }
}

// ---- exchange between blocks of one launch ---------------------------------------------------------

// One more block has finished its part: true in every thread of the block that is the last of
// `blocks`, which then sees all that the others wrote before.
__device__ __forceinline__ bool is_last(unsigned int* counter, unsigned int blocks) {
    __shared__ int last;
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        last = atomicAdd(counter, 1u) == blocks - 1;
        __threadfence();
    }
    __syncthreads();
    return last != 0;
}

// ---- scans ------------------------------------------------------------------------------------------

template <class T> struct ScanSum {
    static __device__ __forceinline__ T identity() { return T(0); }
    static __device__ __forceinline__ T combine(T a, T b) { return a + b; }
};
template <class T> struct ScanProduct {
    static __device__ __forceinline__ T identity() { return T(1); }
    static __device__ __forceinline__ T combine(T a, T b) { return a * b; }
};
template <class T> struct ScanMaximum {
    static __device__ __forceinline__ T identity() { return least<T>(); }
    static __device__ __forceinline__ T combine(T a, T b) { return maximum(a, b); }
};
template <class T> struct ScanMinimum {
    static __device__ __forceinline__ T identity() { return greatest<T>(); }
    static __device__ __forceinline__ T combine(T a, T b) { return minimum(a, b); }
};

// What comes before this lane within its group of LANES lanes (a power of two), and the group's
// total. All 32 lanes call it together.
template <int LANES, class Op, class T> __device__ __forceinline__ T warp_exclusive(T value, T& total) {
    const int lane = threadIdx.x % LANES;
    T inclusive = value;
#pragma unroll
    for (int delta = 1; delta < LANES; delta *= 2) {
        const T before = shuffle_up(inclusive, delta);
        if (lane >= delta) inclusive = Op::combine(before, inclusive);
    }
    const T before = shuffle_up(inclusive, 1);
    total = shuffle_from(inclusive, (threadIdx.x % 32) / LANES * LANES + LANES - 1);
    return lane == 0 ? Op::identity() : before;
}

// What comes before this warp within the block, and the block's total, from each warp's total.
// Two barriers, so that it can be called again at once.
template <int THREADS, class Op, class T> __device__ __forceinline__ T block_exclusive(T warp_total, T& total) {
    constexpr int WARPS = THREADS / 32;
    if constexpr (WARPS == 1) {
        total = warp_total;
        return Op::identity();
    } else {
        __shared__ Slots<T, WARPS> slots;
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
        if (lane == 0) slots.data()[warp] = warp_total;
        __syncthreads();
        T mine = Op::identity();
        if (lane < WARPS) mine = slots.data()[lane];
        const T before = warp_exclusive<32, Op>(mine, total);
        __syncthreads();
        return shuffle_from(before, warp);
    }
}

// Scans one batch in place and moves the carry on: COUNT vectors of VECTOR elements a thread,
// vector u of a warp's lanes lying before vector u + 1. With LANES < 32 every group of lanes has
// its own row and carry; with THREADS > 32 the warps' batches lie one after another.
template <int LANES, int THREADS, int COUNT, int VECTOR, class Op, class T>
__device__ __forceinline__ void scan_batch(T* values, T& carry) {
    T before[COUNT];
    T running = Op::identity();
#pragma unroll
    for (int u = 0; u < COUNT; ++u) {
#pragma unroll
        for (int k = 1; k < VECTOR; ++k) {
            values[u * VECTOR + k] = Op::combine(values[u * VECTOR + k - 1], values[u * VECTOR + k]);
        }
        T total;
        const T lanes = warp_exclusive<LANES, Op>(values[u * VECTOR + VECTOR - 1], total);
        before[u] = Op::combine(running, lanes);
        running = Op::combine(running, total);
    }
    T whole = running;
    T start = carry;
    if constexpr (THREADS > 32) start = Op::combine(carry, block_exclusive<THREADS, Op>(running, whole));
#pragma unroll
    for (int u = 0; u < COUNT; ++u) {
        const T offset = Op::combine(start, before[u]);
#pragma unroll
        for (int k = 0; k < VECTOR; ++k) values[u * VECTOR + k] = Op::combine(offset, values[u * VECTOR + k]);
    }
    carry = Op::combine(carry, whole);
}

}  // namespace kw
