/* SPDX-License-Identifier: MIT
 *
 * Write zeroes and discard. Whole clusters are table work: the zero flag (version 3), or no mapping at all where nothing
 * shows through (version 2 and discards without a backing file). What cannot be said in the table, parts of clusters and
 * version 2's zeroes over a backing file, is written as bytes by write.c. Clusters whose mapping goes are dropped, never freed here.
 */
#include "base/bytes.h"
#include "guest/pieces.h"

/* The guest range of whole clusters at the request's present place; the image's last cluster may be cut by its end. */
static uint64_t whole_clusters_end(const struct request *request, uint64_t guest_offset) {
    const struct image *image = request->image;
    const uint64_t end = request->guest_offset + request->length;
    if (geometry_in_cluster(&image->geometry, guest_offset) != 0) return guest_offset;
    return end == image->size ? end : geometry_cluster_start(&image->geometry, end);
}

/* The same for whole subclusters of the cluster that holds guest_offset. */
static uint64_t whole_subclusters_end(const struct request *request, uint64_t guest_offset) {
    const struct geometry *geometry = &request->image->geometry;
    const uint64_t end = request->guest_offset + request->length;
    const uint64_t cluster_end = geometry_cluster_start(geometry, guest_offset) + geometry->cluster_size;
    if (guest_offset % geometry->subcluster_size != 0) return guest_offset;
    return min_u64(cluster_end, end == request->image->size ? end : geometry_subcluster_start(geometry, end));
}

static bool gives_up_clusters(const struct request *request) {
    if (request->unmap_all) return true;
    return (request->kind == REQUEST_DISCARD || request->may_unmap) && !request->image->discard_ignored;
}

/* What the entry becomes; false: it may stay as it is. Sets *bytes where only written zeroes will do. */
static bool cleared(const struct request *request, const struct cluster *old, struct cluster *new, bool *bytes) {
    const struct image *image = request->image;
    const bool give_up = gives_up_clusters(request), flag = image->geometry.version >= 3;
    const enum cluster_type type = cluster_whole_type(&image->geometry, old);
    *new = (struct cluster){.type = CLUSTER_UNALLOCATED};
    if (request->unmap_all) return old->type != CLUSTER_UNALLOCATED || old->bitmap != 0;
    if (type == CLUSTER_UNALLOCATED && image->backing == NULL) return false;
    if (type == CLUSTER_ZERO || (type == CLUSTER_ZERO_ALLOC && !give_up)) return false;
    if (!flag) {
        *bytes = image->backing != NULL || !give_up;
        return !*bytes;
    }
    *new = cluster_of_zeroes(&image->geometry, !give_up && old->type == CLUSTER_NORMAL && old->copied ? old : NULL);
    return true;
}

static enum plan go_on(struct request *request, uint64_t length) {
    request->done += length;
    return PLAN_GO_ON;
}

/* Changes entries from guest_offset on, until the slice or the range ends or bytes are needed. Returns the guest bytes done; *bytes:
 * why it stopped. */
static uint64_t clear_entries(struct request *request, struct slot *slot, uint64_t guest_offset, uint64_t end, bool *bytes) {
    struct image *image = request->image;
    const uint64_t now = inflight_drop_time(&image->inflight);
    uint64_t at = guest_offset;
    for (; at < end; at += image->geometry.cluster_size) {
        const struct cluster old = map_get(&image->map, slot, at);
        struct cluster new;
        if (!cleared(request, &old, &new, bytes)) {
            if (*bytes) break;
            continue;
        }
        map_set(&image->map, slot, at, &new);
        if (!cluster_is_placed(&new)) drop_cluster(image, &old, now);
    }
    return min_u64(at, end) - guest_offset;
}

/* Whether every entry up to `end` is already as it should be, so that no table of our own is needed. */
static bool nothing_to_clear(const struct request *request, const struct slot *slot, uint64_t guest_offset, uint64_t end) {
    for (uint64_t at = guest_offset; at < end; at += request->image->geometry.cluster_size) {
        const struct cluster old = map_get(&request->image->map, slot, at);
        struct cluster new;
        bool bytes = false;
        if (old.type == CLUSTER_INVALID || cleared(request, &old, &new, &bytes) || bytes) return false;
    }
    return true;
}

/* ---- the external data file ---- */

static bool clears_data_file(const struct request *request) {
    const struct image *image = request->image;
    return image->geometry.data_file && (image->data_is_raw || gives_up_clusters(request));
}

/* The entries follow when the bytes are zero, or their space is given back. */
static enum plan begin_clear(struct request *request, struct slot *slot, uint64_t guest_offset, uint64_t end) {
    struct image *image = request->image;
    struct piece *piece = &request->piece;
    piece->kind = PIECE_CLEAR;
    piece->slot = slot;
    piece->guest_offset = guest_offset;
    piece->progress = end - guest_offset;
    cache_pin(slot);
    inflight_enter(&image->inflight, &request->entry, guest_offset, end);
    request->moves.count = 0;
    struct move *move =
        moves_add(&request->moves, image->data_is_raw ? MOVE_ZERO : MOVE_DISCARD, image->data, guest_offset, end - guest_offset);
    if (gives_up_clusters(request)) move->zero_mode = FILE_ZERO_UNMAP;
    return PLAN_MOVE;
}

int link_clear(struct request *request, int result) {
    struct image *image = request->image;
    struct piece *piece = &request->piece;
    bool bytes = false;
    image->flush.unsynced = true;
    if (result < 0 && !image->data_is_raw) { /* space that cannot be given back is no failure */
        error_clear(&request->error);
        result = 0;
    }
    if (result == 0) clear_entries(request, piece->slot, piece->guest_offset, piece->guest_offset + piece->progress, &bytes);
    cache_unpin(&image->map.l2, piece->slot);
    return result;
}

/* ---- whole clusters ---- */

static enum plan clear_slice(struct request *request, struct slot *slot, uint64_t guest_offset, uint64_t end) {
    struct image *image = request->image;
    struct run run;
    for (uint64_t at = guest_offset; at < end; at += run.length) { /* damage is found before anything changes */
        if (map_run(&image->map, slot, at, end - at, &run, &request->error) < 0) return PLAN_FAILED;
    }
    if (nothing_to_clear(request, slot, guest_offset, end)) return go_on(request, end - guest_offset);
    if (!map_table_is_ours(&image->map, guest_offset)) return plan_table(request, guest_offset);
    struct waiters *waiters = inflight_conflict(&image->inflight, guest_offset, end);
    if (waiters != NULL) return plan_wait(request, waiters);
    if (alloc_reserve_drops(&image->alloc, ceil_div_u64(end - guest_offset, image->geometry.cluster_size)) < 0) {
        error_set(&request->error, -ENOMEM, "no memory to give up clusters");
        return PLAN_FAILED;
    }
    if (clears_data_file(request)) return begin_clear(request, slot, guest_offset, end);
    bool bytes = false;
    const uint64_t cleared_length = clear_entries(request, slot, guest_offset, end, &bytes);
    if (cleared_length > 0) return go_on(request, cleared_length);
    if (request->kind == REQUEST_DISCARD) return go_on(request, min_u64(end - guest_offset, image->geometry.cluster_size));
    return plan_write(request, guest_offset, min_u64(end - guest_offset, image->geometry.cluster_size), NULL);
}

static enum plan clear_clusters(struct request *request, uint64_t guest_offset, uint64_t end) {
    struct image *image = request->image;
    struct slot *slot = NULL;
    struct run run;
    switch (map_slice(&image->map, guest_offset, &slot, &request->want, &request->error)) {
        case MAP_WANT: return PLAN_WANT;
        case MAP_FAILED: return PLAN_FAILED;
        case MAP_READY:
            return clear_slice(request, slot, guest_offset, min_u64(end, guest_offset + map_left_in_slice(&image->map, guest_offset)));
        case MAP_NO_TABLE: break;
    }
    map_run_without_table(&image->map, guest_offset, end - guest_offset, &run);
    return image->backing == NULL || request->unmap_all ? go_on(request, run.length) : plan_table(request, guest_offset);
}

/* A part of a cluster: nothing for a discard; for zeroes, bytes, unless it reads as zeroes already. */
static enum plan clear_part(struct request *request, uint64_t guest_offset, uint64_t length) {
    struct image *image = request->image;
    struct slot *slot = NULL;
    struct run run;
    if (request->kind == REQUEST_DISCARD) return go_on(request, length);
    switch (map_slice(&image->map, guest_offset, &slot, &request->want, &request->error)) {
        case MAP_WANT: return PLAN_WANT;
        case MAP_FAILED: return PLAN_FAILED;
        case MAP_NO_TABLE: map_run_without_table(&image->map, guest_offset, length, &run); break;
        case MAP_READY:
            if (map_run(&image->map, slot, guest_offset, length, &run, &request->error) < 0) return PLAN_FAILED;
            break;
    }
    const bool is_zero =
        run.type == CLUSTER_ZERO || run.type == CLUSTER_ZERO_ALLOC || (run.type == CLUSTER_UNALLOCATED && image->backing == NULL);
    struct waiters *waiters = inflight_conflict(&image->inflight, guest_offset, guest_offset + length);
    if (waiters != NULL) return plan_wait(request, waiters);
    return is_zero ? go_on(request, length) : plan_write(request, guest_offset, length, NULL);
}

enum plan plan_clear(struct request *request) {
    struct image *image = request->image;
    const uint64_t at = request->guest_offset + request->done, end = request->guest_offset + request->length;
    const uint64_t whole_end = whole_clusters_end(request, at);
    request->want_image = image;
    if (request->kind == REQUEST_DISCARD && image->discard_ignored && !request->unmap_all) return PLAN_DONE;
    if (whole_end > at) return clear_clusters(request, at, whole_end);
    const uint64_t subclusters_end = whole_subclusters_end(request, at);
    if (subclusters_end > at && image->geometry.extended_l2) {
        return clear_subclusters(request, at, subclusters_end - at, gives_up_clusters(request));
    }
    const uint64_t part_end = geometry_subcluster_start(&image->geometry, at) + image->geometry.subcluster_size;
    return clear_part(request, at, min_u64(end, part_end) - at);
}
