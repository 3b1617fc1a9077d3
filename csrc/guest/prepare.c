/* SPDX-License-Identifier: MIT
 *
 * What has to be there before a write can take clusters: free clusters that are covered by refcount blocks and inside
 * the file, and an L2 table that is ours alone. Each is a piece of its own with moves of its own; when it is
 * linked the write is planned again and finds it. So no step here has to know why it was needed.
 */
#include <string.h>

#include "base/bytes.h"
#include "base/memory.h"
#include "guest/pieces.h"

enum plan plan_wait(struct request *request, struct waiters *waiters) {
    request->want = (struct want){.kind = WANT_WAIT, .waiters = waiters};
    request->want_image = request->image;
    return PLAN_WANT;
}

/* Blocks for the stretch that holds host_cluster, and `extra` clusters for the request behind them. */
enum plan plan_cover_with(struct request *request, uint64_t host_cluster, uint64_t extra) {
    struct image *image = request->image;
    if (image->alloc.covering) return plan_wait(request, &image->alloc.covered);
    if (image->alloc.growing) return plan_wait(request, &image->alloc.grown);
    if (cover_plan(&request->piece.cover, &image->alloc, host_cluster, extra, &request->moves, &request->error) < 0) return PLAN_FAILED;
    request->piece.kind = PIECE_COVER;
    request->piece.count = extra;
    request->piece.host_cluster = cover_extra_cluster(&request->piece.cover);
    return PLAN_MOVE;
}

static enum plan plan_grow(struct request *request, const struct alloc_found *found) {
    struct image *image = request->image;
    request->piece.kind = PIECE_GROW;
    alloc_grow_plan(&image->alloc, geometry_offset(&image->geometry, found->host_cluster + found->count), &request->moves);
    return PLAN_MOVE;
}

enum plan plan_clusters(struct request *request, uint64_t count, bool exact, struct alloc_found *found) {
    struct image *image = request->image;
    request->want_image = image;
    switch (alloc_find(&image->alloc, count, exact, found, &request->want, &request->error)) {
        case ALLOC_WANT: return PLAN_WANT;
        case ALLOC_COVER: return plan_cover_with(request, found->host_cluster, 0);
        case ALLOC_GROW: return plan_grow(request, found);
        case ALLOC_FAILED: return PLAN_FAILED;
        case ALLOC_READY: break;
    }
    const unsigned cluster_bits = image->geometry.cluster_bits;
    const int result = overlap_refuse_free(&image->overlap, found->host_cluster, found->count, cluster_bits, &request->error);
    return result == 0 ? PLAN_DONE : PLAN_FAILED;
}

/* The moves that make the new table's bytes what they must be on disk. */
static void table_moves(struct request *request, uint64_t old_table) {
    struct image *image = request->image;
    struct piece *piece = &request->piece;
    const uint64_t new_table = geometry_offset(&image->geometry, piece->host_cluster);
    request->moves.count = 0;
    if (old_table != 0) {
        moves_add_bytes(&request->moves, MOVE_READ, image->file, old_table, piece->buffer, image->geometry.cluster_size);
        moves_add_bytes(&request->moves, MOVE_WRITE, image->file, new_table, piece->buffer, image->geometry.cluster_size)->after = true;
    } else if (!piece->fresh) {
        moves_add(&request->moves, MOVE_ZERO, image->file, new_table, image->geometry.cluster_size);
    }
}

/* An L2 table for the span of guest_offset: empty, or a copy of the one that a snapshot shares. */
enum plan plan_table(struct request *request, uint64_t guest_offset) {
    struct image *image = request->image;
    struct piece *piece = &request->piece;
    const uint64_t span = geometry_l2_span(&image->geometry), start = round_down_u64(guest_offset, span);
    struct waiters *waiters = inflight_conflict(&image->inflight, start, start + span);
    if (waiters != NULL) return plan_wait(request, waiters);
    struct alloc_found found;
    const enum plan plan = plan_clusters(request, 1, false, &found);
    if (plan != PLAN_DONE) return plan;
    const uint64_t old_table = map_table_offset(&image->map, guest_offset);
    if (old_table != 0) piece->buffer = memory_aligned(image->geometry.cluster_size);
    if ((old_table != 0 && piece->buffer == NULL) || overlap_reserve(&image->overlap, 1) < 0 || alloc_reserve_drops(&image->alloc, 1) < 0) {
        memory_free(piece->buffer);
        piece->buffer = NULL;
        error_set(&request->error, -ENOMEM, "no memory for an L2 table");
        return PLAN_FAILED;
    }
    piece->kind = PIECE_TABLE;
    piece->guest_offset = guest_offset;
    piece->host_cluster = found.host_cluster;
    piece->fresh = alloc_take(&image->alloc, found);
    inflight_enter(&image->inflight, &request->entry, start, start + span);
    table_moves(request, old_table);
    return PLAN_MOVE;
}

static int link_table(struct request *request, int result) {
    struct image *image = request->image;
    struct piece *piece = &request->piece;
    const uint64_t old_table = map_table_offset(&image->map, piece->guest_offset);
    const uint64_t now = inflight_drop_time(&image->inflight);
    if (result == 0) result = map_put_table(&image->map, piece->guest_offset, geometry_offset(&image->geometry, piece->host_cluster));
    if (result < 0) {
        alloc_drop(&image->alloc, piece->host_cluster, 1, now);
        return result;
    }
    image->stats.tables_allocated++;
    if (old_table != 0) return alloc_drop(&image->alloc, geometry_cluster(&image->geometry, old_table), 1, now);
    struct want want; /* an empty table need not be read; where there is no room for it now, it will be */
    const uint64_t in_table = (uint64_t) geometry_l2_index(&image->geometry, piece->guest_offset) * image->geometry.l2_entry_size;
    cache_ask_zeroed(&image->map.l2,
                     geometry_offset(&image->geometry, piece->host_cluster) + round_down_u64(in_table, image->map.l2.slot_size), &want);
    return 0;
}

/* Where the file can grow, only not as far as was tried, the write is planned again. */
static int link_growth(struct request *request, int result) {
    result = alloc_grow_done(&request->image->alloc, &request->moves.items[0], result);
    if (result == 0) error_clear(&request->error);
    return result;
}

static int link_cover(struct request *request, int result) {
    struct image *image = request->image;
    const bool grows = request->moves.items[0].kind == MOVE_TRUNCATE;
    const int covered = cover_done(&request->piece.cover, &image->alloc, result, inflight_drop_time(&image->inflight));
    if (covered < 0) request->piece.count = 0; /* nothing came with it */
    if (!grows) return covered;
    const int grown = link_growth(request, result);
    return result < 0 ? grown : covered;
}

int link_prepared(struct request *request, int result) {
    struct image *image = request->image;
    image->flush.unsynced = true;
    switch (request->piece.kind) {
        case PIECE_GROW: result = link_growth(request, result); break;
        case PIECE_TABLE: result = link_table(request, result); break;
        case PIECE_COVER: result = link_cover(request, result); break;
        default: break;
    }
    return result;
}
