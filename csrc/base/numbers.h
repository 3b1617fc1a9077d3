/* SPDX-License-Identifier: MIT
 *
 * A map from 64-bit numbers to 64-bit numbers. Nothing is ever taken out; UINT64_MAX is no key.
 * Unit-free: the caller says what the numbers are.
 */
#ifndef QCOW2_BASE_NUMBERS_H
#define QCOW2_BASE_NUMBERS_H

#include <stdint.h>

struct number_pair {
    uint64_t key, value; /* key UINT64_MAX: a free place */
};

struct numbers { /* all zero: empty */
    struct number_pair *pairs;
    uint64_t capacity, count; /* places, a power of two or 0; taken */
};

/* The value's place, made with value 0 if the key is new; NULL when there is no memory. It moves at the next numbers_put. */
uint64_t *numbers_put(struct numbers *map, uint64_t key);

/* The value's place, or NULL. */
uint64_t *numbers_get(const struct numbers *map, uint64_t key);

/* Empties the map and gives its memory back. */
void numbers_clear(struct numbers *map);

#endif
