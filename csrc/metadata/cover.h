/* SPDX-License-Identifier: MIT
 *
 * Covering: giving a stretch of host clusters refcount blocks, and the refcount table room for them.
 *
 * New blocks describe themselves. A stretch without blocks has only free clusters (in a sound image; metadata there is refused), so the
 * blocks go to its very start, followed by a longer refcount table where one is needed, and `extra` clusters for the caller; all of
 * these are counted in the new blocks before anything points at them. The bytes are written by moves; the table in memory changes only
 * when they are on their way to the disk (flush puts a sync between them and the pointers). One cover at a time: alloc->covering.
 */
#ifndef QCOW2_METADATA_COVER_H
#define QCOW2_METADATA_COVER_H

#include "metadata/alloc.h"

struct cover {
    uint64_t block_index, block_count; /* new blocks, in a row */
    uint64_t host_cluster;             /* where the stretch begins: blocks, then table, then extra */
    uint64_t table_clusters;           /* 0: the table has room */
    uint64_t table_entries;
    uint64_t extra;       /* clusters for the caller, after blocks and table */
    uint8_t *block_bytes; /* the part of the blocks that is not zero */
    uint64_t block_length;
    uint8_t *table_bytes; /* the whole new table, as on disk */
};

/* Plans to cover the stretch that holds `host_cluster`, with `extra` clusters taken in it, and fills the moves that write it.
 * Sets alloc->covering. On failure nothing is held. */
int cover_plan(struct cover *cover, struct alloc *alloc, uint64_t host_cluster, uint64_t extra, struct moves *moves, struct error *error);

/* The moves ended: puts blocks and table in place (or leaves all as it was, when `result` says that they failed) and wakes those who wait.
 * `dropped_at` is for the old table's clusters. Returns result, or -ENOMEM. */
int cover_done(struct cover *cover, struct alloc *alloc, int result, uint64_t dropped_at);

/* The first of the extra clusters. */
uint64_t cover_extra_cluster(const struct cover *cover);

#endif
