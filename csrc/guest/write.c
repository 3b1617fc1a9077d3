/* SPDX-License-Identifier: MIT
 *
 * Writing: clusters that are wholly ours are overwritten in place, as many runs at once as one slice and one list of moves
 * allow; all others become a piece that takes new host clusters (or the ones a zero cluster kept) and is linked after its
 * bytes are down. The plan asks for everything first (table of our own, slice, clusters) and
 * takes last, so that planning again is harmless. Invariant: the slice stays pinned from take to link.
 */
#include <assert.h>

#include "base/bytes.h"
#include "base/memory.h"
#include "guest/pieces.h"

static enum plan refuse_overwrite(struct request *request, uint64_t guest_offset, uint64_t host_cluster, unsigned kinds) {
    error_set(&request->error, ERROR_CORRUPT,
              "guest offset %llu is mapped to host offset %llu, which holds the %s: preventing an overwrite",
              (unsigned long long) guest_offset, (unsigned long long) geometry_offset(&request->image->geometry, host_cluster),
              overlap_kind_name(kinds));
    return PLAN_FAILED;
}

/* ---- overwriting in place ---- */

static bool is_ours(const struct run *run) { return run->type == CLUSTER_NORMAL && run->copied; }

/* Every cluster that we took lies inside the file; one that does not would be cut off when the file next changes its length. */
static bool lies_outside(struct request *request, uint64_t guest_offset, uint64_t host_offset) {
    struct image *image = request->image;
    if (geometry_cluster_start(&image->geometry, host_offset) < image->alloc.file_length) return false;
    error_set(&request->error, ERROR_CORRUPT, "guest offset %llu is mapped to host offset %llu, which lies outside the file",
              (unsigned long long) guest_offset, (unsigned long long) host_offset);
    return true;
}

/* Adds the move of one run; false: something stands against it, and request->error or want says what. */
static enum plan add_overwrite(struct request *request, const struct run *run, const uint8_t *bytes) {
    struct image *image = request->image;
    struct waiters *waiters = inflight_conflict(&image->inflight, run->guest_offset, run->guest_offset + run->length);
    if (waiters != NULL) return plan_wait(request, waiters);
    const uint64_t first = geometry_cluster(&image->geometry, run->host_offset);
    const uint64_t last = geometry_cluster(&image->geometry, run->host_offset + run->length - 1);
    uint64_t at = 0;
    if (lies_outside(request, run->guest_offset, run->host_offset + run->length - 1)) return PLAN_FAILED;
    const unsigned kinds = overlap_find(&image->overlap, first, last - first + 1, &at);
    if (kinds != 0) return refuse_overwrite(request, run->guest_offset, at, kinds);
    moves_add_bytes(&request->moves, MOVE_WRITE, image->file, run->host_offset, (void *) (uintptr_t) bytes, run->length);
    return PLAN_DONE;
}

static enum plan plan_overwrite(struct request *request, struct slot *slot, struct run run, uint64_t length, const uint8_t *bytes) {
    struct image *image = request->image;
    struct piece *piece = &request->piece;
    const uint64_t end = run.guest_offset + min_u64(length, map_left_in_slice(&image->map, run.guest_offset));
    request->moves.count = 0;
    for (;;) {
        const enum plan plan = add_overwrite(request, &run, bytes == NULL ? memory_zeroes() : bytes + piece->progress);
        if (plan != PLAN_DONE && piece->progress == 0) return plan;
        if (plan != PLAN_DONE) break;
        piece->progress += run.length;
        const uint64_t next = run.guest_offset + run.length;
        if (next >= end || bytes == NULL || request->moves.count == MOVES_MAX) break;
        if (map_run(&image->map, slot, next, end - next, &run, &request->error) < 0 || !is_ours(&run)) break;
    }
    error_clear(&request->error); /* what stopped a later run will be met again at the next plan */
    piece->kind = PIECE_BYTES;
    return PLAN_MOVE;
}

/* ---- new clusters ---- */

static bool keeps_cluster(const struct cluster *cluster) { return cluster->type == CLUSTER_ZERO_ALLOC && cluster->copied; }

static bool needs_cluster(const struct cluster *cluster) {
    if (cluster->type == CLUSTER_INVALID) return false;
    return !keeps_cluster(cluster) && !(cluster->type == CLUSTER_NORMAL && cluster->copied);
}

/* Clusters in a row from `start` that need new host clusters, or that all keep their own in a row; up to guest offset `end`. */
static uint64_t count_clusters(const struct image *image, const struct slot *slot, uint64_t start, uint64_t end) {
    const struct cluster first = map_get(&image->map, slot, start);
    const uint64_t cluster_size = image->geometry.cluster_size;
    uint64_t at = start + cluster_size;
    while (at < end) {
        const struct cluster cluster = map_get(&image->map, slot, at);
        if (keeps_cluster(&first) ? !keeps_cluster(&cluster) || cluster.host_offset != first.host_offset + (at - start)
                                  : !needs_cluster(&cluster))
            break;
        at += cluster_size;
    }
    return (at - start) / cluster_size;
}

static bool reads_as_zero(const struct image *image, const struct cluster *cluster) {
    switch (cluster->type) {
        case CLUSTER_ZERO:
        case CLUSTER_ZERO_ALLOC: return true;
        case CLUSTER_UNALLOCATED: return image->backing == NULL;
        default: return false;
    }
}

/* The same for a whole cluster's place in guest space, where the backing file may be too short to matter. */
static bool edge_is_zero(const struct image *image, const struct slot *slot, uint64_t cluster_start) {
    const struct cluster cluster = map_get(&image->map, slot, cluster_start);
    if (reads_as_zero(image, &cluster)) return true;
    return cluster.type == CLUSTER_UNALLOCATED && cluster_start >= image->backing->size;
}

static void measure_edges(struct request *request, const struct slot *slot, uint64_t guest_offset, uint64_t length) {
    const struct image *image = request->image;
    struct piece *piece = &request->piece;
    const uint64_t end = piece->guest_offset + geometry_offset(&image->geometry, piece->count);
    piece->head_length = guest_offset - piece->guest_offset;
    piece->progress = min_u64(length, end - guest_offset);
    piece->tail_length = end - (guest_offset + piece->progress);
    piece->head_zero = piece->head_length == 0 || edge_is_zero(image, slot, piece->guest_offset);
    piece->tail_zero = piece->tail_length == 0 || edge_is_zero(image, slot, end - image->geometry.cluster_size);
}

/* Clusters are ours from here on: gives them back on failure through link_data. */
static enum plan begin_data(struct request *request, struct slot *slot, uint64_t guest_offset, uint64_t length) {
    struct piece *piece = &request->piece;
    piece->kind = PIECE_DATA;
    piece->slot = slot;
    cache_pin(slot);
    inflight_enter(&request->image->inflight, &request->entry, piece->guest_offset,
                   piece->guest_offset + geometry_offset(&request->image->geometry, piece->count));
    measure_edges(request, slot, guest_offset, length);
    if (request->kind == REQUEST_ALLOCATE) piece->head_zero = piece->tail_zero = true;
    if (!cow_begin(request)) {
        cow_moves(request);
        return PLAN_MOVE;
    }
    if (piece->buffer != NULL) return PLAN_EDGES;
    link_data(request, -ENOMEM);
    piece->kind = PIECE_NONE;
    error_set(&request->error, -ENOMEM, "no memory for copy-on-write");
    return PLAN_FAILED;
}

static enum plan plan_data(struct request *request, struct slot *slot, uint64_t guest_offset, uint64_t length) {
    struct image *image = request->image;
    struct piece *piece = &request->piece;
    const uint64_t start = geometry_cluster_start(&image->geometry, guest_offset);
    const uint64_t end = guest_offset + min_u64(length, map_left_in_slice(&image->map, guest_offset));
    const struct cluster first = map_get(&image->map, slot, start);
    uint64_t count = count_clusters(image, slot, start, end);
    struct waiters *waiters = inflight_conflict(&image->inflight, start, start + geometry_offset(&image->geometry, count));
    if (waiters != NULL) return plan_wait(request, waiters);
    struct alloc_found found = {.host_cluster = geometry_cluster(&image->geometry, first.host_offset), .count = count};
    piece->taken = !keeps_cluster(&first);
    if (piece->taken) {
        const enum plan plan = plan_clusters(request, count, false, &found);
        if (plan != PLAN_DONE) return plan;
        piece->fresh = alloc_take(&image->alloc, found);
    } else {
        uint64_t at = 0;
        if (lies_outside(request, start, geometry_offset(&image->geometry, found.host_cluster + found.count) - 1)) return PLAN_FAILED;
        const unsigned kinds = overlap_find(&image->overlap, found.host_cluster, found.count, &at);
        if (kinds != 0) return refuse_overwrite(request, start, at, kinds);
        piece->fresh = false;
    }
    piece->guest_offset = start;
    piece->count = found.count;
    piece->host_cluster = found.host_cluster;
    return begin_data(request, slot, guest_offset, length);
}

/* ---- the plan ---- */

enum plan plan_write(struct request *request, uint64_t guest_offset, uint64_t length, const uint8_t *bytes) {
    struct image *image = request->image;
    struct slot *slot = NULL;
    struct run run;
    request->want_image = image;
    if (bytes == NULL && request->kind != REQUEST_ALLOCATE) length = min_u64(length, MEMORY_ZEROES_SIZE);
    switch (map_slice(&image->map, guest_offset, &slot, &request->want, &request->error)) {
        case MAP_NO_TABLE: return plan_table(request, guest_offset);
        case MAP_WANT: return PLAN_WANT;
        case MAP_FAILED: return PLAN_FAILED;
        case MAP_READY: break;
    }
    if (!map_table_is_ours(&image->map, guest_offset)) return plan_table(request, guest_offset);
    if (map_run(&image->map, slot, guest_offset, length, &run, &request->error) < 0) return PLAN_FAILED;
    if (request->kind == REQUEST_ALLOCATE && run.type != CLUSTER_UNALLOCATED) {
        request->done += run.length;
        return PLAN_GO_ON;
    }
    if (request->kind == REQUEST_ALLOCATE) length = run.length;
    return is_ours(&run) ? plan_overwrite(request, slot, run, length, bytes) : plan_data(request, slot, guest_offset, length);
}

/* ---- linking ---- */

int drop_cluster(struct image *image, const struct cluster *cluster, uint64_t dropped_at) {
    switch (cluster->type) {
        case CLUSTER_NORMAL:
        case CLUSTER_ZERO_ALLOC: return alloc_drop(&image->alloc, geometry_cluster(&image->geometry, cluster->host_offset), 1, dropped_at);
        case CLUSTER_COMPRESSED: {
            const uint64_t first = geometry_cluster(&image->geometry, cluster->host_offset);
            const uint64_t last = geometry_cluster(&image->geometry, cluster->host_offset + cluster->byte_length - 1);
            return alloc_drop(&image->alloc, first, last - first + 1, dropped_at);
        }
        default: return 0;
    }
}

static void map_new_clusters(struct request *request, uint64_t now) {
    struct image *image = request->image;
    const struct piece *piece = &request->piece;
    for (uint64_t i = 0; i < piece->count; i++) {
        const uint64_t guest_offset = piece->guest_offset + geometry_offset(&image->geometry, i);
        const struct cluster old = map_get(&image->map, piece->slot, guest_offset);
        const struct cluster new = {
            .type = CLUSTER_NORMAL, .copied = true, .host_offset = geometry_offset(&image->geometry, piece->host_cluster + i)};
        map_set(&image->map, piece->slot, guest_offset, &new);
        if (piece->taken) drop_cluster(image, &old, now);
    }
}

int link_data(struct request *request, int result) {
    struct image *image = request->image;
    struct piece *piece = &request->piece;
    const uint64_t now = inflight_drop_time(&image->inflight);
    image->flush.unsynced = true;
    if (result == 0) result = alloc_reserve_drops(&image->alloc, piece->count);
    if (result == 0) {
        map_new_clusters(request, now);
        image->stats.clusters_allocated += piece->taken ? piece->count : 0;
    } else if (piece->taken) {
        alloc_drop(&image->alloc, piece->host_cluster, piece->count, now); /* without memory for this they leak */
    }
    cache_unpin(&image->map.l2, piece->slot);
    inflight_leave(&image->inflight, &request->entry);
    memory_free(piece->buffer);
    piece->buffer = NULL;
    return result;
}
