// The prelude of C++ kernels: element types, maths that vectorises, and accumulators.
//
// Everything is written for the compiler's vectoriser: functions are branch-free, take and return
// scalars, and are meant to be called from the bodies of `kw::lanes`, which walks a row a fixed
// number of elements at a time. An accumulator keeps one partial result for each of those lanes,
// so its additions are independent and need no licence to reassociate: -ffast-math stays off and
// infinities and NaN behave as in PyTorch. Partial results are combined in double and always in
// the same order, so a result never differs from run to run.
//
// Errors are stated in units in the last place (ulp) of float, over all finite arguments unless
// said otherwise; the tests measure them. Functions of double go to the mathematical library.
#pragma once

#include <bit>
#include <climits>
#include <cmath>
#include <cstdint>
#include <limits>
#include <omp.h>
#include <type_traits>
#if defined(__AVX__)
#include <immintrin.h>
#endif

#define KW_INLINE inline __attribute__((always_inline))

namespace kw {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

KW_INLINE uint32_t bits(float x) { return std::bit_cast<uint32_t>(x); }
KW_INLINE float from_bits(uint32_t x) { return std::bit_cast<float>(x); }

// ---- 16-bit floats, passed as their bits -------------------------------------------------------

KW_INLINE float half_to_float(uint16_t h) {
    const uint32_t magnitude = h & 0x7fffu;
    // Moving the fields into place leaves the exponent 112 too small; a product corrects it and
    // normalises subnormals at the same time.
    uint32_t result = bits(from_bits(magnitude << 13) * 0x1p112f);
    result |= magnitude >= 0x7c00u ? 0x7f800000u : 0u;
    return from_bits(result | (uint32_t(h & 0x8000u) << 16));
}

KW_INLINE uint16_t float_to_half(float x) {  // to nearest, ties to even
    const uint32_t sign = bits(x) & 0x80000000u;
    const uint32_t magnitude = bits(x) ^ sign;
    // Below the smallest normal half, adding 0.5 lets the hardware round at the right bit.
    const uint32_t subnormal = bits(from_bits(magnitude) + 0.5f) - 0x3f000000u;
    const uint32_t normal = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
    const uint32_t special = magnitude > 0x7f800000u ? 0x7e00u : 0x7c00u;
    uint32_t result = magnitude < 0x38800000u ? subnormal : normal;
    result = magnitude >= 0x477ff000u ? special : result;
    return uint16_t(result | (sign >> 16));
}

KW_INLINE float bfloat16_to_float(uint16_t h) { return from_bits(uint32_t(h) << 16); }

KW_INLINE uint16_t float_to_bfloat16(float x) {  // to nearest, ties to even
    const uint32_t rounded = (bits(x) + 0x7fffu + ((bits(x) >> 16) & 1u)) >> 16;
    return uint16_t(x != x ? 0x7fc0u : rounded);
}

// ---- comparisons as PyTorch makes them: NaN wins -----------------------------------------------

template <class T> KW_INLINE bool is_nan(T x) { return x != x; }
// Two choices, one after the other: of a single one on both conditions g++ makes branches.
template <class T> KW_INLINE T maximum(T a, T b) {
    const T more = b > a ? b : a;
    return is_nan(b) ? b : more;
}
template <class T> KW_INLINE T minimum(T a, T b) {
    const T less = b < a ? b : a;
    return is_nan(b) ? b : less;
}
template <class T> KW_INLINE T relu(T x) { return x < T(0) ? T(0) : x; }
template <class T> KW_INLINE T sign(T x) { return T(int(T(0) < x) - int(x < T(0))); }
template <class T> KW_INLINE T square(T x) { return x * x; }
// A product that is rounded by itself. Where there are fused instructions a plain one would become
// part of the sum or difference that follows; one that is already fused, with nothing, does not.
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
KW_INLINE float product(float a, float b) { return __builtin_fmaf(a, b, -0.0f); }
KW_INLINE double product(double a, double b) { return __builtin_fma(a, b, -0.0); }
#else
template <class T> KW_INLINE T product(T a, T b) { return a * b; }
#endif
template <class T> KW_INLINE T reciprocal(T x) { return T(1) / x; }
KW_INLINE bool is_inf(float x) { return std::fabs(x) == kInfinity; }
KW_INLINE bool is_inf(double x) { return std::fabs(x) == double(kInfinity); }
KW_INLINE bool is_inf(int64_t) { return false; }

// ---- float functions ---------------------------------------------------------------------------
// Polynomials are minimax fits on the stated interval, their coefficients rounded one by one from
// the lowest order and the rest fitted again after each. `p = p * x + c` contracts to a fused
// multiply-add.

// 2^n for -252 <= n <= 254, as two factors so that results may be subnormal.
KW_INLINE float scale(float x, int32_t n) {
    const int32_t half = n >> 1;
    return x * from_bits(uint32_t(half + 127) << 23) * from_bits(uint32_t(n - half + 127) << 23);
}

// Adding 1.5 * 2^23 rounds to an integer and leaves it in the low bits.
constexpr float kRound = 12582912.0f;
KW_INLINE int32_t rounded_bits(float shifted) {
    return std::bit_cast<int32_t>(shifted) - std::bit_cast<int32_t>(kRound);
}

// (e^r - 1 - r) / r^2 on |r| <= ln(2) / 2, in the order with the shortest chain of products. The
// shorter polynomial suffices where 1 is added to the result (relative error 2^-28), the longer
// one where it is not (2^-31).
KW_INLINE float exp_tail(float r) {
    const float square = r * r;
    const float high = std::fma(0.00139395392f, square, std::fma(0.00836882181f, r, 0.0416664146f));
    return std::fma(high, square, std::fma(0.166665196f, r, 0.5f));
}
KW_INLINE float expm1_tail(float r) {
    const float square = r * r;
    const float fourth = std::fma(0.000199442584f, r, 0.00139326742f);
    const float high = std::fma(fourth, square, std::fma(0.00833320804f, r, 0.0416664891f));
    return std::fma(high, square, std::fma(0.166666672f, r, 0.5f));
}

// x - n ln(2) in two steps; the first product is exact because the constant ends in zeros.
KW_INLINE float reduce_ln2(float x, float n) {
    return std::fma(n, -1.42860677e-6f, std::fma(n, -0.693145752f, x));
}

// Results that would be subnormal are 0, as they are in PyTorch's own softmax: a fifth fewer
// instructions in the function that most kernels here spend their time in. The integer to add to
// the exponent is what `shifted` holds in its low bits; the rest of it is shifted out.
KW_INLINE float exp(float x) {  // 1.1 ulp
    const float shifted = std::fma(x, 1.44269504f, kRound);
    const float r = reduce_ln2(x, shifted - kRound);
    const float p = std::fma(std::fma(exp_tail(r), r, 1.0f), r, 1.0f);
    float result = from_bits(bits(p) + (bits(shifted) << 23));
    result = x <= 88.7228317f ? result : x + kInfinity;  // NaN stays
    return x < -87.3365402f ? 0.0f : result;
}

// 2^n as a float, from `shifted` = n + kRound, for -127 < n < 128.
KW_INLINE float power_of_two(float shifted) {
    return from_bits((bits(shifted) << 23) + 0x3f800000u);
}

// exp for arguments that cannot exceed 88, such as differences from a maximum: nothing overflows.
KW_INLINE float exp_below(float x) {  // 1.3 ulp
    const float shifted = std::fma(x, 1.44269504f, kRound);
    const float r = reduce_ln2(x, shifted - kRound);
    const float p = std::fma(exp_tail(r), r * r, 1.0f + r);
    return x < -87.3365402f ? 0.0f : p * power_of_two(shifted);
}
KW_INLINE double exp_below(double x) { return std::exp(x); }

KW_INLINE float exp2(float x) {  // 1.2 ulp
    const float shifted = x + kRound;
    const float f = x - (shifted - kRound);
    // f ln(2), with the rounding error of the product carried along.
    const float r = f * 0.693147182f;
    const float low = std::fma(f, 0.693147182f, -r) + f * -1.90465421e-9f;
    float result = std::fma(exp_tail(r), r * r, low + r) + 1.0f;
    result = scale(result, rounded_bits(shifted));
    result = x >= 128.0f ? kInfinity : result;
    return x < -150.0f ? 0.0f : result;
}

KW_INLINE float expm1(float x) {  // 1.5 ulp
    const float shifted = std::fma(x, 1.44269504f, kRound);
    const float n = shifted - kRound;
    const float r = reduce_ln2(x, n);
    const float small = std::fma(expm1_tail(r), r * r, r);
    const float power = scale(1.0f, rounded_bits(shifted));
    // 2^n (small + 1) - 1; 2^128 does not exist, so the product is made of halves there.
    const float half = scale(0.5f, rounded_bits(shifted));
    float result = n > 127.0f ? (small * half + half) * 2.0f : small * power + (power - 1.0f);
    result = x > 88.7228394f ? kInfinity : result;
    result = x < -17.5f ? -1.0f : result;
    return x == 0.0f ? x : result;
}

// ln(m 2^e) for m = 1 + f in [sqrt(1/2), sqrt(2)); relative error of the polynomial 2^-30.
KW_INLINE float log_tail(float f) {
    float p = 0.069148019f;
    p = p * f - 0.117895156f;
    p = p * f + 0.118729539f;
    p = p * f - 0.123843737f;
    p = p * f + 0.142186761f;
    p = p * f - 0.16669251f;
    p = p * f + 0.20002225f;
    p = p * f - 0.249999866f;
    p = p * f + 0.333333105f;
    return p;
}

struct Split {
    float f;  // mantissa - 1
    float e;  // exponent
};

KW_INLINE Split split(float x) {
    const bool tiny = x < 1.17549435e-38f;
    const int32_t u = std::bit_cast<int32_t>(tiny ? x * 0x1p24f : x) - 0x3f3504f3;
    const float m = std::bit_cast<float>((u & 0x007fffff) + 0x3f3504f3);
    return {m - 1.0f, float(u >> 23) - (tiny ? 24.0f : 0.0f)};
}

KW_INLINE float log_ends(float x, float result) {
    result = x == kInfinity ? x : result;
    result = x == 0.0f ? -kInfinity : result;
    return x >= 0.0f ? result : kNaN;
}

KW_INLINE float log_of(Split s) {
    const float square = s.f * s.f;
    float tail = log_tail(s.f) * s.f * square;
    tail = std::fma(s.e, -2.12194440e-4f, tail);
    tail = std::fma(square, -0.5f, tail);
    return std::fma(s.e, 0.693359375f, s.f + tail);
}

KW_INLINE float log(float x) { return log_ends(x, log_of(split(x))); }  // 1 ulp

KW_INLINE float log1p(float x) {  // 1.5 ulp
    const float u = 1.0f + x;
    Split s = split(u);
    // What 1 + x lost, brought to the scale of the mantissa.
    const float lost = std::fabs(x) < 0x1p60f ? x - (u - 1.0f) : 0.0f;
    s.f += lost * scale(1.0f, -int32_t(s.e));
    const float result = log_ends(u, log_of(s));
    return std::fabs(x) < 0x1p-24f ? x : result;
}

// log(x) in base b, the exponent's part kept exact: `inverse` is 1 / ln(b), `e_high + e_low` is log_b(2).
KW_INLINE float log_base(float x, float inverse, float inverse_low, float e_high, float e_low) {
    const Split s = split(x);
    const float square = s.f * s.f;
    const float tail = std::fma(square, -0.5f, log_tail(s.f) * s.f * square);
    // ln = f + tail; multiply the pair by the pair (inverse + inverse_low).
    const float high = s.f * inverse;
    float low = std::fma(s.f, inverse, -high) + s.f * inverse_low;
    low = std::fma(tail, inverse, low) + s.e * e_low;
    const float exponent = s.e * e_high;
    // The larger of the two goes first, so that what the sum loses can be seen.
    const float sum = exponent + high;
    const float lost = s.e == 0.0f ? 0.0f : high - (sum - exponent);
    return log_ends(x, sum + (low + lost));
}

KW_INLINE float log2(float x) {  // 1.5 ulp
    return log_base(x, 1.44269502f, 1.92596303e-8f, 1.0f, 0.0f);
}

KW_INLINE float log10(float x) {  // 1.5 ulp
    return log_base(x, 0.434294492f, -1.01003097e-8f, 0.301025391f, 4.60503907e-6f);
}

KW_INLINE float sigmoid(float x) { return 1.0f / (1.0f + exp(-x)); }  // 2.5 ulp for x > -88

// Odd polynomial below 0.55; above, 1 - 2 / (e^2x + 1), whose error shrinks with the quotient.
KW_INLINE float tanh(float x) {  // 1.6 ulp
    const float s = x * x;
    float p = -0.0062428494f;
    p = p * s + 0.021050714f;
    p = p * s - 0.0538475476f;
    p = p * s + 0.133325443f;
    p = p * s - 0.333333164f;
    const float small = std::fma(p * s, x, x);
    const float large = 1.0f - 2.0f / (exp(2.0f * std::fabs(x)) + 1.0f);
    return std::fabs(x) < 0.55f ? small : std::copysign(large, x);
}

// Below 0.92 erf(x) = x + x P(x^2); above, 1 - exp(Q(x)) with Q fitted to ln(erfc(x)).
KW_INLINE float erf(float x) {  // 1.5 ulp
    const float a = std::fabs(x);
    const float s = x * x;
    float p = 7.99249465e-05f;
    p = p * s - 0.000804914627f;
    p = p * s + 0.00519237667f;
    p = p * s - 0.0268557277f;
    p = p * s + 0.112836257f;
    p = p * s - 0.376126289f;
    p = p * s + 0.128379166f;
    const float small = std::fma(p, x, x);
    float q = -2.10925773e-05f;
    q = q * a + 0.000434442423f;
    q = q * a - 0.00417100079f;
    q = q * a + 0.0251193382f;
    q = q * a - 0.108280033f;
    q = q * a - 0.633346915f;
    q = q * a - 1.12951493f;
    q = q * a + 0.000174683679f;
    float large = 1.0f - exp(q);
    large = a > 3.92f ? 1.0f : large;
    return a < 0.92f ? small : is_nan(x) ? x : std::copysign(large, x);
}

// Normal probabilities and GELU need this sum rather than erf. One fit serves both signs: the
// complement of erf is 2^Q(|x|), accurate to 2^-23 of the sum's largest value, 2.
KW_INLINE float one_plus_erf(float x) {
    const float a = std::fabs(x);
    float q = -4.43849713e-05f;
    q = q * a + 0.000437228417f;
    q = q * a - 0.00146138621f;
    q = q * a - 0.000823345152f;
    q = q * a + 0.0283000842f;
    q = q * a - 0.148505688f;
    q = q * a - 0.918410063f;
    q = q * a - 1.6279093f;
    q = q * a + 2.17176517e-08f;
    const float shifted = q + kRound;
    const float f = q - (shifted - kRound);
    const float square = f * f;
    const float high = std::fma(0.000153278277f, f, 0.00133909972f);
    const float middle = std::fma(0.00961850304f, f, 0.0555035956f);
    const float low = std::fma(0.240226477f, f, 0.693147182f);
    const float p = std::fma(std::fma(std::fma(high, square, middle), square, low), f, 1.0f);
    const float complement = q < -125.0f ? 0.0f : p * power_of_two(shifted);
    return x < 0.0f ? complement : 2.0f - complement;
}

// 1 + tanh(x) is twice the logistic function of 2 x.
KW_INLINE float one_plus_tanh(float x) { return 2.0f / (1.0f + exp(-2.0f * x)); }

// Sine and cosine reduce in double, which is exact enough for |x| < 2^45. Beyond, where neighbouring
// floats are millions of periods apart, the answer is NaN rather than a wrong number.
struct Quadrant {
    float r;  // in [-pi/4, pi/4]
    int32_t n;
};

KW_INLINE Quadrant quadrant(float x) {
    const double shifted = std::fma(double(x), 0.63661977236758134308, 6755399441055744.0);
    const double n = shifted - 6755399441055744.0;
    double r = std::fma(n, -1.5707963267948966192, double(x));
    r = std::fma(n, -6.123233995736766036e-17, r);
    r = std::fabs(x) < 0x1p45f ? r : double(kNaN);
    return {float(r), int32_t(std::bit_cast<int64_t>(shifted))};
}

KW_INLINE float sine(Quadrant q) {
    const float s = q.r * q.r;
    float odd = 2.83724717e-06f;
    odd = odd * s - 0.000198534981f;
    odd = odd * s + 0.00833338033f;
    odd = odd * s - 0.166666672f;
    odd = std::fma(odd * s, q.r, q.r);
    float even = 2.44306684e-05f;
    even = even * s - 0.00138873013f;
    even = even * s + 0.0416666456f;
    even = std::fma(even, s * s, std::fma(s, -0.5f, 1.0f));
    const float result = q.n & 1 ? even : odd;
    return from_bits(bits(result) ^ (uint32_t(q.n & 2) << 30));
}

KW_INLINE float sin(float x) {  // 1.6 ulp for |x| < 2^45
    return x == 0.0f ? x : sine(quadrant(x));
}

KW_INLINE float cos(float x) {  // 1.6 ulp for |x| < 2^45
    Quadrant q = quadrant(x);
    q.n += 1;
    return sine(q);
}

KW_INLINE float tan(float x) { return x == 0.0f ? x : sin(x) / cos(x); }  // 3.5 ulp, |x| < 2^45

// |x|^y through double logarithm and exponential, then the signs and ends of IEEE 754.
KW_INLINE float pow(float x, float y) {  // 1 ulp
    const double a = std::fabs(double(x));
    const int64_t u = std::bit_cast<int64_t>(a) - 0x3fe6a09e667f3bcd;
    const double m = std::bit_cast<double>((u & 0x000fffffffffffff) + 0x3fe6a09e667f3bcd);
    const double e = double(int32_t(u >> 52));
    const double t = (m - 1.0) / (m + 1.0);
    const double s = t * t;
    double p = 1.0 / 15.0;
    p = p * s + 1.0 / 13.0;
    p = p * s + 1.0 / 11.0;
    p = p * s + 1.0 / 9.0;
    p = p * s + 1.0 / 7.0;
    p = p * s + 1.0 / 5.0;
    p = p * s + 1.0 / 3.0;
    const double ln = 2.0 * (t + t * s * p);
    double power = double(y) * (e + ln * 1.4426950408889634074);
    power = power > 160.0 ? 160.0 : power;
    power = power < -180.0 ? -180.0 : power;
    const double shifted = power + 6755399441055744.0;
    const double r = (power - (shifted - 6755399441055744.0)) * 0.69314718055994530942;
    double q = 1.0 / 362880.0;
    q = q * r + 1.0 / 40320.0;
    q = q * r + 1.0 / 5040.0;
    q = q * r + 1.0 / 720.0;
    q = q * r + 1.0 / 120.0;
    q = q * r + 1.0 / 24.0;
    q = q * r + 1.0 / 6.0;
    q = q * r + 0.5;
    q = q * r * r + r + 1.0;
    const int64_t biased = (std::bit_cast<int64_t>(shifted) + 1023) << 52;
    float result = float(q * std::bit_cast<double>(biased));
    const float ay = std::fabs(y);
    const bool integer = std::trunc(y) == y;
    const bool odd = integer & (std::trunc(y * 0.5f) != y * 0.5f) & (ay < 0x1p24f);
    result = x == 0.0f ? (y < 0.0f ? kInfinity : 0.0f) : result;
    result = a == double(kInfinity) ? (y < 0.0f ? 0.0f : kInfinity) : result;
    const float end = bool((a > 1.0) == (y > 0.0f)) ? kInfinity : 0.0f;
    result = ay == kInfinity ? (a == 1.0 ? 1.0f : end) : result;
    result = bool((x < 0.0f) & !integer & (a != double(kInfinity))) ? kNaN : result;
    result = bool(is_nan(x) | is_nan(y)) ? kNaN : result;
    result = bool((y == 0.0f) | (x == 1.0f)) ? 1.0f : result;
    return odd ? std::copysign(result, x) : result;
}

// Not worth a polynomial: the mathematical library, one element at a time.
#define KW_LIBRARY_1(name) \
    KW_INLINE float name(float x) { return std::name(x); } \
    KW_INLINE double name(double x) { return std::name(x); }
KW_LIBRARY_1(asin)
KW_LIBRARY_1(acos)
KW_LIBRARY_1(atan)
KW_LIBRARY_1(sinh)
KW_LIBRARY_1(cosh)
KW_LIBRARY_1(asinh)
KW_LIBRARY_1(acosh)
KW_LIBRARY_1(atanh)
KW_LIBRARY_1(erfc)
KW_LIBRARY_1(lgamma)
KW_LIBRARY_1(sqrt)
KW_LIBRARY_1(floor)
KW_LIBRARY_1(ceil)
KW_LIBRARY_1(trunc)
#undef KW_LIBRARY_1
#define KW_LIBRARY_DOUBLE(name) KW_INLINE double name(double x) { return std::name(x); }
KW_LIBRARY_DOUBLE(exp)
KW_LIBRARY_DOUBLE(exp2)
KW_LIBRARY_DOUBLE(expm1)
KW_LIBRARY_DOUBLE(log)
KW_LIBRARY_DOUBLE(log2)
KW_LIBRARY_DOUBLE(log10)
KW_LIBRARY_DOUBLE(log1p)
KW_LIBRARY_DOUBLE(sin)
KW_LIBRARY_DOUBLE(cos)
KW_LIBRARY_DOUBLE(tan)
KW_LIBRARY_DOUBLE(tanh)
KW_LIBRARY_DOUBLE(erf)
#undef KW_LIBRARY_DOUBLE
#define KW_LIBRARY_2(name) \
    KW_INLINE float name(float x, float y) { return std::name(x, y); } \
    KW_INLINE double name(double x, double y) { return std::name(x, y); }
KW_LIBRARY_2(atan2)
KW_LIBRARY_2(fmod)
KW_LIBRARY_2(hypot)
KW_LIBRARY_2(copysign)
#undef KW_LIBRARY_2
KW_INLINE double pow(double x, double y) { return std::pow(x, y); }
KW_INLINE double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }
KW_INLINE float rsqrt(float x) { return 1.0f / std::sqrt(x); }
KW_INLINE double rsqrt(double x) { return 1.0 / std::sqrt(x); }
KW_INLINE float abs(float x) { return std::fabs(x); }
KW_INLINE double abs(double x) { return std::fabs(x); }
// Ties to even, in whatever order the compiler likes: the rounding mode is never changed.
KW_INLINE float round(float x) { return std::nearbyint(x); }
KW_INLINE double round(double x) { return std::nearbyint(x); }

// Division that rounds down, and its remainder, which takes the divisor's sign.
template <class T> KW_INLINE T remainder(T a, T b) {
    if constexpr (std::is_integral_v<T>) {
        const T r = b == 0 ? 0 : a % b;
        return r != 0 && ((r < 0) != (b < 0)) ? r + b : r;
    } else {
        const T r = fmod(a, b);
        return r != 0 && ((r < 0) != (b < 0)) ? r + b : r;
    }
}
template <class T> KW_INLINE T floordiv(T a, T b) {
    if constexpr (std::is_integral_v<T>) {
        const T q = b == 0 ? 0 : a / b;
        return q * b != a && ((a < 0) != (b < 0)) ? q - 1 : q;
    } else {
        // As PyTorch: from the exact remainder, so that the quotient never rounds up across a step.
        T r = fmod(a, b);
        T q = (a - r) / b;
        q = r != 0 && ((b < 0) != (r < 0)) ? q - T(1) : q;
        T down = floor(q);
        down = q - down > T(0.5) ? down + T(1) : down;
        down = q == 0 ? copysign(T(0), a / b) : down;
        return b == 0 ? a / b : down;
    }
}
template <class T> KW_INLINE T truncdiv(T a, T b) {
    if constexpr (std::is_integral_v<T>) return b == 0 ? 0 : a / b;
    else return trunc(a / b);
}
KW_INLINE int64_t fmod(int64_t a, int64_t b) { return b == 0 ? 0 : a % b; }
KW_INLINE int64_t abs(int64_t x) { return x < 0 ? -x : x; }
KW_INLINE int64_t pow(int64_t x, int64_t y) {
    if (y < 0) return x == 1 ? 1 : x == -1 ? (y & 1 ? -1 : 1) : 0;
    uint64_t result = 1;
    for (uint64_t base = uint64_t(x), rest = uint64_t(y); rest; rest >>= 1, base *= base)
        if (rest & 1) result *= base;
    return int64_t(result);
}
KW_INLINE int64_t shift_left(int64_t a, int64_t b) {
    return b < 0 || b >= 64 ? 0 : int64_t(uint64_t(a) << b);
}
KW_INLINE int64_t shift_right(int64_t a, int64_t b) { return a >> (b < 0 || b >= 64 ? 63 : b); }

// ---- walking a row -------------------------------------------------------------------------------

// Calls body(j, l) for j = 0 .. n - 1 with l = j % L. Calls with different l are independent, so
// the compiler may keep L / 8 vectors in flight.
template <int L, class Body> KW_INLINE void lanes(int64_t n, Body&& body) {
    int64_t j = 0;
    for (; j + L <= n; j += L) {
#pragma omp simd
        for (int l = 0; l < L; ++l) body(j + l, l);
    }
    const int rest = int(n - j);
#pragma omp simd
    for (int l = 0; l < rest; ++l) body(j + l, l);
}

// Copies n elements past the cache: a result that nobody reads soon should not evict the inputs,
// and a line that is written whole need not be read first.
template <class T> KW_INLINE void stream(T* to, const T* from, int64_t n) {
#if defined(__AVX__)
    constexpr int64_t kWidth = 32 / int64_t(sizeof(T));
    int64_t j = 0;
    for (; j < n && (reinterpret_cast<uintptr_t>(to + j) & 31); ++j) to[j] = from[j];
    for (; j + kWidth <= n; j += kWidth)
        _mm256_stream_si256(reinterpret_cast<__m256i*>(to + j),
                            _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + j)));
    for (; j < n; ++j) to[j] = from[j];
#else
    for (int64_t j = 0; j < n; ++j) to[j] = from[j];
#endif
}

// Streamed stores are ordered with nothing until a fence; every thread that streams ends with one.
KW_INLINE void fence() {
#if defined(__AVX__)
    _mm_sfence();
#endif
}

// ---- reductions along a row ----------------------------------------------------------------------
// A row accumulator is filled by add(l, value) from `lanes`, emptied into its total by fold()
// after every chunk of a row, and totals of several chunks are merged in the row's order.

template <class T> using Wide = std::conditional_t<std::is_floating_point_v<T>, double, T>;

// Combines lanes pairwise, so that the last steps are vector operations as well.
template <int L, class T, class Combine> KW_INLINE T tree(T* lane, Combine&& combine) {
#pragma GCC unroll 8
    for (int width = L / 2; width; width /= 2) {
#pragma omp simd
        for (int l = 0; l < width; ++l) lane[l] = combine(lane[l], lane[l + width]);
    }
    return lane[0];
}

struct SumOf {
    template <class T> static constexpr T start() { return T(0); }
    template <class T> KW_INLINE T operator()(T a, T b) const { return a + b; }
};
struct ProdOf {
    template <class T> static constexpr T start() { return T(1); }
    template <class T> KW_INLINE T operator()(T a, T b) const { return a * b; }
};
template <class T> constexpr T lowest() {
    if constexpr (std::is_floating_point_v<T>) return -std::numeric_limits<T>::infinity();
    else return std::numeric_limits<T>::lowest();
}
template <class T> constexpr T highest() {
    if constexpr (std::is_floating_point_v<T>) return std::numeric_limits<T>::infinity();
    else return std::numeric_limits<T>::max();
}
struct MaxOf {
    template <class T> static constexpr T start() { return lowest<T>(); }
    template <class T> KW_INLINE T operator()(T a, T b) const { return maximum(a, b); }
};
struct MinOf {
    template <class T> static constexpr T start() { return highest<T>(); }
    template <class T> KW_INLINE T operator()(T a, T b) const { return minimum(a, b); }
};
struct AnyOf {
    template <class T> static constexpr T start() { return T(0); }
    template <class T> KW_INLINE T operator()(T a, T b) const { return T(a | b); }
};
struct AllOf {
    template <class T> static constexpr T start() { return T(1); }
    template <class T> KW_INLINE T operator()(T a, T b) const { return T(a & b); }
};

// The total of a reduction by an associative operation; W is double for sums of floats.
template <class W, class Op> struct Total {
    W at = Op::template start<W>();
    KW_INLINE void merge(const Total& other) { at = Op()(at, other.at); }
    KW_INLINE W value() const { return at; }
};

template <class T, class Op, class W, int L> struct Row {
    Total<W, Op> total;
    alignas(64) T lane[L];

    KW_INLINE Row() { clear(); }
    KW_INLINE void clear() {
        for (int l = 0; l < L; ++l) lane[l] = Op::template start<T>();
    }
    KW_INLINE void add(int l, T v) { lane[l] = Op()(lane[l], v); }
    KW_INLINE void fold() {
        alignas(64) W wide[L];
        for (int l = 0; l < L; ++l) wide[l] = W(lane[l]);
        total.at = Op()(total.at, tree<L>(wide, Op()));
        clear();
    }
};
template <class T, int L> using Sum = Row<T, SumOf, Wide<T>, L>;
template <class T, int L> using Prod = Row<T, ProdOf, Wide<T>, L>;
template <class T, int L> using Max = Row<T, MaxOf, T, L>;
template <class T, int L> using Min = Row<T, MinOf, T, L>;
template <class T, int L> using Any = Row<uint8_t, AnyOf, uint8_t, L>;
template <class T, int L> using All = Row<uint8_t, AllOf, uint8_t, L>;

// The extremum's first position in the row's order. Sign is 1 for the maximum, -1 for the minimum.
template <class T, int Sign> KW_INLINE bool beats(T a, T b) {
    const bool more = Sign > 0 ? a > b : a < b;
    return more | (is_nan(a) & !is_nan(b));
}
template <class T, int Sign> struct BestTotal {
    T best{};
    int64_t at = -1;
    KW_INLINE void offer(T v, int64_t position) {
        const bool same = v == best || (is_nan(v) && is_nan(best));
        if (at < 0 || beats<T, Sign>(v, best) || (same && position < at)) best = v, at = position;
    }
    KW_INLINE void merge(const BestTotal& other) {
        if (other.at >= 0) offer(other.best, other.at);
    }
    KW_INLINE int64_t value() const { return at; }
};
template <class T, int Sign, int L> struct Best {
    BestTotal<T, Sign> total;
    alignas(64) T best[L];
    alignas(64) int32_t at[L];

    KW_INLINE Best() { clear(); }
    KW_INLINE void clear() {
        for (int l = 0; l < L; ++l) best[l] = T(0), at[l] = -1;
    }
    KW_INLINE void add(int l, T v, int64_t j) {
        const bool better = beats<T, Sign>(v, best[l]) | (at[l] < 0);
        best[l] = better ? v : best[l];
        at[l] = better ? int32_t(j) : at[l];
    }
    KW_INLINE void fold(int64_t first) {  // the row's position of the chunk's first element
        for (int l = 0; l < L; ++l)
            if (at[l] >= 0) total.offer(best[l], first + at[l]);
        clear();
    }
};
template <class T, int L> using ArgMax = Best<T, 1, L>;
template <class T, int L> using ArgMin = Best<T, -1, L>;

// Count, mean and sum of squared distances from it; merged by Chan's update.
struct MomentsTotal {
    double count = 0, average = 0, squares = 0;
    KW_INLINE void merge(const MomentsTotal& other) {
        if (other.count == 0) return;
        const double all = count + other.count;
        const double delta = other.average - average;
        average += delta * (other.count / all);
        squares += other.squares + delta * delta * (count * other.count / all);
        count = all;
    }
    KW_INLINE double value() const { return average; }
    KW_INLINE double m2() const { return squares; }
};

// Two walks over each chunk, which is in the nearest cache by then: add() finds its mean, spread()
// the distances from it. Rounding of that mean is undone by the distances' own sum.
template <class T, int L> struct Moments {
    MomentsTotal total;
    T centre = 0;
    alignas(64) T sum[L];
    alignas(64) T square[L];

    KW_INLINE Moments() { clear(); }
    KW_INLINE void clear() {
        for (int l = 0; l < L; ++l) sum[l] = square[l] = 0;
    }
    KW_INLINE void add(int l, T v) { sum[l] += v; }
    KW_INLINE void settle(int64_t n) {
        centre = T(drain(sum) / double(n));
        clear();
    }
    KW_INLINE void spread(int l, T v) {
        const T distance = v - centre;
        sum[l] += distance;
        square[l] += distance * distance;
    }
    KW_INLINE void fold(int64_t n) {
        const double distance = drain(sum) / double(n);
        const double squares = drain(square) - distance * distance * double(n);
        total.merge({double(n), double(centre) + distance, squares < 0 ? 0 : squares});
        clear();
    }

  private:
    static KW_INLINE double drain(const T* lane) {
        alignas(64) double wide[L];
        for (int l = 0; l < L; ++l) wide[l] = lane[l];
        return tree<L>(wide, SumOf());
    }
};

// Maximum, and the sum of exp(value - maximum). A maximum of -inf subtracts 0 instead, so that one
// masked chunk does not spoil a row; a row of nothing but -inf still sums to NaN, as in PyTorch.
template <class T> struct SoftmaxTotal {
    T maximum = lowest<T>();
    double weights = 0;
    static KW_INLINE T base(T m) { return m == lowest<T>() ? T(0) : m; }
    KW_INLINE void raise(T m) {
        const T raised = kw::maximum(maximum, m);
        weights = weights == 0 ? 0 : weights * std::exp(double(base(maximum)) - double(base(raised)));
        maximum = raised;
    }
    KW_INLINE void merge(SoftmaxTotal other) {
        raise(other.maximum);
        other.raise(maximum);
        weights += other.weights;
    }
    KW_INLINE T value() const { return maximum; }
    KW_INLINE double sum() const { return maximum == lowest<T>() ? double(kNaN) : weights; }
};

template <class T, int L> struct Softmax {
    SoftmaxTotal<T> total;
    T base = 0;
    alignas(64) T most[L];
    alignas(64) T sums[L];

    KW_INLINE Softmax() { clear(); }
    KW_INLINE void clear() {
        for (int l = 0; l < L; ++l) most[l] = lowest<T>(), sums[l] = 0;
    }
    KW_INLINE void add(int l, T v) { most[l] = maximum(most[l], v); }
    KW_INLINE void settle(int64_t) {
        total.raise(tree<L>(most, MaxOf()));
        base = SoftmaxTotal<T>::base(total.maximum);
    }
    KW_INLINE void spread(int l, T v) { sums[l] += exp_below(v - base); }
    KW_INLINE void fold(int64_t) {
        alignas(64) double wide[L];
        for (int l = 0; l < L; ++l) wide[l] = sums[l];
        total.weights += tree<L>(wide, SumOf());
        clear();
    }
};

// ---- reductions across rows: one result for each of W neighbouring columns -----------------------

template <class T, class Op, class Acc, int W> struct Columns {
    alignas(64) Acc at[W];
    KW_INLINE Columns() {
        for (int l = 0; l < W; ++l) at[l] = Op::template start<Acc>();
    }
    KW_INLINE void add(int64_t l, T v) { at[l] = Op()(at[l], Acc(v)); }
    KW_INLINE void merge(const Columns& other) {
        for (int l = 0; l < W; ++l) at[l] = Op()(at[l], other.at[l]);
    }
    KW_INLINE Acc value(int64_t l) const { return at[l]; }
};
template <class T, int W> using ColumnSum = Columns<T, SumOf, Wide<T>, W>;
template <class T, int W> using ColumnProd = Columns<T, ProdOf, Wide<T>, W>;
template <class T, int W> using ColumnMax = Columns<T, MaxOf, T, W>;
template <class T, int W> using ColumnMin = Columns<T, MinOf, T, W>;
template <class T, int W> using ColumnAny = Columns<uint8_t, AnyOf, uint8_t, W>;
template <class T, int W> using ColumnAll = Columns<uint8_t, AllOf, uint8_t, W>;

// Rows arrive in order, so the first position of an extremum is the first that beats the rest.
template <class T, int Sign, int W> struct ColumnBest {
    alignas(64) T best[W];
    alignas(64) int64_t at[W];
    KW_INLINE ColumnBest() {
        for (int l = 0; l < W; ++l) best[l] = T(0), at[l] = -1;
    }
    KW_INLINE void add(int64_t l, T v, int64_t position) {
        const bool better = beats<T, Sign>(v, best[l]) | (at[l] < 0);
        best[l] = better ? v : best[l];
        at[l] = better ? position : at[l];
    }
    KW_INLINE void merge(const ColumnBest& other) {
        for (int l = 0; l < W; ++l)
            if (other.at[l] >= 0) add(l, other.best[l], other.at[l]);
    }
    KW_INLINE int64_t value(int64_t l) const { return at[l]; }
};
template <class T, int W> using ColumnArgMax = ColumnBest<T, 1, W>;
template <class T, int W> using ColumnArgMin = ColumnBest<T, -1, W>;

// Welford's update; the count is the same for all columns, so its reciprocal is computed once.
template <class T, int W> struct ColumnMoments {
    double count = 0, inverse = 1;
    alignas(64) double average[W];
    alignas(64) double squares[W];
    KW_INLINE ColumnMoments() {
        for (int l = 0; l < W; ++l) average[l] = squares[l] = 0;
    }
    KW_INLINE void next() { count += 1, inverse = 1 / count; }  // before each row
    KW_INLINE void add(int64_t l, T v) {
        const double delta = double(v) - average[l];
        average[l] += delta * inverse;
        squares[l] += delta * (double(v) - average[l]);
    }
    KW_INLINE void merge(const ColumnMoments& other) {
        const double all = count + other.count;
        if (other.count == 0) return;
        for (int l = 0; l < W; ++l) {
            const double delta = other.average[l] - average[l];
            average[l] += delta * (other.count / all);
            squares[l] += other.squares[l] + delta * delta * (count * other.count / all);
        }
        count = all;
    }
    KW_INLINE double value(int64_t l) const { return average[l]; }
    KW_INLINE double m2(int64_t l) const { return squares[l]; }
};

// Online: one exponential a value, of minus its distance to the running maximum.
template <class T, int W> struct ColumnSoftmax {
    alignas(64) T most[W];
    alignas(64) double weights[W];
    KW_INLINE ColumnSoftmax() {
        for (int l = 0; l < W; ++l) most[l] = lowest<T>(), weights[l] = 0;
    }
    KW_INLINE void add(int64_t l, T v) {
        const T raised = maximum(most[l], v);
        const bool higher = v > most[l];
        const T distance = higher ? most[l] - v : v - most[l];
        // Both are -inf, so neither weighs anything yet.
        const T factor = raised == lowest<T>() ? T(0) : exp_below(distance);
        const double kept = weights[l] == 0 ? 0 : weights[l] * double(factor);
        weights[l] = higher ? kept + 1 : weights[l] + double(factor);
        most[l] = raised;
    }
    KW_INLINE void merge(const ColumnSoftmax& other) {
        for (int l = 0; l < W; ++l) {
            SoftmaxTotal<T> mine{most[l], weights[l]};
            mine.merge({other.most[l], other.weights[l]});
            most[l] = mine.maximum, weights[l] = mine.weights;
        }
    }
    KW_INLINE T value(int64_t l) const { return most[l]; }
    KW_INLINE double sum(int64_t l) const {
        return most[l] == lowest<T>() ? double(kNaN) : weights[l];
    }
};

// ---- scans ---------------------------------------------------------------------------------------
// In place over a chunk of a row; `carry` comes in from the chunks before and goes out to the next.
// Sums and products run in double, so that every prefix is rounded once.

template <class Op, class T, class W> KW_INLINE void scan_each(T* row, int64_t n, W& carry) {
    for (int64_t j = 0; j < n; ++j) row[j] = T(carry = Op()(carry, W(row[j])));
}

#if defined(__AVX2__)
// Four prefixes at a time: two shifted steps inside the vector, off the critical path, and one
// step for the carry, on it.
template <class Op> KW_INLINE __m256d step(__m256d a, __m256d b) {
    if constexpr (std::is_same_v<Op, SumOf>) return _mm256_add_pd(a, b);
    else return _mm256_mul_pd(a, b);
}
template <class Op> KW_INLINE __m256d prefix(__m256d v) {
    const __m256d start = _mm256_set1_pd(Op::template start<double>());
    v = step<Op>(v, _mm256_unpacklo_pd(start, v));
    // The lower half's total for the upper half; crossing halves costs more than anything else.
    const __m256d lower = _mm256_permute_pd(_mm256_permute2f128_pd(start, v, 0x20), 0xf);
    return step<Op>(v, lower);
}
template <class Op> KW_INLINE void scan_vectors(float* row, int64_t n, double& carry) {
    __m256d sum = _mm256_set1_pd(carry);
    int64_t j = 0;
    for (; j + 8 <= n; j += 8) {
        const __m256d a = prefix<Op>(_mm256_cvtps_pd(_mm_loadu_ps(row + j)));
        const __m256d b = prefix<Op>(_mm256_cvtps_pd(_mm_loadu_ps(row + j + 4)));
        const __m256d first = _mm256_permute4x64_pd(a, 0xff);
        const __m256d second = _mm256_permute4x64_pd(b, 0xff);
        _mm_storeu_ps(row + j, _mm256_cvtpd_ps(step<Op>(sum, a)));
        _mm_storeu_ps(row + j + 4, _mm256_cvtpd_ps(step<Op>(step<Op>(sum, first), b)));
        sum = step<Op>(sum, step<Op>(first, second));
    }
    carry = _mm256_cvtsd_f64(sum);
    scan_each<Op>(row + j, n - j, carry);
}
#endif

template <class Op, class T, class W> KW_INLINE void scan(T* row, int64_t n, W& carry) {
#if defined(__AVX2__)
    constexpr bool chains = std::is_same_v<Op, SumOf> || std::is_same_v<Op, ProdOf>;
    if constexpr (chains && std::is_same_v<T, float> && std::is_same_v<W, double>)
        return scan_vectors<Op>(row, n, carry);
#endif
    scan_each<Op>(row, n, carry);
}

}  // namespace kw
