/* SPDX-License-Identifier: MIT
 *
 * A cache of equal-sized pieces of host file, keyed by host offset. It knows nothing of what it holds, and never reads or
 * writes: on a miss it hands out a *claimed* slot, whoever got it reads the bytes and publishes it.
 * It is used under the metadata lock of its owner alone.
 *
 *            cache_ask               cache_publish           cache_dirty
 *   EMPTY ───────────────▶ CLAIMED ───────────────▶ CLEAN ───────────────▶ DIRTY
 *     ▲                       │ cache_abandon         │ ▲                    │
 *     └───────────────────────┴───────────────────────┘ └────────────────────┘
 *                                 reuse                  cache_writing (flush)
 *
 * A pinned slot is not reused: someone will come back to its memory under a later lock.
 */
#ifndef QCOW2_METADATA_CACHE_H
#define QCOW2_METADATA_CACHE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/waiters.h"

enum slot_state {
    SLOT_EMPTY,   /* holds nothing */
    SLOT_CLAIMED, /* its reader is on the way; others wait at the slot */
    SLOT_CLEAN,   /* the same as on disk */
    SLOT_DIRTY,   /* newer than the disk in [dirty_start, dirty_end) */
};

struct slot {
    uint64_t host_offset;
    uint8_t *bytes; /* slot_size of them; NULL until the slot is first used */
    enum slot_state state;
    bool writing;   /* flush is writing a copy: pinned, and written again only afterwards */
    bool just_read; /* the plan that asked for it has not come back yet: its return is no hit */
    uint32_t pins;
    uint32_t dirty_start, dirty_end; /* bytes within the slot */
    uint64_t last_used;              /* cache->clock at the last use */
    struct slot *next, *previous;    /* in the list of its state */
    struct slot *bucket_next;
    struct waiters waiters; /* for CLAIMED → CLEAN */
};

struct slot_list {
    struct slot *first, *last;
};

struct cache {
    uint32_t slot_size, slot_count, bucket_mask;
    uint32_t dirty_count;
    struct slot *slots;
    struct slot **buckets;
    struct slot_list empty, clean, dirty; /* clean: most recently used first */
    uint64_t clock;
    uint64_t hits, misses, evictions;
    struct waiters room; /* those who found every slot claimed or pinned */
};

/* What a plan lacks before it can go on. */
enum want_kind {
    WANT_NOTHING,
    WANT_READ,  /* read slot->host_offset, slot_size bytes, into slot->bytes; then publish or abandon */
    WANT_WAIT,  /* somebody else is at it: wait at `waiters` and plan again */
    WANT_FLUSH, /* no slot is clean, or clusters would better be released first: flush and plan again */
};

struct want {
    enum want_kind kind;
    struct cache *cache;
    struct slot *slot;
    struct waiters *waiters;
};

/* A cache of at most slot_count slots (at least 2) of slot_size bytes. Slots take memory when first used. */
int cache_init(struct cache *cache, uint32_t slot_size, uint64_t slot_count);

void cache_destroy(struct cache *cache);

/* The slot that holds `host_offset` (a multiple of slot_size), ready to use. NULL: `want` says what to do first, or it is
 * WANT_NOTHING and there is no memory. */
struct slot *cache_ask(struct cache *cache, uint64_t host_offset, struct want *want);

/* The same for bytes that are known to be zero on disk: a miss fills the slot with zeroes instead of WANT_READ. */
struct slot *cache_ask_zeroed(struct cache *cache, uint64_t host_offset, struct want *want);

/* The slot if it is here and ready, else NULL; asks for nothing. */
struct slot *cache_peek(struct cache *cache, uint64_t host_offset);

/* The claimed slot's bytes are read; wakes those who wait for it. */
void cache_publish(struct cache *cache, struct slot *slot);

/* The read failed; the slot is empty again and those who wait plan again. */
void cache_abandon(struct cache *cache, struct slot *slot);

/* Bytes [start, end) of the slot have been changed in memory. */
void cache_dirty(struct cache *cache, struct slot *slot, uint32_t start, uint32_t end);

void cache_pin(struct slot *slot);
void cache_unpin(struct cache *cache, struct slot *slot);

/* Flush has copied the dirty bytes and is about to write them: clean, and pinned until cache_written. */
void cache_writing(struct cache *cache, struct slot *slot);

/* The write of [start, end) ended; if it failed the range is dirty again. */
void cache_written(struct cache *cache, struct slot *slot, uint32_t start, uint32_t end, bool succeeded);

/* Forgets what is held of [host_offset, host_offset + length), dirty or not: these host clusters are no table any more. */
void cache_forget(struct cache *cache, uint64_t host_offset, uint64_t length);

/* Empties clean slots that were last used before `clock`, and gives their memory back. Returns how many. */
uint32_t cache_trim(struct cache *cache, uint64_t clock);

#endif
