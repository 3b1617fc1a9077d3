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

static void refuse_overwrite(struct request *request, uint64_t guest_offset, uint64_t host_cluster, unsigned kinds) {
    error_set(&request->error, ERROR_CORRUPT,
              "guest offset %llu is mapped to host offset %llu, which holds the %s: preventing an overwrite",
              (unsigned long long) guest_offset, (unsigned long long) geometry_offset(&request->image->geometry, host_cluster),
              overlap_kind_name(kinds));
}

/* ---- overwriting in place ---- */

static bool is_ours(const struct run *run) { return run->type == CLUSTER_NORMAL && run->copied; }

/* Every cluster that we took lies inside the file, as one that does not would be cut off when the file next changes its length; and none
 * holds metadata. An external data file has neither. */
static bool refuses_place(struct request *request, uint64_t guest_offset, uint64_t host_cluster, uint64_t count) {
    struct image *image = request->image;
    const uint64_t last = geometry_offset(&image->geometry, host_cluster + count - 1);
    uint64_t at = 0;
    if (image->geometry.data_file) return false;
    if (last >= image->alloc.file_length) {
        error_set(&request->error, ERROR_CORRUPT, "guest offset %llu is mapped to host offset %llu, which lies outside the file",
                  (unsigned long long) guest_offset, (unsigned long long) last);
        return true;
    }
    const unsigned kinds = overlap_find(&image->overlap, host_cluster, count, &at);
    if (kinds != 0) refuse_overwrite(request, guest_offset, at, kinds);
    return kinds != 0;
}

/* Adds the move of one run; false: something stands against it, and request->error or want says what. */
static enum plan add_overwrite(struct request *request, const struct run *run, const uint8_t *bytes) {
    struct image *image = request->image;
    struct waiters *waiters = inflight_conflict(&image->inflight, run->guest_offset, run->guest_offset + run->length);
    if (waiters != NULL) return plan_wait(request, waiters);
    const uint64_t first = geometry_cluster(&image->geometry, run->host_offset);
    const uint64_t last = geometry_cluster(&image->geometry, run->host_offset + run->length - 1);
    if (refuses_place(request, run->guest_offset, first, last - first + 1)) return PLAN_FAILED;
    moves_add_bytes(&request->moves, MOVE_WRITE, image->data, run->host_offset, (void *) (uintptr_t) bytes, run->length);
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

static bool needs_cluster(const struct image *image, const struct cluster *cluster) {
    return cluster->type != CLUSTER_INVALID && !keeps_cluster(image, cluster);
}

/* Whether the cluster `distance` bytes behind `first` can go into one piece with it. */
static bool continues(const struct image *image, const struct cluster *first, const struct cluster *cluster, uint64_t distance) {
    if (cluster->type == CLUSTER_INVALID) return false;
    if (!keeps_cluster(image, first)) return needs_cluster(image, cluster);
    if (image->geometry.data_file && !cluster_is_placed(cluster)) return true;
    return keeps_cluster(image, cluster) && cluster->host_offset == first->host_offset + distance;
}

/* Clusters in a row from `start` that need new host clusters, or that all keep their own in a row; up to guest offset `end`. */
static uint64_t count_clusters(const struct image *image, const struct slot *slot, uint64_t start, uint64_t end) {
    struct cluster first = map_get(&image->map, slot, start);
    const uint64_t cluster_size = image->geometry.cluster_size;
    uint64_t at = start + cluster_size;
    if (image->geometry.data_file) first.host_offset = start;
    for (; at < end; at += cluster_size) {
        const struct cluster cluster = map_get(&image->map, slot, at);
        if (!continues(image, &first, &cluster, at - start)) break;
    }
    return (at - start) / cluster_size;
}

/* Clusters are ours from here on: gives them back on failure through link_data. */
static enum plan begin_data(struct request *request, struct slot *slot, uint64_t guest_offset, uint64_t length) {
    struct piece *piece = &request->piece;
    piece->kind = PIECE_DATA;
    piece->slot = slot;
    cache_pin(slot);
    inflight_enter(&request->image->inflight, &request->entry, piece->guest_offset,
                   piece->guest_offset + geometry_offset(&request->image->geometry, piece->count));
    edges_measure(request, slot, guest_offset, length);
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
    piece->taken = !keeps_cluster(image, &first);
    if (image->geometry.data_file) found.host_cluster = geometry_cluster(&image->geometry, start);
    if (piece->taken) {
        const enum plan plan = plan_clusters(request, count, false, &found);
        if (plan != PLAN_DONE) return plan;
        piece->fresh = alloc_take(&image->alloc, found);
    } else {
        if (refuses_place(request, start, found.host_cluster, found.count)) return PLAN_FAILED;
        piece->fresh = false;
    }
    piece->guest_offset = start;
    piece->count = found.count;
    piece->host_cluster = found.host_cluster;
    return begin_data(request, slot, guest_offset, length);
}

/* ---- the plan ---- */

enum plan plan_slice(struct request *request, uint64_t guest_offset, struct slot **slot) {
    struct image *image = request->image;
    request->want_image = image;
    switch (map_slice(&image->map, guest_offset, slot, &request->want, &request->error)) {
        case MAP_NO_TABLE: return plan_table(request, guest_offset);
        case MAP_WANT: return PLAN_WANT;
        case MAP_FAILED: return PLAN_FAILED;
        case MAP_READY: break;
    }
    return map_table_is_ours(&image->map, guest_offset) ? PLAN_DONE : plan_table(request, guest_offset);
}

enum plan plan_write(struct request *request, uint64_t guest_offset, uint64_t length, const uint8_t *bytes) {
    struct image *image = request->image;
    struct slot *slot = NULL;
    struct run run;
    if (bytes == NULL && request->kind != REQUEST_ALLOCATE) length = min_u64(length, MEMORY_ZEROES_SIZE);
    const enum plan plan = plan_slice(request, guest_offset, &slot);
    if (plan != PLAN_DONE) return plan;
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
    if (image->geometry.data_file) return 0; /* what lies there is not counted */
    switch (cluster->type) {
        case CLUSTER_NORMAL:
        case CLUSTER_ZERO_ALLOC: return alloc_drop(&image->alloc, geometry_cluster(&image->geometry, cluster->host_offset), 1, dropped_at);
        case CLUSTER_COMPRESSED: {
            unpacked_forget(image);
            const uint64_t first = geometry_cluster(&image->geometry, cluster->host_offset);
            const uint64_t last = geometry_cluster(&image->geometry, cluster->host_offset + cluster->byte_length - 1);
            packing_forget(image, first, last - first + 1);
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
        const struct cluster new = edges_linked(request, &old, guest_offset);
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
