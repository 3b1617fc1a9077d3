/* SPDX-License-Identifier: MIT
 *
 * A sorted set of disjoint half-open ranges of 64-bit numbers; neighbours that touch become one.
 * Unit-free: the caller says whether it holds bytes or clusters.
 */
#ifndef QCOW2_BASE_RANGES_H
#define QCOW2_BASE_RANGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct range {
    uint64_t start, end;
};

static inline bool range_empty(const struct range *range) { return range->start == range->end; }

/* Makes the range span [start, end) too, and whatever lies between. */
static inline void range_widen(struct range *range, uint64_t start, uint64_t end) {
    const bool empty = range_empty(range);
    if (empty || start < range->start) range->start = start;
    if (empty || end > range->end) range->end = end;
}

struct ranges {
    struct range *items; /* sorted, disjoint, not touching */
    size_t count, capacity;
};

/* Adds [start, end). Returns 0 or -ENOMEM (nothing changed then). */
int ranges_add(struct ranges *set, uint64_t start, uint64_t end);

/* Takes [start, end) out, wherever it was in. Returns 0 or -ENOMEM (a split needs room; nothing changed then). */
int ranges_remove(struct ranges *set, uint64_t start, uint64_t end);

/* The first item that ends after `start`, or NULL: the one that holds `start`, or else the next one above it. */
const struct range *ranges_at_or_after(const struct ranges *set, uint64_t start);

/* Whether any number of [start, end) is in the set. */
bool ranges_overlap(const struct ranges *set, uint64_t start, uint64_t end);

/* The sum of all lengths. */
uint64_t ranges_total(const struct ranges *set);

/* Empties the set and gives its memory back. */
void ranges_clear(struct ranges *set);

#endif
