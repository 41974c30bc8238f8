// The scalar functions that pointwise expressions are written in: one text for the library's own C++, for
// generated host kernels (pasted, nothing included) and for CUDA kernels (pasted, compiled by NVRTC).
#pragma once

// Include nothing here and use builtins only. Every float function but fmod is branch-free IEEE arithmetic
// with explicit fma, so a vectorised loop, a single call and a GPU thread give the same bits; that takes
// -ffp-contract=off -fwrapv -fno-math-errno -fno-trapping-math on the host, --fmad=false and no fast-math in
// NVRTC. double goes to libm.
//
// Names equal libm's: call them qualified or from code inside namespace etch::scalar. A using-directive would
// be ambiguous, since NVRTC and <cmath> declare their own at global scope.
//
// Largest errors in ulp, held by a test that sweeps the floats: exp 1, exp2 1, expm1 1.6, log 0.8, log2 1.6,
// log10 1.7, log1p 1.5, tanh 1.5, sigmoid 1.5, erf 1.6, erfc 4, sin and cos 1.6, tan 4, atan 1.4, pow 0.51.
// The coefficients are minimax fits made for this file.

#if defined(__CUDA_ARCH__) || defined(__CUDACC_RTC__)
#define ETCH_FN static __device__ __forceinline__
#define ETCH_FMA(a, b, c) __fmaf_rn(a, b, c)
#define ETCH_FMAD(a, b, c) __fma_rn(a, b, c)
#define ETCH_LIBM(name) ::name
#define ETCH_SCALAR_CUDA 1
#else
#define ETCH_FN static inline __attribute__((always_inline))
#define ETCH_FMA(a, b, c) __builtin_fmaf(a, b, c)
#define ETCH_FMAD(a, b, c) __builtin_fma(a, b, c)
#define ETCH_LIBM(name) __builtin_##name
#define ETCH_SCALAR_CUDA 0
#endif

namespace etch::scalar {

#if ETCH_SCALAR_CUDA
using i8 = signed char;
using u8 = unsigned char;
using u16 = unsigned short;
using i32 = int;
using u32 = unsigned int;
using i64 = long long;
using u64 = unsigned long long;

ETCH_FN u32 bits_of(float x) { return __float_as_uint(x); }
ETCH_FN float float_of(u32 b) { return __uint_as_float(b); }
ETCH_FN u64 bits_of(double x) { return static_cast<u64>(__double_as_longlong(x)); }
ETCH_FN double double_of(u64 b) { return __longlong_as_double(static_cast<i64>(b)); }
#else
using i8 = __INT8_TYPE__;
using u8 = __UINT8_TYPE__;
using u16 = __UINT16_TYPE__;
using i32 = __INT32_TYPE__;
using u32 = __UINT32_TYPE__;
using i64 = __INT64_TYPE__;
using u64 = __UINT64_TYPE__;

ETCH_FN u32 bits_of(float x) { return __builtin_bit_cast(u32, x); }
ETCH_FN float float_of(u32 b) { return __builtin_bit_cast(float, b); }
ETCH_FN u64 bits_of(double x) { return __builtin_bit_cast(u64, x); }
ETCH_FN double double_of(u64 b) { return __builtin_bit_cast(double, b); }
#endif

template <class A, class B>
constexpr bool kSame = false;
template <class A>
constexpr bool kSame<A, A> = true;
template <class T>
constexpr bool kFloating = kSame<T, float> || kSame<T, double>;

ETCH_FN float infinity() { return float_of(0x7f800000u); }
ETCH_FN float quiet_nan() { return float_of(0x7fc00000u); }

// Functions exact in float: the same rounding everywhere.

ETCH_FN float floor(float x) { return ETCH_LIBM(floorf)(x); }
ETCH_FN float ceil(float x) { return ETCH_LIBM(ceilf)(x); }
ETCH_FN float trunc(float x) { return ETCH_LIBM(truncf)(x); }
/// Half to even.
ETCH_FN float round(float x) { return ETCH_LIBM(rintf)(x); }
ETCH_FN float fma(float a, float b, float c) { return ETCH_FMA(a, b, c); }
#if ETCH_SCALAR_CUDA
ETCH_FN float sqrt(float x) { return __fsqrt_rn(x); }
#else
ETCH_FN float sqrt(float x) { return __builtin_sqrtf(x); }
#endif
/// 1 / sqrt(x), both operations correctly rounded.
ETCH_FN float rsqrt(float x) { return 1.0f / sqrt(x); }
ETCH_FN float abs(float x) { return float_of(bits_of(x) & 0x7fffffffu); }
ETCH_FN float copysign(float x, float s) {
  return float_of((bits_of(x) & 0x7fffffffu) | (bits_of(s) & 0x80000000u));
}
ETCH_FN bool signbit(float x) { return (bits_of(x) >> 31) != 0; }
ETCH_FN bool isnan(float x) { return x != x; }
ETCH_FN bool isinf(float x) { return (bits_of(x) & 0x7fffffffu) == 0x7f800000u; }
ETCH_FN bool isfinite(float x) { return (bits_of(x) & 0x7fffffffu) < 0x7f800000u; }
/// NaN in either operand gives NaN; of two equal operands the second.
ETCH_FN float max(float a, float b) { return ((a > b) | (a != a)) ? a : b; }
ETCH_FN float min(float a, float b) { return ((a < b) | (a != a)) ? a : b; }
/// -1, 0 or 1; NaN stays NaN.
ETCH_FN float sign(float x) { return (x > 0.0f ? 1.0f : 0.0f) - (x < 0.0f ? 1.0f : (x != x ? x : 0.0f)); }
/// The sign of a, |result| < |b|; exact.
ETCH_FN float fmod(float a, float b) { return ETCH_LIBM(fmodf)(a, b); }

ETCH_FN double floor(double x) { return ETCH_LIBM(floor)(x); }
ETCH_FN double ceil(double x) { return ETCH_LIBM(ceil)(x); }
ETCH_FN double trunc(double x) { return ETCH_LIBM(trunc)(x); }
ETCH_FN double round(double x) { return ETCH_LIBM(rint)(x); }
ETCH_FN double fma(double a, double b, double c) { return ETCH_FMAD(a, b, c); }
ETCH_FN double sqrt(double x) { return ETCH_LIBM(sqrt)(x); }
ETCH_FN double rsqrt(double x) { return 1.0 / sqrt(x); }
ETCH_FN double abs(double x) { return double_of(bits_of(x) & 0x7fffffffffffffffull); }
ETCH_FN double copysign(double x, double s) {
  return double_of((bits_of(x) & 0x7fffffffffffffffull) | (bits_of(s) & 0x8000000000000000ull));
}
ETCH_FN bool signbit(double x) { return (bits_of(x) >> 63) != 0; }
ETCH_FN bool isnan(double x) { return x != x; }
ETCH_FN bool isinf(double x) { return (bits_of(x) & 0x7fffffffffffffffull) == 0x7ff0000000000000ull; }
ETCH_FN bool isfinite(double x) { return (bits_of(x) & 0x7fffffffffffffffull) < 0x7ff0000000000000ull; }
ETCH_FN double max(double a, double b) { return ((a > b) | (a != a)) ? a : b; }
ETCH_FN double min(double a, double b) { return ((a < b) | (a != a)) ? a : b; }
ETCH_FN double sign(double x) { return (x > 0.0 ? 1.0 : 0.0) - (x < 0.0 ? 1.0 : (x != x ? x : 0.0)); }
ETCH_FN double fmod(double a, double b) { return ETCH_LIBM(fmod)(a, b); }

// Exponentials. t = x * scale + 1.5 * 2^23 leaves the nearest integer in t's low bits; 2^n is added to
// exponent bits.

ETCH_FN float exp_shift() { return 12582912.0f; }
ETCH_FN i32 exp_int(float t) { return static_cast<i32>(bits_of(t) - 0x4b400000u); }
/// 2^n for n in [-126, 127].
ETCH_FN float exp_power(i32 n) { return float_of((static_cast<u32>(n) + 127u) << 23); }
/// p * 2^n for p in [0.5, 2) and n in [-151, 128], rounded once: gradual underflow, overflow to infinity.
ETCH_FN float exp_scale(float p, i32 n) {
  const i32 half = n >> 1;
  return p * exp_power(half) * exp_power(n - half);
}
/// (e^r - 1 - r) / r^2 for |r| <= ln(2) / 2.
ETCH_FN float exp_tail(float r) {
  float p = 0x1.6b39b6p-10f;
  p = ETCH_FMA(p, r, 0x1.123e46p-7f);
  p = ETCH_FMA(p, r, 0x1.55574ep-5f);
  p = ETCH_FMA(p, r, 0x1.555494p-3f);
  return ETCH_FMA(p, r, 0x1.fffffep-2f);
}
ETCH_FN float exp_reduce(float x, float n) {
  return ETCH_FMA(n, 0x1.05c610p-29f, ETCH_FMA(n, -0x1.62e430p-1f, x));
}

/// Below -104 the result is 0; it is selected, not computed: results that underflow cost hundreds of cycles
/// each on some processors, and masked attention makes many.
ETCH_FN float exp(float x) {
  const bool gone = x < -104.0f;
  x = gone ? 0.0f : x;
  x = x > 89.0f ? 89.0f : x;
  const float t = ETCH_FMA(x, 0x1.715476p+0f, exp_shift());
  const float r = exp_reduce(x, t - exp_shift());
  const float e = exp_scale(ETCH_FMA(ETCH_FMA(exp_tail(r), r, 1.0f), r, 1.0f), exp_int(t));
  return gone ? 0.0f : e;
}

/// 2^r for |r| <= 1/2.
ETCH_FN float exp2_poly(float r) {
  float p = 0x1.25d53cp-13f;
  p = ETCH_FMA(p, r, 0x1.5f0faep-10f);
  p = ETCH_FMA(p, r, 0x1.3b5d32p-7f);
  p = ETCH_FMA(p, r, 0x1.c6af80p-5f);
  p = ETCH_FMA(p, r, 0x1.ebfb94p-3f);
  p = ETCH_FMA(p, r, 0x1.62e430p-1f);
  return ETCH_FMA(p, r, 1.0f);
}
ETCH_FN float exp2(float x) {
  const bool gone = x < -151.0f;
  x = gone ? 0.0f : x;
  x = x > 128.0f ? 128.0f : x;
  const float t = x + exp_shift();
  const float e = exp_scale(exp2_poly(x - (t - exp_shift())), exp_int(t));
  return gone ? 0.0f : e;
}

ETCH_FN float expm1(float x) {
  float c = x < -18.0f ? -18.0f : x;
  c = c > 89.0f ? 89.0f : c;
  const float t = ETCH_FMA(c, 0x1.715476p+0f, exp_shift());
  const float r = exp_reduce(c, t - exp_shift());
  const float q = ETCH_FMA(exp_tail(r), r * r, r);
  const float s = exp_power(exp_int(t) - 1);
  const float e = 2.0f * ETCH_FMA(s, q, s - 0.5f);
  return abs(x) < 0x1p-60f ? x : e;
}

/// Below 0.55 a polynomial in x^2, above it 1 - 2 / (1 + e^2|x|).
ETCH_FN float tanh(float x) {
  const float z = x * x;
  float p = -0x1.9921a2p-8f;
  p = ETCH_FMA(p, z, 0x1.58e518p-6f);
  p = ETCH_FMA(p, z, -0x1.b91e7ep-5f);
  p = ETCH_FMA(p, z, 0x1.110ceep-3f);
  p = ETCH_FMA(p, z, -0x1.55554ap-2f);
  p = ETCH_FMA(p, z * x, x);
  float a = 2.0f * abs(x);
  a = a > 20.0f ? 20.0f : a;
  const float t = ETCH_FMA(a, 0x1.715476p+0f, exp_shift());
  const float r = exp_reduce(a, t - exp_shift());
  const float e = (1.0f + ETCH_FMA(exp_tail(r), r * r, r)) * exp_power(exp_int(t));
  const float large = copysign(1.0f - 2.0f / (1.0f + e), x);
  return a < 1.1f ? copysign(p, x) : large;
}

/// 1 / (1 + e^-x); keeps the denormal tail.
ETCH_FN float sigmoid(float x) {
  const float e = exp(-abs(x));
  const float top = x < 0.0f ? e : 1.0f;
  const float bottom = 1.0f + e;
  const float q = top / bottom;
  // One Newton step with what the quotient and the sum lost; 1.457 - bottom / 2 is near 1 / bottom on [1, 2].
  const float lost = ETCH_FMA(-q, e - (bottom - 1.0f), ETCH_FMA(-q, bottom, top));
  return ETCH_FMA(lost, ETCH_FMA(-0.5f, bottom, 1.457f), q);
}

// Logarithms. x = 2^e * (1 + f) with 1 + f in [sqrt(1/2), sqrt(2)).

struct LogParts {
  float f, e;
};
ETCH_FN LogParts log_split(float x) {
  const bool tiny = x < 0x1p-126f;
  const u32 i = bits_of(tiny ? x * 0x1p23f : x) - 0x3f3504f3u;
  const float e = static_cast<float>(static_cast<i32>(i) >> 23) - (tiny ? 23.0f : 0.0f);
  return {float_of((i & 0x7fffffu) + 0x3f3504f3u) - 1.0f, e};
}
/// (log(1 + f) - f + f^2 / 2) / f^3
ETCH_FN float log_tail(float f) {
  float p = 0x1.b0242ep-5f;
  p = ETCH_FMA(p, f, -0x1.be7a68p-4f);
  p = ETCH_FMA(p, f, 0x1.f00f40p-4f);
  p = ETCH_FMA(p, f, -0x1.010122p-3f);
  p = ETCH_FMA(p, f, 0x1.23036cp-3f);
  p = ETCH_FMA(p, f, -0x1.552f18p-3f);
  p = ETCH_FMA(p, f, 0x1.99a540p-3f);
  p = ETCH_FMA(p, f, -0x1.000070p-2f);
  return ETCH_FMA(p, f, 0x1.555548p-2f);
}
/// log(2^e * (1 + f))
ETCH_FN float log_join(float f, float e) {
  const float z = f * f;
  const float y = ETCH_FMA(log_tail(f), f * z, e * -0x1.05c610p-29f);
  return ETCH_FMA(e, 0x1.62e430p-1f, f + ETCH_FMA(-0.5f, z, y));
}
/// What every logarithm does outside (0, inf): -inf at 0, NaN below, inf at inf.
ETCH_FN float log_edges(float x, float y) {
  y = x < infinity() ? y : x;
  y = x == 0.0f ? -infinity() : y;
  return x < 0.0f ? quiet_nan() : y;
}

ETCH_FN float log(float x) {
  const LogParts s = log_split(x);
  return log_edges(x, log_join(s.f, s.e));
}
ETCH_FN float log2(float x) {
  const LogParts s = log_split(x);
  const float l = log_join(s.f, 0.0f);
  return log_edges(x, ETCH_FMA(l, 0x1.715476p+0f, ETCH_FMA(l, 0x1.4ae0cp-26f, s.e)));
}
ETCH_FN float log10(float x) {
  const LogParts s = log_split(x);
  const float l = log_join(s.f, 0.0f);
  const float low = ETCH_FMA(l, -0x1.5b235ep-27f, s.e * -0x1.ec10c0p-27f);
  return log_edges(x, ETCH_FMA(s.e, 0x1.344136p-2f, ETCH_FMA(l, 0x1.bcb7b2p-2f, low)));
}
/// u = 1 + x loses low bits of x; they are scaled by u's exponent and added to f.
ETCH_FN float log1p(float x) {
  const float u = 1.0f + x;
  const float lost = u < 2.0f ? x - (u - 1.0f) : 1.0f - (u - x);
  const u32 i = bits_of(u) - 0x3f3504f3u;
  const i32 n = static_cast<i32>(i) >> 23;
  const float m = float_of((i & 0x7fffffu) + 0x3f3504f3u);
  const float f = ETCH_FMA(lost, float_of(static_cast<u32>(n < 126 ? 127 - n : 1) << 23), m - 1.0f);
  const float y = log_join(f, static_cast<float>(n));
  return abs(x) < 0x1p-60f ? x : log_edges(u, y);
}

// Error function. Below 0.875 a polynomial in x^2, above it 1 - 2^P(|x|).

/// erf(x) for |x| < 0.875.
ETCH_FN float erf_small(float x) {
  const float z = x * x;
  float p = -0x1.3baac8p-11f;
  p = ETCH_FMA(p, z, 0x1.47842ap-8f);
  p = ETCH_FMA(p, z, -0x1.b69458p-6f);
  p = ETCH_FMA(p, z, 0x1.ce1adep-4f);
  p = ETCH_FMA(p, z, -0x1.8126e8p-2f);
  p = ETCH_FMA(p, z, 0x1.06eba6p-3f);
  return ETCH_FMA(p, x, x);
}
ETCH_FN float erf(float x) {
  float a = abs(x);
  a = a > 3.93f ? 3.93f : a;
  float q = 0x1.3010eep-12f;
  q = ETCH_FMA(q, a, -0x1.245f98p-8f);
  q = ETCH_FMA(q, a, 0x1.08f9aep-5f);
  q = ETCH_FMA(q, a, -0x1.344018p-3f);
  q = ETCH_FMA(q, a, -0x1.d6550cp-1f);
  q = ETCH_FMA(q, a, -0x1.a094a0p+0f);
  q = ETCH_FMA(q, a, -0x1.942a40p-13f);
  const float t = q + exp_shift();
  const float r = q - (t - exp_shift());
  float w = 0x1.5cc5c8p-10f;
  w = ETCH_FMA(w, r, 0x1.3cf4d4p-7f);
  w = ETCH_FMA(w, r, 0x1.c6b58ep-5f);
  w = ETCH_FMA(w, r, 0x1.ebf9a2p-3f);
  w = ETCH_FMA(w, r, 0x1.62e42ap-1f);
  w = ETCH_FMA(w, r, 1.0f);
  const float tail = 1.0f - w * exp_power(exp_int(t));
  return copysign(a < 0.875f ? erf_small(x) : tail, x);
}

/// From 0.5 on e^-x^2 P((a - 3) / (a + 3)) / (1 + 2a) with a = |x|; keeps the denormal tail.
ETCH_FN float erfc(float x) {
  float a = abs(x);
  a = a > 10.1f ? 10.1f : a;
  const float u = (a - 3.0f) / (a + 3.0f);
  float p = -0x1.192724p-12f;
  p = ETCH_FMA(p, u, -0x1.97ad98p-11f);
  p = ETCH_FMA(p, u, 0x1.0661acp-9f);
  p = ETCH_FMA(p, u, 0x1.5082e8p-9f);
  p = ETCH_FMA(p, u, -0x1.85e614p-6f);
  p = ETCH_FMA(p, u, 0x1.17bd4ep-4f);
  p = ETCH_FMA(p, u, -0x1.e888aep-4f);
  p = ETCH_FMA(p, u, 0x1.098410p-3f);
  p = ETCH_FMA(p, u, -0x1.85a194p-5f);
  p = ETCH_FMA(p, u, -0x1.15c08ap-3f);
  p = ETCH_FMA(p, u, 0x1.40c522p+0f);
  p = p / ETCH_FMA(2.0f, a, 1.0f);
  const float z = -a * a;
  const float lost = ETCH_FMA(-a, a, -z);
  const float t = ETCH_FMA(z, 0x1.715476p+0f, exp_shift());
  const float r = exp_reduce(z, t - exp_shift()) + lost;
  const float w = 1.0f + ETCH_FMA(exp_tail(r), r * r, r);
  const float e = exp_scale(w * p, exp_int(t));
  const float tail = x < 0.0f ? 2.0f - e : e;
  return a < 0.5f ? 1.0f - erf_small(x) : tail;
}

// Trigonometry.

/// x = (quadrant + 4k) * pi / 2 + r with |r| <= pi / 4, for every finite x.
struct Quadrant {
  float r;
  i32 quadrant;
};
/// Multiplies by 2 / pi mod 4 in three parts (29, 29 and 53 bits). |x| is first scaled by 2^-27k below 2^50,
/// and the constant is that of 2^27k / (pi / 2) mod 4, so the leading products are exact.
ETCH_FN Quadrant trig_reduce(float x) {
  const float a = abs(x);
  const bool b1 = a >= 0x1p50f, b2 = a >= 0x1p77f, b3 = a >= 0x1p104f;
  const double y = b3 ? x * 0x1p-81f : (b2 ? x * 0x1p-54f : (b1 ? x * 0x1p-27f : x));
  const double c0 = b3 ? -0x1.505c15ap+0 : (b2 ? 0x1.4a7f09ep+0 : (b1 ? -0x1.1b1bbecp-1 : 0x1.45f306cp-1));
  const double c1 = b3 ? 0x1.377036ep-29 : (b2 ? -0x1.4170566p-29 : (b1 ? 0x1.29fc276p-29 : 0x1.c9c882ap-29));
  const double c2 = b3 ? -0x1.d6a66c3bc6fbep-59
                       : (b2 ? 0x1.bb81b6c52b328p-59 : (b1 ? -0x1.05c1596447e49p-58 : 0x1.4fe13abe8fa9ap-59));
  const double shift = 0x1.8p52;
  const double t0 = y * c0, t1 = y * c1;
  const double m0 = t0 + shift, m1 = t1 + shift;
  const double rest = ((t0 - (m0 - shift)) + (t1 - (m1 - shift))) + y * c2;
  const double m2 = rest + shift;
  const double fraction = rest - (m2 - shift);
  const u32 n = static_cast<u32>(bits_of(m0)) + static_cast<u32>(bits_of(m1)) + static_cast<u32>(bits_of(m2));
  return {static_cast<float>(fraction * 0x1.921fb54442d18p+0), static_cast<i32>(n)};
}
/// sin(r) and cos(r) for |r| <= pi / 4.
ETCH_FN float sin_poly(float r) {
  const float z = r * r;
  float p = -0x1.9954a4p-13f;
  p = ETCH_FMA(p, z, 0x1.11077ap-7f);
  p = ETCH_FMA(p, z, -0x1.555546p-3f);
  return ETCH_FMA(p, z * r, r);
}
ETCH_FN float cos_poly(float r) {
  const float z = r * r;
  float p = 0x1.99e80cp-16f;
  p = ETCH_FMA(p, z, -0x1.6c0c28p-10f);
  p = ETCH_FMA(p, z, 0x1.55554ap-5f);
  return ETCH_FMA(p, z * z, ETCH_FMA(-0.5f, z, 1.0f));
}
/// sin(r + quadrant * pi / 2)
ETCH_FN float sin_quadrant(float r, i32 quadrant) {
  const float v = (quadrant & 1) != 0 ? cos_poly(r) : sin_poly(r);
  return float_of(bits_of(v) ^ (static_cast<u32>(quadrant & 2) << 30));
}
ETCH_FN float sin(float x) {
  const Quadrant q = trig_reduce(x);
  const float v = sin_quadrant(q.r, q.quadrant);
  return x == 0.0f ? x : v;
}
ETCH_FN float cos(float x) {
  const Quadrant q = trig_reduce(x);
  return sin_quadrant(q.r, q.quadrant + 1);
}
ETCH_FN float tan(float x) {
  const Quadrant q = trig_reduce(x);
  const float s = sin_poly(q.r), c = cos_poly(q.r);
  const bool odd = (q.quadrant & 1) != 0;
  const float v = (odd ? -c : s) / (odd ? s : c);
  return x == 0.0f ? x : v;
}
ETCH_FN float atan(float x) {
  const float a = abs(x);
  const bool large = a > 1.0f;
  const float v = large ? 1.0f / a : a;
  const float z = v * v;
  float p = -0x1.dcc5b0p-10f;
  p = ETCH_FMA(p, z, 0x1.697c12p-7f);
  p = ETCH_FMA(p, z, -0x1.013da2p-5f);
  p = ETCH_FMA(p, z, 0x1.dca5ccp-5f);
  p = ETCH_FMA(p, z, -0x1.58bf6ep-4f);
  p = ETCH_FMA(p, z, 0x1.c0c920p-4f);
  p = ETCH_FMA(p, z, -0x1.24262ap-3f);
  p = ETCH_FMA(p, z, 0x1.999266p-3f);
  p = ETCH_FMA(p, z, -0x1.555540p-2f);
  p = ETCH_FMA(p, z * v, v);
  return copysign(large ? 0x1.921fb6p+0f - (p + 0x1.777a5cp-25f) : p, x);
}

/// |x|^y as 2^(y log2|x|) in double; C's rules for signs, zeros, infinities and NaN.
ETCH_FN float pow(float x, float y) {
  const float ax = abs(x);
  const bool tiny = ax < 0x1p-126f;
  const u32 i = bits_of(tiny ? ax * 0x1p23f : ax) - 0x3f3504f3u;
  const double e = static_cast<float>(static_cast<i32>(i) >> 23) - (tiny ? 23.0f : 0.0f);
  const double f = float_of((i & 0x7fffffu) + 0x3f3504f3u) - 1.0f;
  double p = -0x1.1da6c8a50bffdp-4;
  p = ETCH_FMAD(p, f, 0x1.0f62653b1ffe1p-3);
  p = ETCH_FMAD(p, f, -0x1.13b87fb24fdcbp-3);
  p = ETCH_FMAD(p, f, 0x1.0acdf64b6e1dcp-3);
  p = ETCH_FMAD(p, f, -0x1.23d6553b2354ep-3);
  p = ETCH_FMAD(p, f, 0x1.481fac67cdc61p-3);
  p = ETCH_FMAD(p, f, -0x1.7188d286178a3p-3);
  p = ETCH_FMAD(p, f, 0x1.a61b7dd43360ep-3);
  p = ETCH_FMAD(p, f, -0x1.ec6f2e07fb2dep-3);
  p = ETCH_FMAD(p, f, 0x1.2776b6cce9e83p-2);
  p = ETCH_FMAD(p, f, -0x1.71547888295ebp-2);
  p = ETCH_FMAD(p, f, 0x1.ec709de33cb12p-2);
  p = ETCH_FMAD(p, f, -0x1.71547651b7161p-1);
  p = ETCH_FMAD(p, f, 0x1.71547652b58f7p+0);
  const double log2x = ETCH_FMAD(p, f, e);
  double t = static_cast<double>(y) * log2x;
  t = t < -200.0 ? -200.0 : t;
  t = t > 200.0 ? 200.0 : t;
  const double shifted = t + 0x1.8p52;
  const double r = t - (shifted - 0x1.8p52);
  double w = 0x1.fe175c33f3d80p-17;
  w = ETCH_FMAD(w, r, 0x1.446a443401c74p-13);
  w = ETCH_FMAD(w, r, 0x1.5d8a7105564bbp-10);
  w = ETCH_FMAD(w, r, 0x1.3b29dc13cb5a7p-7);
  w = ETCH_FMAD(w, r, 0x1.c6b08aae5903cp-5);
  w = ETCH_FMAD(w, r, 0x1.ebfbe0a4f3e91p-3);
  w = ETCH_FMAD(w, r, 0x1.62e42ff116bb9p-1);
  w = ETCH_FMAD(w, r, 1.0);
  float v = static_cast<float>(double_of(bits_of(w) + (bits_of(shifted) << 52)));
  // Zero and infinite bases, then negative ones, then what gives 1 even for NaN.
  const bool falling = y < 0.0f;
  v = ax == 0.0f ? (falling ? infinity() : 0.0f) : v;
  v = ax == infinity() ? (falling ? 0.0f : infinity()) : v;
  v = ((ax == 1.0f) & (abs(y) == infinity())) ? 1.0f : v;
  const float half = 0.5f * y;
  const bool whole = trunc(y) == y;
  const bool odd = whole & (trunc(half) != half);
  v = float_of(bits_of(v) ^ (odd ? bits_of(x) & 0x80000000u : 0u));
  v = ((x < 0.0f) & (ax < infinity()) & !whole) ? quiet_nan() : v;
  v = ((x != x) | (y != y)) ? x + y : v;
  return ((x == 1.0f) | (y == 0.0f)) ? 1.0f : v;
}

// double, through libm.

ETCH_FN double exp(double x) { return ETCH_LIBM(exp)(x); }
ETCH_FN double exp2(double x) { return ETCH_LIBM(exp2)(x); }
ETCH_FN double expm1(double x) { return ETCH_LIBM(expm1)(x); }
ETCH_FN double log(double x) { return ETCH_LIBM(log)(x); }
ETCH_FN double log2(double x) { return ETCH_LIBM(log2)(x); }
ETCH_FN double log10(double x) { return ETCH_LIBM(log10)(x); }
ETCH_FN double log1p(double x) { return ETCH_LIBM(log1p)(x); }
ETCH_FN double tanh(double x) { return ETCH_LIBM(tanh)(x); }
ETCH_FN double erf(double x) { return ETCH_LIBM(erf)(x); }
ETCH_FN double erfc(double x) { return ETCH_LIBM(erfc)(x); }
ETCH_FN double sin(double x) { return ETCH_LIBM(sin)(x); }
ETCH_FN double cos(double x) { return ETCH_LIBM(cos)(x); }
ETCH_FN double tan(double x) { return ETCH_LIBM(tan)(x); }
ETCH_FN double atan(double x) { return ETCH_LIBM(atan)(x); }
ETCH_FN double pow(double x, double y) { return ETCH_LIBM(pow)(x, y); }
ETCH_FN double sigmoid(double x) {
  const double e = exp(-abs(x));
  return (x < 0.0 ? e : 1.0) / (1.0 + e);
}

/// Python's %: the sign of b; NaN for b = 0.
template <class T>
ETCH_FN T remainder_floating(T a, T b) {
  const T m = fmod(a, b);
  return ((m != T(0)) & ((m < T(0)) != (b < T(0)))) ? m + b : m;
}
/// Python's //: floor of the exact quotient; a / b for b = 0.
template <class T>
ETCH_FN T floor_divide_floating(T a, T b) {
  const T m = fmod(a, b);
  T q = (a - m) / b;
  q = ((m != T(0)) & ((b < T(0)) != (m < T(0)))) ? q - T(1) : q;
  const T whole = floor(q);
  const T rounded = q - whole > T(0.5) ? whole + T(1) : whole;
  const T exact = a / b;
  return b == T(0) ? exact : (q == T(0) ? copysign(T(0), exact) : rounded);
}

// Integers wrap. Division by zero is reported elsewhere; here it gives 0.

/// Quotient towards zero; the most negative value by -1 wraps.
template <class T>
ETCH_FN T divide_integer(T a, T b) {
  const bool negate = (T(-1) < T(0)) & (b == T(-1));
  const T q = static_cast<T>(a / (((b == T(0)) | negate) ? T(1) : b));
  return b == T(0) ? T(0) : (negate ? static_cast<T>(0 - static_cast<u64>(a)) : q);
}
/// Quotient towards negative infinity; the most negative value by -1 wraps. Up to 32 bits through double,
/// which is exact there and vectorises.
template <class T>
ETCH_FN T floor_divide(T a, T b) {
  if constexpr (kFloating<T>) {
    return floor_divide_floating(a, b);
  } else if constexpr ((sizeof(T) < 4 || kSame<T, i32>)&&!ETCH_SCALAR_CUDA) {
    const double q = floor(static_cast<double>(a) / static_cast<double>(b == T(0) ? T(1) : b));
    return b == T(0) ? T(0) : static_cast<T>(static_cast<i32>(q > 0x1.fffffffcp30 ? -0x1p31 : q));
  } else {
    const T q = divide_integer(a, b);
    const T m = static_cast<T>(static_cast<u64>(a) - static_cast<u64>(q) * static_cast<u64>(b));
    return ((b != T(0)) & (m != T(0)) & ((m < T(0)) != (b < T(0)))) ? static_cast<T>(q - 1) : q;
  }
}
/// a - b * floor_divide(a, b): the sign of b; for integers 0 where b is 0.
template <class T>
ETCH_FN T remainder(T a, T b) {
  if constexpr (kFloating<T>) {
    return remainder_floating(a, b);
  } else {
    const u64 q = static_cast<u64>(floor_divide(a, b));
    return b == T(0) ? T(0) : static_cast<T>(static_cast<u64>(a) - q * static_cast<u64>(b));
  }
}
/// C's %: the sign of a.
template <class T>
ETCH_FN T fmod(T a, T b) {
  const u64 q = static_cast<u64>(divide_integer(a, b));
  return b == T(0) ? T(0) : static_cast<T>(static_cast<u64>(a) - q * static_cast<u64>(b));
}
/// A negative exponent gives 0 except for bases 1 and -1.
template <class T>
ETCH_FN T pow(T base, T exponent) {
  const bool odd = (exponent & 1) != 0;
  if (exponent < T(0)) return base == T(1) ? T(1) : (base == T(-1) ? (odd ? T(-1) : T(1)) : T(0));
  u64 result = 1, square = static_cast<u64>(base);
  for (u64 n = static_cast<u64>(exponent); n != 0; n >>= 1) {
    if ((n & 1) != 0) result *= square;
    square *= square;
  }
  return static_cast<T>(result);
}
template <class T>
ETCH_FN T abs(T x) {
  return x < T(0) ? static_cast<T>(0 - static_cast<u64>(x)) : x;
}
template <class T>
ETCH_FN T max(T a, T b) {
  return a > b ? a : b;
}
template <class T>
ETCH_FN T min(T a, T b) {
  return a < b ? a : b;
}
template <class T>
ETCH_FN T sign(T x) {
  return static_cast<T>((x > T(0)) - (x < T(0)));
}

template <class T>
ETCH_FN bool isnan(T) {
  return false;
}
template <class T>
ETCH_FN bool isinf(T) {
  return false;
}
template <class T>
ETCH_FN bool isfinite(T) {
  return true;
}

/// The neutral elements of max and min: infinities, or the ends of an integer type's range.
template <class T>
ETCH_FN T highest() {
  if constexpr (kFloating<T>) {
    return static_cast<T>(infinity());
  } else if constexpr (kSame<T, bool>) {
    return true;
  } else {
    return static_cast<T>(~u64(0) >> (64 - 8 * sizeof(T) + (T(-1) < T(0) ? 1 : 0)));
  }
}
template <class T>
ETCH_FN T lowest() {
  if constexpr (kFloating<T>) {
    return -highest<T>();
  } else {
    return static_cast<T>(T(-1) < T(0) ? -static_cast<i64>(highest<T>()) - 1 : 0);
  }
}

// Conversions.

/// Towards zero; clamped to i32 or i64, NaN gives 0.
template <class From>
ETCH_FN i32 to_i32(From x) {
  const From low = From(-0x1p31), high = kSame<From, float> ? From(0x1.fffffep30) : From(0x1.fffffffcp30);
  From c = x > low ? x : low;
  c = c < high ? c : high;
  const i32 i = static_cast<i32>(c);
  return x != x ? 0 : (x >= From(0x1p31) ? 0x7fffffff : i);
}
template <class From>
ETCH_FN i64 to_i64(From x) {
  const From low = From(-0x1p63),
             high = kSame<From, float> ? From(0x1.fffffep62) : From(0x1.fffffffffffffp62);
  From c = x > low ? x : low;
  c = c < high ? c : high;
  const i64 i = static_cast<i64>(c);
  return x != x ? 0 : (x >= From(0x1p63) ? 0x7fffffffffffffffll : i);
}
/// Conversion between bool, integers, float and double. Anything to bool is x != 0; floating to integer
/// truncates and clamps to i32 (i64 for 64 bits), NaN gives 0; narrower integers then keep the low bits, as
/// integers do.
template <class To, class From>
ETCH_FN To cast(From x) {
  if constexpr (kSame<To, bool>) {
    return x != From(0);
  } else if constexpr (kFloating<From> && !kFloating<To>) {
    if constexpr (sizeof(To) == 8) {
      return static_cast<To>(to_i64(x));
    } else {
      return static_cast<To>(to_i32(x));
    }
  } else {
    return static_cast<To>(x);
  }
}

ETCH_FN float bfloat16_to_float(u16 b) { return float_of(static_cast<u32>(b) << 16); }
/// Nearest, ties to even; NaN stays NaN, made quiet.
ETCH_FN u16 float_to_bfloat16(float x) {
  const u32 b = bits_of(x);
  const u32 rounded = (b + 0x7fffu + ((b >> 16) & 1u)) >> 16;
  return static_cast<u16>(x != x ? (b >> 16) | 0x40u : rounded);
}
ETCH_FN float half_to_float(u16 h) {
  const u32 shifted = (static_cast<u32>(h) & 0x7fffu) << 13;
  const u32 normal = shifted + (112u << 23);
  const u32 special = shifted + (224u << 23);
  const u32 denormal = bits_of(float_of(shifted + (113u << 23)) - 0x1p-14f);
  const u32 magnitude = shifted >= 0x0f800000u ? special : (shifted < 0x00800000u ? denormal : normal);
  return float_of(magnitude | ((static_cast<u32>(h) & 0x8000u) << 16));
}
/// Nearest, ties to even; infinity on overflow; NaN stays NaN, made quiet.
ETCH_FN u16 float_to_half(float x) {
  const u32 b = bits_of(x) & 0x7fffffffu;
  const u32 normal = (b + 0xfffu + ((b >> 13) & 1u) - (112u << 23)) >> 13;
  const u32 denormal = bits_of(float_of(b) + 0.5f) - 0x3f000000u;
  u32 h = b < 0x38800000u ? denormal : normal;
  h = b >= 0x47800000u ? 0x7c00u : h;
  h = b > 0x7f800000u ? 0x7e00u | ((b >> 13) & 0x1ffu) : h;
  return static_cast<u16>(h | ((bits_of(x) >> 16) & 0x8000u));
}

// Random numbers: Philox4x32-10. Element i of an op is lane i % 4 of the block at counter offset + i / 4.

struct Random4 {
  u32 a, b, c, d;
};
ETCH_FN Random4 philox4x32(u32 key_lo, u32 key_hi, u32 c0, u32 c1, u32 c2, u32 c3) {
#if defined(__AVX512DQ__) && !ETCH_SCALAR_CUDA
  using Word = u64;  // vectorises best where 64-bit lanes multiply
#else
  using Word = u32;
#endif
  Word w0 = c0, w1 = c1, w2 = c2, w3 = c3;
  for (int round = 0; round < 10; ++round) {
    const u64 p0 = static_cast<u64>(w0 & 0xffffffffu) * 0xD2511F53u;
    const u64 p1 = static_cast<u64>(w2 & 0xffffffffu) * 0xCD9E8D57u;
    w0 = static_cast<Word>(p1 >> 32) ^ w1 ^ key_lo;
    w2 = static_cast<Word>(p0 >> 32) ^ w3 ^ key_hi;
    w1 = static_cast<Word>(p1) & 0xffffffffu;
    w3 = static_cast<Word>(p0) & 0xffffffffu;
    key_lo += 0x9E3779B9u;
    key_hi += 0xBB67AE85u;
  }
  return {static_cast<u32>(w0), static_cast<u32>(w1), static_cast<u32>(w2), static_cast<u32>(w3)};
}
ETCH_FN Random4 random_block(u64 seed, u64 counter) {
  return philox4x32(static_cast<u32>(seed), static_cast<u32>(seed >> 32), static_cast<u32>(counter),
                    static_cast<u32>(counter >> 32), 0, 0);
}
ETCH_FN u32 random_u32(u64 seed, u64 offset, u64 index) {
  const Random4 r = random_block(seed, offset + index / 4);
  const u32 lane = static_cast<u32>(index) & 3u;
  const u32 low = (lane & 1u) != 0 ? r.b : r.a;
  const u32 high = (lane & 1u) != 0 ? r.d : r.c;
  return (lane & 2u) != 0 ? high : low;
}
/// out[j] = random_u32(seed, offset, first + j); a quarter of the work where first and count are multiples
/// of 4.
ETCH_FN void random_fill(u64 seed, u64 offset, u64 first, u32* out, i64 count) {
  if (((first | static_cast<u64>(count)) & 3u) != 0) {
    for (i64 j = 0; j < count; ++j) out[j] = random_u32(seed, offset, first + static_cast<u64>(j));
    return;
  }
  const u64 start = offset + first / 4;
  for (i64 block = 0; block < count / 4; ++block) {
    const Random4 r = random_block(seed, start + static_cast<u64>(block));
    out[4 * block] = r.a;
    out[4 * block + 1] = r.b;
    out[4 * block + 2] = r.c;
    out[4 * block + 3] = r.d;
  }
}
/// A multiple of 2^-24 in [0, 1).
ETCH_FN float uniform01(u32 r) { return static_cast<float>(static_cast<i32>(r >> 8)) * 0x1p-24f; }
ETCH_FN float random_uniform(u64 seed, u64 offset, u64 index) {
  return uniform01(random_u32(seed, offset, index));
}
/// cos(2 pi (r / 2^32 - quarter_turns / 4)); the turn is reduced in integers.
ETCH_FN float cos_turn(u32 r, u32 quarter_turns) {
  const i32 quadrant = static_cast<i32>((r + 0x20000000u) >> 30);
  const i32 rest = static_cast<i32>(r - (static_cast<u32>(quadrant) << 30));
  const float angle = static_cast<float>(rest >> 6) * (0x1.921fb6p+0f * 0x1p-24f);
  return sin_quadrant(angle, quadrant + 1 - static_cast<i32>(quarter_turns));
}
/// Box-Muller: radius from a, angle from b. |result| <= 5.77.
ETCH_FN float normal_from(u32 a, u32 b) {
  const float u = static_cast<float>(static_cast<i32>(a >> 8) + 1) * 0x1p-24f;
  return sqrt(-2.0f * log(u)) * cos_turn(b, 0);
}
/// Lanes 0 and 1 of a block share a radius and take cosine and sine; lanes 2 and 3 likewise.
ETCH_FN float standard_normal(u64 seed, u64 offset, u64 index) {
  const Random4 r = random_block(seed, offset + index / 4);
  const u32 lane = static_cast<u32>(index) & 3u;
  const u32 a = (lane & 2u) != 0 ? r.c : r.a;
  const u32 b = (lane & 2u) != 0 ? r.d : r.b;
  const float u = static_cast<float>(static_cast<i32>(a >> 8) + 1) * 0x1p-24f;
  return sqrt(-2.0f * log(u)) * cos_turn(b, lane & 1u);
}

}  // namespace etch::scalar
