/* SPDX-License-Identifier: MIT
 *
 * Which requests are under way: since when (so that clusters they may still read are not used again), and which
 * guest ranges they are giving new clusters to (so that two never allocate for the same place).
 * Conflicts park here and nowhere else. It is used under the metadata lock alone.
 */
#ifndef QCOW2_GUEST_INFLIGHT_H
#define QCOW2_GUEST_INFLIGHT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/waiters.h"

struct inflight_entry {
    struct inflight_entry *next, *previous; /* among all under way, the oldest first */
    bool under_way;
    uint64_t began; /* inflight->clock when its present piece was planned */
    struct inflight_entry *range_next;
    bool in_range;
    uint64_t start, end;    /* guest bytes it allocates for, while in_range */
    struct waiters waiters; /* those who want some of that range */
};

struct inflight {
    struct inflight_entry *oldest, *newest;
    struct inflight_entry *ranges;
    uint64_t clock; /* goes up at each drop */
};

/* A piece of the request is planned now. May be called again for the next piece. */
void inflight_begin(struct inflight *inflight, struct inflight_entry *entry);

/* The request is over. */
void inflight_end(struct inflight *inflight, struct inflight_entry *entry);

/* The time for a drop that happens now: all requests that have begun are older. */
uint64_t inflight_drop_time(struct inflight *inflight);

/* When the oldest request that is under way, other than `but`, began; UINT64_MAX when there is none. */
uint64_t inflight_oldest(const struct inflight *inflight, const struct inflight_entry *but);

/* Where to wait before touching the mapping of [start, end), or NULL: nobody is allocating there. */
struct waiters *inflight_conflict(struct inflight *inflight, uint64_t start, uint64_t end);

/* Enters the range; there must be no conflict. */
void inflight_enter(struct inflight *inflight, struct inflight_entry *entry, uint64_t start, uint64_t end);

/* Leaves the range, if it is in one, and wakes those who waited for it. */
void inflight_leave(struct inflight *inflight, struct inflight_entry *entry);

#endif
