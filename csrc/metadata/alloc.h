/* SPDX-License-Identifier: MIT
 *
 * Host clusters: who gets which, and when one that was given up may be used again. Two of the four rules live here.
 *
 * Cover first: alloc_find answers with clusters only when their counts can be set at once; else it says what must be done
 * before (read a block, cover a stretch with new blocks, make the file longer), and nothing has been taken.
 * Free last: alloc_drop only queues. alloc_release_plan and _apply lower the counts, for clusters whose loss is
 * durable in the L2 tables and which no request can still be reading.
 * It is used under the metadata lock alone.
 */
#ifndef QCOW2_METADATA_ALLOC_H
#define QCOW2_METADATA_ALLOC_H

#include "metadata/refcount.h"
#include "storage/move.h"

struct released { /* host clusters given up, waiting to become free */
    uint64_t host_cluster, count;
    uint64_t dropped_at; /* requests that began before this may still read them */
};

struct alloc {
    const struct geometry *geometry;
    struct refcount *refcount;
    struct file *file;
    struct cache *l2_tables;          /* forgets tables whose cluster becomes free */
    uint64_t hint;                    /* host cluster: none below it is free */
    uint64_t exact_from, exact_count; /* host cluster: no run of exact_count free clusters begins in [hint, exact_from) */
    uint64_t fresh_from;              /* host cluster: from here on nothing was ever written, so it reads as zeroes */
    uint64_t end;                     /* host cluster: nothing in use lies at or after it */
    uint64_t file_length;             /* bytes, with what was grown ahead */
    uint64_t length_at_open;          /* bytes */
    bool growing;                     /* somebody is making the file longer */
    bool grows_exactly;               /* there was no room for more than is needed */
    bool covering;                    /* somebody is adding refcount blocks */
    bool give_back;                   /* discard the space of clusters that become free */
    struct waiters grown, covered;
    struct released *released;
    uint64_t released_count, released_capacity, released_clusters, released_after_flush;
};

enum alloc_state {
    ALLOC_READY,  /* `found` can be taken at once */
    ALLOC_WANT,   /* see `want` */
    ALLOC_COVER,  /* no block covers found.host_cluster: cover it, then ask again */
    ALLOC_GROW,   /* the file must become longer first, then ask again */
    ALLOC_FAILED, /* see `error` */
};

struct alloc_found {
    uint64_t host_cluster, count;
};

void alloc_init(struct alloc *alloc, struct refcount *refcount, struct file *file, struct cache *l2_tables, uint64_t file_length);

void alloc_destroy(struct alloc *alloc);

/* Looks for up to `count` free clusters in a row (exactly that many with `exact`). */
enum alloc_state alloc_find(struct alloc *alloc, uint64_t count, bool exact, struct alloc_found *found, struct want *want,
                            struct error *error);

/* Takes what alloc_find found under the same lock: counts become 1. Returns whether the clusters are fresh: never written, all zero. */
bool alloc_take(struct alloc *alloc, struct alloc_found found);

/* One reference more to a cluster in use, whose count refcount_slice has READY and which can go up. */
void alloc_share(struct alloc *alloc, uint64_t host_cluster);

/* Queues clusters whose reference was given up at the time `dropped_at`. Each call stands for one reference. Returns 0 or -ENOMEM. */
int alloc_drop(struct alloc *alloc, uint64_t host_cluster, uint64_t count, uint64_t dropped_at);

/* Makes sure that `count` calls of alloc_drop will not fail. */
int alloc_reserve_drops(struct alloc *alloc, uint64_t count);

/* What can be released at once: the head of an entry of the queue. */
struct alloc_release {
    uint64_t host_cluster, count; /* clusters in a row with the same count */
    bool last;                    /* the reference is the last one: they become free */
};

/* Looks at the queue's entry `index`. READY: *release is its first run of clusters with one count, whose
 * bytes may be discarded before alloc_release_apply. */
enum alloc_state alloc_release_plan(struct alloc *alloc, uint64_t index, struct alloc_release *release, struct want *want,
                                    struct error *error);

/* Lowers the counts of the run, which is the head of entry `index`. Its slice must still be here (else false: plan again). */
bool alloc_release_apply(struct alloc *alloc, uint64_t index, const struct alloc_release *release);

/* Leaves the entry's first cluster alone for good: its count cannot be lowered. A leak at worst. */
void alloc_release_skip(struct alloc *alloc, uint64_t index);

/* Takes emptied entries out of the queue; call after a round of releases. */
void alloc_release_sweep(struct alloc *alloc);

/* The move that makes the file long enough for `host_end` bytes (and some steps more); sets `growing`. */
void alloc_grow_plan(struct alloc *alloc, uint64_t host_end, struct moves *moves);

/* The growth ended; wakes those who wait for it. Returns `result`, or 0 where it is worth another try without steps ahead. */
int alloc_grow_done(struct alloc *alloc, const struct move *move, int result);

#endif
