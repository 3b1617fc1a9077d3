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

static bool gives_up_clusters(const struct request *request) {
    if (request->unmap_all) return true;
    return (request->kind == REQUEST_DISCARD || request->may_unmap) && !request->image->discard_ignored;
}

/* What the entry becomes; false: it may stay as it is. Sets *bytes where only written zeroes will do. */
static bool cleared(const struct request *request, const struct cluster *old, struct cluster *new, bool *bytes) {
    const struct image *image = request->image;
    const bool give_up = gives_up_clusters(request), flag = image->geometry.version >= 3;
    *new = (struct cluster){.type = request->unmap_all ? CLUSTER_UNALLOCATED : CLUSTER_ZERO};
    if (request->unmap_all) return old->type != CLUSTER_UNALLOCATED;
    if (old->type == CLUSTER_UNALLOCATED && image->backing == NULL) return false;
    if (old->type == CLUSTER_ZERO || (old->type == CLUSTER_ZERO_ALLOC && !give_up)) return false;
    if (!flag) {
        new->type = CLUSTER_UNALLOCATED;
        *bytes = image->backing != NULL || !give_up;
        return !*bytes;
    }
    if (!give_up && old->type == CLUSTER_NORMAL && old->copied) {
        *new = *old;
        new->type = CLUSTER_ZERO_ALLOC;
    }
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
        if (new.type != CLUSTER_ZERO_ALLOC) drop_cluster(image, &old, now);
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
    const uint64_t cluster_end = geometry_cluster_start(&image->geometry, at) + image->geometry.cluster_size;
    return clear_part(request, at, min_u64(end, cluster_end) - at);
}
