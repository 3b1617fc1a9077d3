/* SPDX-License-Identifier: MIT
 *
 * The least a unit program needs: CHECK, a seeded generator, and a last line. Any thread may CHECK.
 * The first failed check prints where, what and the seed, and ends the program. UNIT_SEED=n repeats a run.
 */
#ifndef QCOW2_SPEC_UNIT_H
#define QCOW2_SPEC_UNIT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static _Atomic uint64_t unit_checks;
static uint64_t unit_seed;

static inline void unit_check(bool passed, const char *what, const char *file, int line) {
    unit_checks++;
    if (passed) return;
    fprintf(stderr, "%s:%d: failed: %s (UNIT_SEED=%llu)\n", file, line, what, (unsigned long long) unit_seed);
    exit(1);
}
#define CHECK(condition) unit_check((condition), #condition, __FILE__, __LINE__)

/* Reads UNIT_SEED, or takes 1. */
static inline void unit_start(void) {
    const char *seed = getenv("UNIT_SEED");
    unit_seed = seed ? strtoull(seed, NULL, 10) : 1;
}

static inline int unit_end(const char *name) {
    printf("%s: %llu checks passed\n", name, (unsigned long long) unit_checks);
    return 0;
}

/* The next number of a generator whose state is the caller's. */
static inline uint64_t unit_random(uint64_t *state) {
    uint64_t mixed = *state += UINT64_C(0x9e3779b97f4a7c15);
    mixed = (mixed ^ mixed >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    mixed = (mixed ^ mixed >> 27) * UINT64_C(0x94d049bb133111eb);
    return mixed ^ mixed >> 31;
}

/* A number below `limit`. */
static inline uint64_t unit_below(uint64_t *state, uint64_t limit) { return unit_random(state) % limit; }

#endif
