/* SPDX-License-Identifier: MIT
 *
 * Flush: what is newer in memory goes to the disk, in the one order that a crash cannot spoil. A round works on copies, taken all
 * at once under the lock, so requests go on changing tables while it writes.
 *
 *   IDLE ─ flush_begin ─▶ WRITING ─ last rank written ─▶ SYNCING ─▶ RELEASING ─ queue done ─▶ IDLE
 *                            │ a move failed: what was not written is dirty again                ▲
 *                            └────────────────────────────────────────────────────────────────┘
 *
 * Ranks, written in this order; before each but the first, a sync, if anything was written since the last one:
 *   refcount blocks → refcount table → header (names the refcount table) → L2 tables → L1 table → header (names the L1 table)
 */
#ifndef QCOW2_METADATA_FLUSH_H
#define QCOW2_METADATA_FLUSH_H

#include "metadata/alloc.h"
#include "metadata/map.h"

struct header_pointers { /* the header fields at bytes 24–59, which change while an image is open */
    uint64_t size;
    uint32_t crypt_method;
    uint32_t l1_size;
    uint64_t l1_offset;
    uint64_t refcount_table_offset;
    uint32_t refcount_table_clusters;
};

enum flush_rank {
    FLUSH_BLOCKS,
    FLUSH_REFCOUNT_TABLE,
    FLUSH_REFCOUNT_POINTER,
    FLUSH_L2,
    FLUSH_L1,
    FLUSH_L1_POINTER,
    FLUSH_RANKS
};

struct flush_item { /* one run of bytes to write */
    enum flush_rank rank;
    struct cache *cache; /* with slot: whose bytes; NULL for tables and header */
    struct slot *slot;
    uint64_t host_offset;
    uint32_t start, end; /* bytes within slot, or entries of the table */
    uint8_t *bytes;
    uint64_t length;
    bool written;
};

struct flush {
    struct refcount *refcount;
    struct alloc *alloc;
    struct map *map;
    struct file *file;
    struct file *data; /* the external data file, or NULL: synced with `file` */
    struct header_pointers on_disk;
    uint64_t size; /* virtual size in bytes that the header shall have */
    bool running;
    bool unsynced; /* something was written since the last sync */
    struct waiters finished;
    bool frozen;     /* the image is corrupt: counts cannot be trusted, so nothing becomes free any more */
    uint64_t rounds; /* for stats: rounds that wrote or synced something */
};

enum flush_step {
    FLUSH_MOVE, /* carry out the moves, then flush_moved, then flush_next again */
    FLUSH_DONE, /* the round is over; see its result */
};

struct flush_round {
    struct flush_item *items;
    uint64_t count, next, batch_end;
    uint8_t *bytes;
    bool sync_sent, syncing;
    uint64_t release_limit, release_next; /* entries of the released queue that this round makes durable */
    struct alloc_release release;
    struct want want;
    enum {
        FLUSH_WRITING,
        FLUSH_SYNCING,
        FLUSH_RELEASING,
        FLUSH_READING,
        FLUSH_DISCARDING
    } phase;
    int result;
};

void flush_init(struct flush *flush, struct refcount *refcount, struct alloc *alloc, struct map *map, struct file *file,
                const struct header_pointers *on_disk);

/* Whether a round would write or sync anything. */
bool flush_needed(const struct flush *flush);

/* Begins a round: copies all that is dirty. Nobody else may be running one. Returns 0, or -ENOMEM (nothing changed). */
int flush_begin(struct flush *flush, struct flush_round *round, struct error *error);

/* The next moves of the round. `oldest` is when the oldest request that is still running began. */
enum flush_step flush_next(struct flush *flush, struct flush_round *round, uint64_t oldest, struct moves *moves, struct error *error);

/* The moves ended with `result`. */
void flush_moved(struct flush *flush, struct flush_round *round, int result);

#endif
