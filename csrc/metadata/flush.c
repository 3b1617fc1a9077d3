/* SPDX-License-Identifier: MIT
 *
 * The order in which metadata becomes durable, and the invariants that follow. Cited elsewhere by number.
 *
 *   F1  No L2 or L1 entry on disk points at a host cluster whose refcount on disk is 0.
 *   F2  No table entry or header field on disk points at a table whose bytes are not on disk.
 *   F3  Guest bytes are on disk before the L2 entry that names them.
 *   F4  A refcount on disk sinks only after all entries that referred to the cluster are gone from the disk.
 *   F5  When a flush has returned 0, all that was linked before it began is on disk, bytes and mapping.
 *   F6  A failed round leaves everything that it did not write as dirty as it was.
 *
 * The copies in a round are of one instant, so an entry in an L2 copy never names a cluster whose count is not in
 * the copies of the blocks. Called by request, one round at a time. Does no I/O: it fills lists of moves.
 */
#include "metadata/flush.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/memory.h"

#define WRITE_UNIT 512u
#define POINTERS_OFFSET 24u
#define POINTERS_LENGTH 36u

void flush_init(struct flush *flush, struct refcount *refcount, struct alloc *alloc, struct map *map, struct file *file,
                const struct header_pointers *on_disk) {
    *flush = (struct flush){.refcount = refcount, .alloc = alloc, .map = map, .file = file, .on_disk = *on_disk, .size = on_disk->size};
}

/* ---- what is dirty ---- */

static bool refcount_pointer_moved(const struct flush *flush) {
    return flush->on_disk.refcount_table_offset != flush->refcount->table_offset;
}

static bool l1_pointer_moved(const struct flush *flush) {
    return flush->on_disk.l1_offset != flush->map->l1_offset || flush->on_disk.l1_size != flush->map->l1_entries ||
           flush->on_disk.size != flush->size;
}

static bool refcount_table_dirty(const struct flush *flush) { return !range_empty(&flush->refcount->dirty); }

static bool l1_dirty(const struct flush *flush) { return !range_empty(&flush->map->dirty); }

static bool anything_dirty(const struct flush *flush) {
    return flush->refcount->blocks.dirty_count > 0 || flush->map->l2.dirty_count > 0 || refcount_table_dirty(flush) || l1_dirty(flush) ||
           refcount_pointer_moved(flush) || l1_pointer_moved(flush);
}

bool flush_needed(const struct flush *flush) {
    return flush->unsynced || (!flush->frozen && flush->alloc->released_count > 0) || anything_dirty(flush);
}

/* ---- taking copies ---- */

static uint64_t unit_of(const struct flush *flush) { return max_u64(WRITE_UNIT, flush->file->alignment); }

static void list_slots(const struct flush *flush, struct flush_round *round, struct cache *cache, enum flush_rank rank) {
    const uint64_t unit = min_u64(unit_of(flush), cache->slot_size);
    for (struct slot *slot = cache->dirty.first; slot != NULL; slot = slot->next) {
        assert(!slot->writing);
        const uint32_t start = (uint32_t) round_down_u64(slot->dirty_start, unit);
        const uint32_t end = (uint32_t) round_up_u64(slot->dirty_end, unit);
        round->items[round->count++] = (struct flush_item){.rank = rank,
                                                           .cache = cache,
                                                           .slot = slot,
                                                           .host_offset = slot->host_offset + start,
                                                           .start = start,
                                                           .end = end,
                                                           .length = end - start};
    }
}

/* The dirty entries of a table, widened to whole write units as far as the table goes. */
static void list_table(const struct flush *flush, struct flush_round *round, enum flush_rank rank, uint64_t table_offset, uint64_t entries,
                       struct range dirty) {
    const uint64_t unit = unit_of(flush) / 8;
    const uint64_t start = round_down_u64(dirty.start, unit), end = min_u64(round_up_u64(dirty.end, unit), entries);
    round->items[round->count++] = (struct flush_item){.rank = rank,
                                                       .host_offset = table_offset + 8 * start,
                                                       .start = (uint32_t) start,
                                                       .end = (uint32_t) end,
                                                       .length = 8 * (end - start)};
}

static void list_header(struct flush_round *round, enum flush_rank rank) {
    round->items[round->count++] = (struct flush_item){.rank = rank, .host_offset = POINTERS_OFFSET, .length = POINTERS_LENGTH};
}

static void list_all(const struct flush *flush, struct flush_round *round) {
    struct refcount *refcount = flush->refcount;
    struct map *map = flush->map;
    list_slots(flush, round, &refcount->blocks, FLUSH_BLOCKS);
    list_slots(flush, round, &map->l2, FLUSH_L2);
    if (refcount_table_dirty(flush)) {
        list_table(flush, round, FLUSH_REFCOUNT_TABLE, refcount->table_offset, refcount->table_entries, refcount->dirty);
    }
    if (refcount_pointer_moved(flush)) list_header(round, FLUSH_REFCOUNT_POINTER);
    if (l1_dirty(flush)) list_table(flush, round, FLUSH_L1, map->l1_offset, map->l1_entries, map->dirty);
    if (l1_pointer_moved(flush)) list_header(round, FLUSH_L1_POINTER);
}

static void encode_pointers(const struct flush *flush, enum flush_rank rank, uint8_t *bytes) {
    struct header_pointers pointers = flush->on_disk;
    pointers.refcount_table_offset = flush->refcount->table_offset;
    pointers.refcount_table_clusters = (uint32_t) refcount_table_clusters(flush->refcount);
    if (rank == FLUSH_L1_POINTER) {
        pointers.size = flush->size;
        pointers.l1_size = (uint32_t) flush->map->l1_entries;
        pointers.l1_offset = flush->map->l1_offset;
    }
    store_be64(bytes, pointers.size);
    store_be32(bytes + 8, pointers.crypt_method);
    store_be32(bytes + 12, pointers.l1_size);
    store_be64(bytes + 16, pointers.l1_offset);
    store_be64(bytes + 24, pointers.refcount_table_offset);
    store_be32(bytes + 32, pointers.refcount_table_clusters);
}

static void copy_table(const uint64_t *table, const struct flush_item *item) {
    for (uint64_t i = item->start; i < item->end; i++) store_be64(item->bytes + 8 * (i - item->start), table[i]);
}

static void copy_item(const struct flush *flush, const struct flush_item *item) {
    switch (item->rank) {
        case FLUSH_BLOCKS:
        case FLUSH_L2: memcpy(item->bytes, item->slot->bytes + item->start, item->length); break;
        case FLUSH_REFCOUNT_TABLE: copy_table(flush->refcount->table, item); break;
        case FLUSH_L1: copy_table(flush->map->l1, item); break;
        case FLUSH_REFCOUNT_POINTER:
        case FLUSH_L1_POINTER: encode_pointers(flush, item->rank, item->bytes); break;
        case FLUSH_RANKS: break;
    }
}

static int by_rank_and_offset(const void *left, const void *right) {
    const struct flush_item *a = left, *b = right;
    if (a->rank != b->rank) return a->rank < b->rank ? -1 : 1;
    return a->host_offset < b->host_offset ? -1 : a->host_offset > b->host_offset;
}

static int make_room(const struct flush *flush, struct flush_round *round) {
    const uint64_t most = flush->refcount->blocks.dirty_count + flush->map->l2.dirty_count + 4;
    round->items = memory_array(most, sizeof *round->items);
    if (round->items == NULL) return -ENOMEM;
    list_all(flush, round);
    uint64_t length = 0;
    for (uint64_t i = 0; i < round->count; i++) length += round->items[i].length;
    round->bytes = memory_aligned(max_u64(length, 1));
    if (round->bytes != NULL) return 0;
    memory_free(round->items);
    round->items = NULL;
    return -ENOMEM;
}

int flush_begin(struct flush *flush, struct flush_round *round, struct error *error) {
    assert(!flush->running);
    *round = (struct flush_round){.release_limit = flush->frozen ? 0 : flush->alloc->released_count};
    if (make_room(flush, round) < 0) return error_set(error, -ENOMEM, "no memory to flush %u dirty tables", flush->map->l2.dirty_count);
    qsort(round->items, round->count, sizeof *round->items, by_rank_and_offset);
    uint8_t *bytes = round->bytes;
    for (uint64_t i = 0; i < round->count; i++) {
        struct flush_item *item = &round->items[i];
        item->bytes = bytes;
        bytes += item->length;
        copy_item(flush, item);
        if (item->slot != NULL) cache_writing(item->cache, item->slot);
    }
    flush->refcount->dirty = flush->map->dirty = (struct range){0, 0};
    flush->running = true;
    flush->rounds += round->count > 0 || flush->unsynced;
    return 0;
}

/* ---- writing ---- */

/* Moves for the next items, all of one rank; those that lie side by side go as one. */
static void write_batch(const struct flush *flush, struct flush_round *round, struct moves *moves) {
    const enum flush_rank rank = round->items[round->next].rank;
    struct move *move = NULL;
    uint64_t i = round->next;
    for (; i < round->count && round->items[i].rank == rank; i++) {
        const struct flush_item *item = &round->items[i];
        if (move != NULL && move->offset + move->length == item->host_offset) {
            move->vector[0].iov_len += item->length; /* copies lie side by side as well */
            move->length += item->length;
            continue;
        }
        if (moves->count == MOVES_MAX) break;
        move = moves_add_bytes(moves, MOVE_WRITE, flush->file, item->host_offset, item->bytes, item->length);
    }
    round->batch_end = i;
}

static void send_sync(struct flush *flush, struct flush_round *round, struct moves *moves) {
    moves_add(moves, MOVE_SYNC, flush->file, 0, 0);
    if (flush->data != NULL) moves_add(moves, MOVE_SYNC, flush->data, 0, 0);
    round->syncing = true;
    flush->unsynced = false; /* what is written from now on is after this sync */
}

/* The item was written, or could not be and is dirty again (F6). */
static void settle(struct flush *flush, struct flush_item *item, bool succeeded) {
    item->written = succeeded;
    if (item->slot != NULL) cache_written(item->cache, item->slot, item->start, item->end, succeeded);
    if (!succeeded && item->rank == FLUSH_REFCOUNT_TABLE) range_widen(&flush->refcount->dirty, item->start, item->end);
    if (!succeeded && item->rank == FLUSH_L1) range_widen(&flush->map->dirty, item->start, item->end);
    if (!succeeded || item->slot != NULL) return;
    if (item->rank == FLUSH_REFCOUNT_POINTER || item->rank == FLUSH_L1_POINTER) {
        flush->on_disk.refcount_table_offset = load_be64(item->bytes + 24);
        flush->on_disk.refcount_table_clusters = load_be32(item->bytes + 32);
        flush->on_disk.size = load_be64(item->bytes);
        flush->on_disk.l1_size = load_be32(item->bytes + 12);
        flush->on_disk.l1_offset = load_be64(item->bytes + 16);
    }
}

static void batch_written(struct flush *flush, struct flush_round *round, int result) {
    flush->unsynced = true; /* even when it failed, a part may have gone down */
    for (uint64_t i = round->next; i < round->batch_end; i++) settle(flush, &round->items[i], result == 0);
    round->next = round->batch_end;
}

static enum flush_step finish(struct flush *flush, struct flush_round *round) {
    for (uint64_t i = round->next; i < round->count; i++) settle(flush, &round->items[i], false);
    memory_free(round->items);
    memory_free(round->bytes);
    alloc_release_sweep(flush->alloc);
    flush->running = false;
    waiters_wake(&flush->finished);
    return FLUSH_DONE;
}

/* ---- releasing (F4) ---- */

/* The next entry of the queue that is durable and that no running request can still see. */
static bool next_release(const struct flush *flush, struct flush_round *round, uint64_t oldest) {
    for (; round->release_next < round->release_limit; round->release_next++) {
        const struct released *entry = &flush->alloc->released[round->release_next];
        if (entry->count > 0 && entry->dropped_at <= oldest) return true;
    }
    return false;
}

static enum flush_step plan_release(struct flush *flush, struct flush_round *round, uint64_t oldest, struct moves *moves,
                                    struct error *error) {
    struct alloc *alloc = flush->alloc;
    while (next_release(flush, round, oldest)) {
        switch (alloc_release_plan(alloc, round->release_next, &round->release, &round->want, error)) {
            case ALLOC_READY: break;
            case ALLOC_WANT:
                if (round->want.kind != WANT_READ) return finish(flush, round); /* no room now: they stay queued */
                round->phase = FLUSH_READING;
                moves_add_bytes(moves, MOVE_READ, flush->file, round->want.slot->host_offset, round->want.slot->bytes,
                                round->want.cache->slot_size);
                return FLUSH_MOVE;
            default:
                round->result = error->code;
                alloc_release_skip(alloc, round->release_next);
                return finish(flush, round);
        }
        if (round->release.last && alloc->give_back) {
            round->phase = FLUSH_DISCARDING;
            moves_add(moves, MOVE_DISCARD, flush->file, geometry_offset(alloc->geometry, round->release.host_cluster),
                      geometry_offset(alloc->geometry, round->release.count));
            return FLUSH_MOVE;
        }
        alloc_release_apply(alloc, round->release_next, &round->release);
    }
    return finish(flush, round);
}

/* ---- steps ---- */

static enum flush_step next_write(struct flush *flush, struct flush_round *round, struct moves *moves) {
    const bool first_rank = round->items[round->next].rank == FLUSH_BLOCKS;
    const bool new_rank = round->next == 0 || round->items[round->next - 1].rank != round->items[round->next].rank;
    if (!first_rank && new_rank && flush->unsynced && !round->sync_sent) {
        round->sync_sent = true;
        send_sync(flush, round, moves);
        return FLUSH_MOVE;
    }
    round->sync_sent = false;
    write_batch(flush, round, moves);
    return FLUSH_MOVE;
}

enum flush_step flush_next(struct flush *flush, struct flush_round *round, uint64_t oldest, struct moves *moves, struct error *error) {
    moves->count = 0;
    if (round->result < 0) return finish(flush, round);
    if (round->phase == FLUSH_WRITING) {
        if (round->next < round->count) return next_write(flush, round, moves);
        round->phase = FLUSH_SYNCING;
        if (flush->unsynced) {
            send_sync(flush, round, moves);
            return FLUSH_MOVE;
        }
    }
    round->phase = FLUSH_RELEASING;
    return plan_release(flush, round, oldest, moves, error);
}

void flush_moved(struct flush *flush, struct flush_round *round, int result) {
    if (round->syncing) {
        round->syncing = false;
        if (result < 0) flush->unsynced = true;
        round->result = result;
        return;
    }
    switch (round->phase) {
        case FLUSH_READING:
            if (result == 0) cache_publish(round->want.cache, round->want.slot);
            else cache_abandon(round->want.cache, round->want.slot);
            round->result = result;
            break;
        case FLUSH_DISCARDING: /* space not given back is no failure */
            if (!alloc_release_apply(flush->alloc, round->release_next, &round->release)) return;
            break;
        default:
            batch_written(flush, round, result);
            round->result = result;
            break;
    }
}
