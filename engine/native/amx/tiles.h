/* AMX's eight tile registers, and whether a process may use them. Included by kernels.c, before the sections.
 *
 * A tile has up to 16 rows of 64 bytes. TILE_DOT_PAIRS(c, a, b) adds the product of a's rows, pairs of bf16, with b, whose
 * rows are pairs of inputs with one pair per output; TILE_DOT_BYTES does so with unsigned times signed bytes, in groups of
 * four. Panels and transposed keys have that layout already, because AVX-512's instructions want it too.
 *
 * With EMULATED_TILES the same code runs on a processor without AMX, for tests: a use that AMX would refuse aborts.
 */
#ifndef SLUICE_TILES_H
#define SLUICE_TILES_H
#include <stdint.h>

#define TILE_ROWS 16
#define TILE_BYTES 64

struct tile_shapes { /* operand of the instruction that configures the tiles: palette 1 */
    uint8_t palette, start_row, reserved[14];
    uint16_t bytes[16]; /* of a row of each tile; the last eight are reserved */
    uint8_t rows[16];
};

#ifdef EMULATED_TILES
#include "emulated.h"
#else
/* By assembler: GCC's own functions do not say that they read memory, so that it may drop what was written there. */
#define TILE_CONFIGURE(shapes) __asm__ volatile("ldtilecfg (%0)" ::"r"(shapes) : "memory")
#define TILE_RELEASE() __asm__ volatile("tilerelease" ::: "memory")
#define TILE_ZERO(tile) __asm__ volatile("tilezero %%tmm" #tile ::: "memory")
#define TILE_LOAD(tile, from, stride) \
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #tile ::"r"(from), "r"((int64_t)(stride)) : "memory")
#define TILE_STORE(tile, to, stride) \
    __asm__ volatile("tilestored %%tmm" #tile ", (%0,%1,1)" ::"r"(to), "r"((int64_t)(stride)) : "memory")
#define TILE_DOT_PAIRS(c, a, b) __asm__ volatile("tdpbf16ps %%tmm" #b ", %%tmm" #a ", %%tmm" #c ::: "memory")
#define TILE_DOT_BYTES(c, a, b) __asm__ volatile("tdpbusd %%tmm" #b ", %%tmm" #a ", %%tmm" #c ::: "memory")

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ARCH_REQ_XCOMP_PERM 0x1023
#define XFEATURE_XTILEDATA 18

/* Returns 1 if the processor has tiles for bf16 and bytes, and the system lets this process use them. */
static int tiles_usable(void) {
    unsigned a, b, c, d;
    const unsigned wanted = 1u << 22 | 1u << 24 | 1u << 25; /* amx-bf16, amx-tile, amx-int8 */
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d & wanted) != wanted)
        return 0;
    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
}
#endif
#endif
