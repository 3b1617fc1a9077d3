/* SPDX-License-Identifier: MIT
 *
 * A sorted array of disjoint ranges; searches are binary, changes move the tail.
 *
 * Invariant: items[i].start < items[i].end < items[i + 1].start. Both changes first find the items that the new
 * range meets, then replace them by what is left: one item (add) or up to two stumps (remove). Room is made
 * before anything is changed, so a failure changes nothing.
 * Not thread-safe, never shrinks its array before ranges_clear. Called by the metadata rooms and by specs.
 */
#include "base/ranges.h"

#include <errno.h>

#include <string.h>

#include "base/bytes.h"
#include "base/memory.h"

/* The index of the first item that ends at `number` or later (touching = true), or after it (false). */
static size_t first_ending(const struct ranges *set, uint64_t number, bool touching) {
    size_t low = 0, high = set->count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        const uint64_t end = set->items[middle].end;
        if (touching ? end >= number : end > number) high = middle;
        else low = middle + 1;
    }
    return low;
}

static int make_room(struct ranges *set, size_t count) {
    if (count <= set->capacity) return 0;
    size_t bytes, capacity = set->capacity ? set->capacity * 2 : 8;
    if (__builtin_mul_overflow(capacity, sizeof *set->items, &bytes)) return -ENOMEM;
    struct range *items = memory_resize(set->items, bytes);
    if (!items) return -ENOMEM;
    set->items = items;
    set->capacity = capacity;
    return 0;
}

/* Puts `count` ranges in the place of the `dropped` items from `index` on. */
static int replace(struct ranges *set, size_t index, size_t dropped, const struct range *with, size_t count) {
    const int result = make_room(set, set->count - dropped + count);
    if (result < 0) return result;
    const size_t behind = set->count - index - dropped;
    if (behind > 0) memmove(set->items + index + count, set->items + index + dropped, behind * sizeof *set->items);
    if (count > 0) memcpy(set->items + index, with, count * sizeof *set->items);
    set->count = set->count - dropped + count;
    return 0;
}

int ranges_add(struct ranges *set, uint64_t start, uint64_t end) {
    if (start >= end) return 0;
    const size_t first = first_ending(set, start, true);
    size_t last = first;
    struct range merged = {start, end};
    while (last < set->count && set->items[last].start <= end) {
        merged.start = min_u64(merged.start, set->items[last].start);
        merged.end = max_u64(merged.end, set->items[last].end);
        last++;
    }
    return replace(set, first, last - first, &merged, 1);
}

int ranges_remove(struct ranges *set, uint64_t start, uint64_t end) {
    if (start >= end) return 0;
    const size_t first = first_ending(set, start, false);
    size_t last = first, count = 0;
    struct range stumps[2];
    while (last < set->count && set->items[last].start < end) {
        const struct range item = set->items[last++];
        if (item.start < start) stumps[count++] = (struct range){item.start, start};
        if (item.end > end) stumps[count++] = (struct range){end, item.end};
    }
    return replace(set, first, last - first, stumps, count);
}

const struct range *ranges_at_or_after(const struct ranges *set, uint64_t start) {
    const size_t index = first_ending(set, start, false);
    return index < set->count ? &set->items[index] : NULL;
}

bool ranges_overlap(const struct ranges *set, uint64_t start, uint64_t end) {
    const struct range *item = ranges_at_or_after(set, start);
    return start < end && item && item->start < end;
}

uint64_t ranges_total(const struct ranges *set) {
    uint64_t total = 0;
    for (size_t i = 0; i < set->count; i++) total += set->items[i].end - set->items[i].start;
    return total;
}

void ranges_clear(struct ranges *set) {
    memory_free(set->items);
    *set = (struct ranges){0};
}
