/* SPDX-License-Identifier: MIT
 *
 * The random order without repetition is a Feistel network of four rounds over the smallest even number of bits that
 * numbers all blocks; numbers that fall outside are sent through again until they fall inside. So it takes no memory
 * and any range, and each round over the range has a key of its own. Pure: no clock, no I/O.
 */
#include "jobs/pattern.h"

#define FEISTEL_ROUNDS 4u

uint64_t pattern_random(uint64_t *state) {
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

uint64_t pattern_mix(uint64_t a, uint64_t b) {
    uint64_t state = a ^ (b * UINT64_C(0xd6e8feb86659fd93));
    return pattern_random(&state);
}

void pattern_start(struct pattern *pattern, const struct pattern_options *options) {
    *pattern = (struct pattern){.options = *options, .state = options->seed, .half_bits = 1};
    pattern->blocks = (options->size - options->bs) / options->stride + 1;
    while (pattern->half_bits < 31 && (UINT64_C(1) << (2 * pattern->half_bits)) < pattern->blocks) pattern->half_bits++;
    pattern->round_key = pattern_mix(options->seed, 1);
}

static uint64_t permute(const struct pattern *pattern, uint64_t number) {
    const uint64_t mask = (UINT64_C(1) << pattern->half_bits) - 1;
    do {
        uint64_t left = number >> pattern->half_bits, right = number & mask;
        for (unsigned round = 0; round < FEISTEL_ROUNDS; round++) {
            const uint64_t mixed = left ^ (pattern_mix(pattern->round_key + round, right) & mask);
            left = right;
            right = mixed;
        }
        number = left << pattern->half_bits | right;
    } while (number >= pattern->blocks);
    return number;
}

static uint64_t next_block(struct pattern *pattern) {
    const uint64_t place = pattern->next % pattern->blocks, round = pattern->next / pattern->blocks;
    pattern->next++;
    if (!pattern->options.random) return place;
    if (pattern->options.norandommap) return pattern_random(&pattern->state) % pattern->blocks;
    if (place == 0) pattern->round_key = pattern_mix(pattern->options.seed, round + 1);
    return permute(pattern, place);
}

static enum pattern_verb next_verb(struct pattern *pattern) {
    const struct pattern_options *options = &pattern->options;
    const unsigned total = options->reads + options->writes + options->trims;
    if (options->reads == total) return PATTERN_READ;
    if (options->writes == total) return PATTERN_WRITE;
    const unsigned drawn = (unsigned) (pattern_random(&pattern->state) % total);
    if (drawn < options->reads) return PATTERN_READ;
    return drawn < options->reads + options->writes ? PATTERN_WRITE : PATTERN_TRIM;
}

uint64_t pattern_offset(const struct pattern *pattern, uint64_t block) { return pattern->options.offset + block * pattern->options.stride; }

struct pattern_operation pattern_next(struct pattern *pattern) {
    const uint64_t block = next_block(pattern);
    return (struct pattern_operation){.verb = next_verb(pattern), .block = block, .offset = pattern_offset(pattern, block)};
}
