/* SPDX-License-Identifier: MIT
 *
 * Where and what the next operation of a job is. Sequential patterns step through the job's range; random ones visit every block once in
 * an order that the seed gives (a permutation computed, not stored), round after round; with norandommap each is drawn anew.
 */
#ifndef QCOW2_JOBS_PATTERN_H
#define QCOW2_JOBS_PATTERN_H

#include <stdbool.h>
#include <stdint.h>

enum pattern_verb {
    PATTERN_READ,
    PATTERN_WRITE,
    PATTERN_TRIM
};

struct pattern_options {
    unsigned reads, writes, trims; /* shares; their sum is more than 0 */
    bool random, norandommap;
    uint64_t offset, size; /* bytes: the job's range */
    uint64_t bs;           /* bytes an operation; the range holds at least one */
    uint64_t stride;       /* bytes from one block's start to the next one's */
    uint64_t seed;
};

struct pattern {
    struct pattern_options options;
    uint64_t blocks, next; /* blocks of the range, and how many operations were given out */
    uint64_t state;        /* of the generator */
    uint64_t round_key;    /* of the permutation in use */
    unsigned half_bits;    /* the permutation works on 2 × half_bits bits */
};

struct pattern_operation {
    enum pattern_verb verb;
    uint64_t offset; /* bytes */
    uint64_t block;  /* its number within the range */
};

/* 64 bits that depend on the state alone; moves it on (splitmix64). */
uint64_t pattern_random(uint64_t *state);

/* Mixes two numbers into 64 bits. */
uint64_t pattern_mix(uint64_t a, uint64_t b);

void pattern_start(struct pattern *pattern, const struct pattern_options *options);

/* Where a block begins, in bytes. */
uint64_t pattern_offset(const struct pattern *pattern, uint64_t block);

struct pattern_operation pattern_next(struct pattern *pattern);

#endif
