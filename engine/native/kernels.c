/* Compiles the same loops for each instruction set and selects one at run time. */
#include "kernels.h"

#include <float.h>
#include <math.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#define INLINE inline __attribute__((always_inline))
#define ALIGNED __attribute__((aligned(64)))
/* Per lane: a if the comparison is true, else b. */
#define PICK(mask, a, b) ((__typeof__(b))(((__typeof__(mask))(a) & (mask)) | ((__typeof__(mask))(b) & ~(mask))))

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) /* clang has no target pragma */
#define SEVERAL
#include <immintrin.h>
#if __GNUC__ >= 10
#define WITH_BF16
#endif
#if __GNUC__ >= 10 && defined(__linux__)
#define WITH_TILES
#include "amx/tiles.h"
#endif
#endif

/* Set with the level of instructions, before anything is computed. */
static int widens;             /* bf16 is multiplied as float32, see wide_pairs.h */
static int fetches_to_level_2; /* see fetch in int8.h */

#define NAME(x) plain_##x
#define LANES 4
#include "section.h"
#ifdef SEVERAL
#pragma GCC push_options
#pragma GCC target("avx2,fma")
#define NAME(x) avx2_##x
#define LANES 8
#include "section.h"
#pragma GCC pop_options
#pragma GCC push_options
#pragma GCC target("prfchw,avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,prefer-vector-width=512")
#define NAME(x) avx512_##x
#define LANES 16
#include "section.h"
#pragma GCC pop_options
#ifdef WITH_BF16
#pragma GCC push_options
#pragma GCC target("prfchw,avx512bf16,avx512vnni,avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,prefer-vector-width=512")
#define NAME(x) bf16_##x
#define LANES 16
#define PAIRS
#define QUADS
#include "section.h"
#pragma GCC pop_options
#endif
#ifdef WITH_TILES
#pragma GCC push_options
#pragma GCC target("prfchw,avx512bf16,avx512vnni,avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,prefer-vector-width=512")
#define NAME(x) amx_##x
#define LANES 16
#define PAIRS
#define QUADS
#define TILES
#include "section.h"
#pragma GCC pop_options
#endif
#endif

int sluice_abi(void) { return ABI; }

static int find_level(void) {
#ifdef SEVERAL
    __builtin_cpu_init();
    fetches_to_level_2 = __builtin_cpu_is("intel") != 0;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("fma")) {
#ifdef WITH_BF16
        if (__builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512vnni")) {
            widens = bf16_pairs_are_slow();
#ifdef WITH_TILES
            if (tiles_usable())
                return 4;
#endif
            return 3;
        }
#endif
        return 2;
    }
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return 1;
#endif
    return 0;
}

int sluice_level(void) {
    static _Atomic int known = -1; /* CPUID takes microseconds in a virtual machine */
    int level = atomic_load_explicit(&known, memory_order_relaxed);
    if (level < 0) {
        level = find_level();
        atomic_store_explicit(&known, level, memory_order_relaxed);
    }
    return level;
}

int sluice_widens(int choice) {
    if (sluice_level() >= 3 && choice >= 0)
        widens = choice;
    return widens;
}

const struct kernels *kernels_of(int level) {
    const int best = sluice_level();
    level = level < best ? level : best;
#ifdef SEVERAL
#ifdef WITH_TILES
    if (level >= 4)
        return &amx_kernels;
#endif
#ifdef WITH_BF16
    if (level >= 3)
        return &bf16_kernels;
#endif
    if (level >= 2)
        return &avx512_kernels;
    if (level == 1)
        return &avx2_kernels;
#endif
    return &plain_kernels;
}
