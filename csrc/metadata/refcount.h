/* SPDX-License-Identifier: MIT
 *
 * Refcounts: the refcount table whole in memory, its blocks through a cache. It answers and changes one cluster's count at a time;
 * where clusters come from is alloc's business. It is used under the metadata lock alone.
 *
 * A cluster's count can be asked for when its block slice is in the cache: refcount_slice says what to
 * read first. Without a block (table entry 0) every count is 0.
 */
#ifndef QCOW2_METADATA_REFCOUNT_H
#define QCOW2_METADATA_REFCOUNT_H

#include "base/ranges.h"
#include "format/geometry.h"
#include "metadata/cache.h"
#include "metadata/overlap.h"

struct refcount {
    const struct geometry *geometry;
    struct overlap *overlap;
    uint64_t *table; /* offsets of refcount blocks in bytes, host byte order; 0 = none */
    uint64_t table_entries;
    uint64_t table_offset; /* where the table lies (or will, once flush has written the header) */
    struct range dirty;    /* table entries newer than on disk */
    uint64_t host_end;     /* bytes: the file's length at open, and what was put behind it since; blocks that start beyond are damage */
    struct cache blocks;
};

/* What of the counts is needed, and whether it is here. */
enum refcount_state {
    REFCOUNT_READY,     /* *slot holds the count */
    REFCOUNT_UNCOVERED, /* no block covers the cluster: its count is 0 and cannot be changed */
    REFCOUNT_WANT,      /* see `want` */
    REFCOUNT_FAILED,    /* see `error` */
};

/* Takes over `table` (memory_*; `entries` of them in host byte order), whose blocks it notes in `overlap`. On failure the caller keeps
 * the table. */
int refcount_init(struct refcount *refcount, const struct geometry *geometry, struct overlap *overlap, uint64_t *table, uint64_t entries,
                  uint64_t table_offset, uint64_t cache_bytes);

void refcount_destroy(struct refcount *refcount);

/* Asks for the slice of the block that holds `host_cluster`'s count. */
enum refcount_state refcount_slice(struct refcount *refcount, uint64_t host_cluster, struct slot **slot, struct want *want,
                                   struct error *error);

/* The count, from the slice that refcount_slice gave. */
uint64_t refcount_get(const struct refcount *refcount, const struct slot *slot, uint64_t host_cluster);

/* Sets the count in the slice. */
void refcount_set(struct refcount *refcount, struct slot *slot, uint64_t host_cluster, uint64_t value);

/* Host clusters from `host_cluster` to the end of the same slice. */
uint64_t refcount_left_in_slice(const struct refcount *refcount, uint64_t host_cluster);

/* The first cluster at or after `host_cluster` in the slice whose count is 0, or the slice's end. */
uint64_t refcount_next_free(const struct refcount *refcount, const struct slot *slot, uint64_t host_cluster);

/* Host clusters that the table, full of blocks, covers. */
uint64_t refcount_reach(const struct refcount *refcount);

/* Puts a new block for the clusters from block_index × entries into the table, to be written at the next flush. */
int refcount_put_block(struct refcount *refcount, uint64_t block_index, uint64_t block_offset);

/* Replaces the table by a longer one at table_offset, all of it already on disk; takes `table` over. */
void refcount_replace_table(struct refcount *refcount, uint64_t *table, uint64_t entries, uint64_t table_offset);

/* The clusters that the table takes. */
uint64_t refcount_table_clusters(const struct refcount *refcount);

#endif
