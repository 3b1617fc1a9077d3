/* SPDX-License-Identifier: MIT
 *
 * Slots in three lists (empty, clean in order of use, dirty) and a hash by host offset, so that every step takes
 * constant time. Invariants: a slot is in the hash exactly when it is not EMPTY; CLAIMED slots are in no list; pinned slots stay
 * where they are and are passed over when a slot is sought. Called by refcount, map and flush under the
 * metadata lock. Never does I/O, never looks into the bytes.
 */
#include "metadata/cache.h"

#include <assert.h>
#include <string.h>

#include "base/bytes.h"
#include "base/memory.h"

/* ---- lists and hash ---- */

static void list_remove(struct slot_list *list, struct slot *slot) {
    if (slot->previous != NULL) slot->previous->next = slot->next;
    else list->first = slot->next;
    if (slot->next != NULL) slot->next->previous = slot->previous;
    else list->last = slot->previous;
    slot->next = slot->previous = NULL;
}

static void list_push(struct slot_list *list, struct slot *slot) {
    slot->previous = NULL;
    slot->next = list->first;
    if (list->first != NULL) list->first->previous = slot;
    else list->last = slot;
    list->first = slot;
}

static struct slot_list *list_of(struct cache *cache, const struct slot *slot) {
    switch (slot->state) {
        case SLOT_EMPTY: return &cache->empty;
        case SLOT_CLEAN: return &cache->clean;
        case SLOT_DIRTY: return &cache->dirty;
        case SLOT_CLAIMED: break;
    }
    return NULL;
}

static void set_state(struct cache *cache, struct slot *slot, enum slot_state state) {
    struct slot_list *from = list_of(cache, slot);
    if (from != NULL) list_remove(from, slot);
    cache->dirty_count -= slot->state == SLOT_DIRTY;
    slot->state = state;
    cache->dirty_count += slot->state == SLOT_DIRTY;
    struct slot_list *to = list_of(cache, slot);
    if (to != NULL) list_push(to, slot);
}

static struct slot **bucket_of(struct cache *cache, uint64_t host_offset) {
    const uint64_t hash = (host_offset / cache->slot_size) * UINT64_C(0x9e3779b97f4a7c15);
    return &cache->buckets[(hash >> 32) & cache->bucket_mask];
}

static struct slot *hash_find(struct cache *cache, uint64_t host_offset) {
    struct slot *slot = *bucket_of(cache, host_offset);
    while (slot != NULL && slot->host_offset != host_offset) slot = slot->bucket_next;
    return slot;
}

static void hash_add(struct cache *cache, struct slot *slot) {
    struct slot **bucket = bucket_of(cache, slot->host_offset);
    slot->bucket_next = *bucket;
    *bucket = slot;
}

static void hash_remove(struct cache *cache, struct slot *slot) {
    struct slot **link = bucket_of(cache, slot->host_offset);
    while (*link != slot) link = &(*link)->bucket_next;
    *link = slot->bucket_next;
    slot->bucket_next = NULL;
}

/* ---- life ---- */

int cache_init(struct cache *cache, uint32_t slot_size, uint64_t slot_count) {
    memset(cache, 0, sizeof *cache);
    const uint32_t count = (uint32_t) min_u64(max_u64(slot_count, 2), UINT32_C(1) << 24);
    uint32_t buckets = 4;
    while (buckets < count) buckets *= 2;
    cache->slots = memory_array(count, sizeof *cache->slots);
    cache->buckets = memory_array(buckets, sizeof *cache->buckets);
    cache->slot_size = slot_size;
    if (cache->slots == NULL || cache->buckets == NULL) {
        cache_destroy(cache);
        return -ENOMEM;
    }
    cache->slot_count = count;
    cache->bucket_mask = buckets - 1;
    for (uint32_t i = count; i-- > 0;) list_push(&cache->empty, &cache->slots[i]);
    return 0;
}

void cache_destroy(struct cache *cache) {
    for (uint32_t i = 0; i < cache->slot_count; i++) memory_free(cache->slots[i].bytes);
    memory_free(cache->slots);
    memory_free(cache->buckets);
    memset(cache, 0, sizeof *cache);
}

/* ---- finding and claiming ---- */

static void empty_slot(struct cache *cache, struct slot *slot) {
    assert(slot->pins == 0 && slot->state != SLOT_EMPTY);
    hash_remove(cache, slot);
    set_state(cache, slot, SLOT_EMPTY);
    waiters_wake(&cache->room);
}

static struct slot *reusable_slot(struct cache *cache) {
    if (cache->empty.first != NULL) return cache->empty.first;
    struct slot *slot = cache->clean.last;
    while (slot != NULL && slot->pins > 0) slot = slot->previous;
    return slot;
}

/* Why no slot can be reused: some are dirty and could be written, or all are on their way. */
static void want_room(struct cache *cache, struct want *want) {
    for (const struct slot *slot = cache->dirty.first; slot != NULL; slot = slot->next) {
        if (slot->pins == 0) {
            *want = (struct want){.kind = WANT_FLUSH, .cache = cache};
            return;
        }
    }
    *want = (struct want){.kind = WANT_WAIT, .cache = cache, .waiters = &cache->room};
}

static struct slot *claim(struct cache *cache, uint64_t host_offset, struct want *want) {
    struct slot *slot = reusable_slot(cache);
    if (slot == NULL) {
        want_room(cache, want);
        return NULL;
    }
    if (slot->bytes == NULL && (slot->bytes = memory_aligned(cache->slot_size)) == NULL) return NULL;
    if (slot->state == SLOT_CLEAN) {
        cache->evictions++;
        hash_remove(cache, slot);
    }
    cache->misses++;
    slot->host_offset = host_offset;
    slot->last_used = cache->clock;
    set_state(cache, slot, SLOT_CLAIMED);
    hash_add(cache, slot);
    return slot;
}

static void touch(struct cache *cache, struct slot *slot) {
    slot->last_used = cache->clock;
    if (slot->state == SLOT_CLEAN && cache->clean.first != slot) {
        list_remove(&cache->clean, slot);
        list_push(&cache->clean, slot);
    }
}

struct slot *cache_ask(struct cache *cache, uint64_t host_offset, struct want *want) {
    assert(host_offset % cache->slot_size == 0);
    want->kind = WANT_NOTHING;
    struct slot *slot = hash_find(cache, host_offset);
    if (slot == NULL) {
        slot = claim(cache, host_offset, want);
        if (slot != NULL) *want = (struct want){.kind = WANT_READ, .cache = cache, .slot = slot};
        return NULL;
    }
    if (slot->state == SLOT_CLAIMED) {
        *want = (struct want){.kind = WANT_WAIT, .cache = cache, .slot = slot, .waiters = &slot->waiters};
        return NULL;
    }
    if (slot->just_read) slot->just_read = false;
    else cache->hits++;
    touch(cache, slot);
    return slot;
}

struct slot *cache_ask_zeroed(struct cache *cache, uint64_t host_offset, struct want *want) {
    struct slot *slot = cache_ask(cache, host_offset, want);
    if (slot != NULL || want->kind != WANT_READ) return slot;
    memset(want->slot->bytes, 0, cache->slot_size);
    cache_publish(cache, want->slot);
    want->slot->just_read = false;
    return want->slot;
}

struct slot *cache_peek(struct cache *cache, uint64_t host_offset) {
    struct slot *slot = hash_find(cache, host_offset);
    return slot == NULL || slot->state == SLOT_CLAIMED ? NULL : slot;
}

void cache_publish(struct cache *cache, struct slot *slot) {
    assert(slot->state == SLOT_CLAIMED);
    slot->just_read = true;
    set_state(cache, slot, SLOT_CLEAN);
    waiters_wake(&slot->waiters);
    waiters_wake(&cache->room);
}

void cache_abandon(struct cache *cache, struct slot *slot) {
    assert(slot->state == SLOT_CLAIMED);
    empty_slot(cache, slot);
    waiters_wake(&slot->waiters);
}

/* ---- changing and writing ---- */

void cache_dirty(struct cache *cache, struct slot *slot, uint32_t start, uint32_t end) {
    assert(start < end && end <= cache->slot_size);
    assert(slot->state == SLOT_CLEAN || slot->state == SLOT_DIRTY);
    if (slot->state == SLOT_CLEAN) {
        slot->dirty_start = start;
        slot->dirty_end = end;
        set_state(cache, slot, SLOT_DIRTY);
        return;
    }
    if (start < slot->dirty_start) slot->dirty_start = start;
    if (end > slot->dirty_end) slot->dirty_end = end;
}

void cache_pin(struct slot *slot) { slot->pins++; }

void cache_unpin(struct cache *cache, struct slot *slot) {
    assert(slot->pins > 0);
    if (--slot->pins == 0) waiters_wake(&cache->room);
}

void cache_writing(struct cache *cache, struct slot *slot) {
    assert(slot->state == SLOT_DIRTY && !slot->writing);
    slot->writing = true;
    cache_pin(slot);
    set_state(cache, slot, SLOT_CLEAN);
}

void cache_written(struct cache *cache, struct slot *slot, uint32_t start, uint32_t end, bool succeeded) {
    assert(slot->writing);
    slot->writing = false;
    if (!succeeded && slot->state != SLOT_EMPTY) cache_dirty(cache, slot, start, end);
    cache_unpin(cache, slot);
}

void cache_forget(struct cache *cache, uint64_t host_offset, uint64_t length) {
    const uint64_t end = host_offset + length;
    for (uint64_t at = round_down_u64(host_offset, cache->slot_size); at < end; at += cache->slot_size) {
        struct slot *slot = cache_peek(cache, at);
        if (slot == NULL) continue;
        if (slot->pins == 0) empty_slot(cache, slot);
        else if (slot->state == SLOT_DIRTY) set_state(cache, slot, SLOT_CLEAN);
    }
}

uint32_t cache_trim(struct cache *cache, uint64_t clock) {
    uint32_t count = 0;
    struct slot *slot = cache->clean.last;
    while (slot != NULL) {
        struct slot *previous = slot->previous;
        if (slot->pins == 0 && slot->last_used < clock) {
            empty_slot(cache, slot);
            memory_free(slot->bytes);
            slot->bytes = NULL;
            count++;
        }
        slot = previous;
    }
    return count;
}
