/* SPDX-License-Identifier: MIT
 *
 * Two lists: everything under way in order of beginning, and the ranges being allocated for. Ranges are few (one a writer at
 * most), so looking through them is cheaper than any tree. Invariant: ranges in the list are disjoint.
 * Called by request and its pieces. Never does I/O, never waits itself.
 */
#include "guest/inflight.h"

#include <assert.h>

static void unlink_entry(struct inflight *inflight, struct inflight_entry *entry) {
    if (entry->previous != NULL) entry->previous->next = entry->next;
    else inflight->oldest = entry->next;
    if (entry->next != NULL) entry->next->previous = entry->previous;
    else inflight->newest = entry->previous;
    entry->next = entry->previous = NULL;
}

void inflight_begin(struct inflight *inflight, struct inflight_entry *entry) {
    if (entry->under_way) {
        if (entry->began == inflight->clock) return;
        unlink_entry(inflight, entry);
    }
    entry->under_way = true;
    entry->began = inflight->clock;
    entry->next = NULL;
    entry->previous = inflight->newest;
    if (inflight->newest != NULL) inflight->newest->next = entry;
    else inflight->oldest = entry;
    inflight->newest = entry;
}

void inflight_end(struct inflight *inflight, struct inflight_entry *entry) {
    assert(!entry->in_range);
    if (entry->under_way) unlink_entry(inflight, entry);
    entry->under_way = false;
}

uint64_t inflight_drop_time(struct inflight *inflight) { return ++inflight->clock; }

uint64_t inflight_oldest(const struct inflight *inflight, const struct inflight_entry *but) {
    const struct inflight_entry *entry = inflight->oldest;
    if (entry == but && entry != NULL) entry = entry->next;
    return entry == NULL ? UINT64_MAX : entry->began;
}

struct waiters *inflight_conflict(struct inflight *inflight, uint64_t start, uint64_t end) {
    for (struct inflight_entry *entry = inflight->ranges; entry != NULL; entry = entry->range_next) {
        if (entry->start < end && start < entry->end) return &entry->waiters;
    }
    return NULL;
}

void inflight_enter(struct inflight *inflight, struct inflight_entry *entry, uint64_t start, uint64_t end) {
    assert(!entry->in_range && inflight_conflict(inflight, start, end) == NULL);
    entry->in_range = true;
    entry->start = start;
    entry->end = end;
    entry->range_next = inflight->ranges;
    inflight->ranges = entry;
}

void inflight_leave(struct inflight *inflight, struct inflight_entry *entry) {
    if (!entry->in_range) return;
    struct inflight_entry **link = &inflight->ranges;
    while (*link != entry) link = &(*link)->range_next;
    *link = entry->range_next;
    entry->in_range = false;
    waiters_wake(&entry->waiters);
}
