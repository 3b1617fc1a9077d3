/* SPDX-License-Identifier: MIT
 *
 * The virtual size, and an L1 table long enough for it. A longer table stays where it is while its clusters have room; else it moves
 * to clusters in a row, which a big one gets behind refcount blocks of its own (see cover). The old table is dropped; the
 * header changes at the next flush, after the new table is on disk. What the grown part holds is image/resize.c's business.
 */
#include <string.h>

#include "base/bytes.h"
#include "base/memory.h"
#include "guest/pieces.h"

/* The header says so only when image/resize.c has made the new part what it must be, and sets flush.size. */
static void set_size(struct image *image, uint64_t size) { image->size = size; }

static enum plan no_memory(struct request *request) {
    error_set(&request->error, -ENOMEM, "no memory for a longer L1 table");
    return PLAN_FAILED;
}

/* Puts the longer table at host_cluster, where `count` clusters are ours. Takes nothing when it fails. */
static int put_l1(struct image *image, uint64_t host_cluster, uint64_t count, uint64_t entries) {
    const uint64_t old_cluster = geometry_cluster(&image->geometry, image->map.l1_offset), old_count = map_l1_clusters(&image->map);
    uint64_t *l1 = memory_array(entries, sizeof *l1);
    int result = l1 == NULL ? -ENOMEM : overlap_reserve(&image->overlap, count);
    if (result == 0) result = alloc_reserve_drops(&image->alloc, 1);
    if (result < 0) {
        memory_free(l1);
        return result;
    }
    if (image->map.l1_entries > 0) memcpy(l1, image->map.l1, image->map.l1_entries * sizeof *l1);
    map_replace_l1(&image->map, l1, entries, geometry_offset(&image->geometry, host_cluster));
    overlap_add(&image->overlap, OVERLAP_ACTIVE_L1, host_cluster, count);
    if (old_count > 0 && old_cluster != host_cluster) {
        alloc_drop(&image->alloc, old_cluster, old_count, inflight_drop_time(&image->inflight));
    }
    return 0;
}

static enum plan finish(struct request *request, uint64_t host_cluster, uint64_t count) {
    struct image *image = request->image;
    const uint64_t size = request->guest_offset;
    if (put_l1(image, host_cluster, count, geometry_l1_entries(&image->geometry, size)) < 0) return no_memory(request);
    set_size(image, size);
    return PLAN_DONE;
}

/* Few clusters are looked for among the free ones; many go behind new refcount blocks. */
static enum plan plan_new_l1(struct request *request, uint64_t count) {
    struct image *image = request->image;
    struct alloc_found found;
    if (count > refcount_left_in_slice(&image->refcount, 0) / 2) return plan_cover_with(request, refcount_reach(&image->refcount), count);
    const enum plan plan = plan_clusters(request, count, true, &found);
    if (plan != PLAN_DONE) return plan;
    alloc_take(&image->alloc, found);
    const enum plan result = finish(request, found.host_cluster, count);
    if (result == PLAN_FAILED) alloc_drop(&image->alloc, found.host_cluster, count, inflight_drop_time(&image->inflight));
    return result;
}

enum plan plan_resize(struct request *request) {
    struct image *image = request->image;
    const uint64_t size = request->guest_offset, entries = geometry_l1_entries(&image->geometry, size);
    const uint64_t count = geometry_clusters_for(&image->geometry, entries * 8);
    if (image->size == size) return PLAN_DONE;
    if (geometry_check_size(&image->geometry, size, &request->error) < 0) return PLAN_FAILED;
    if (entries <= image->map.l1_entries) {
        set_size(image, size);
        return PLAN_DONE;
    }
    if (count > map_l1_clusters(&image->map)) return plan_new_l1(request, count);
    return finish(request, geometry_cluster(&image->geometry, image->map.l1_offset), count);
}

/* The clusters that a cover took along are there. */
int link_l1(struct request *request) {
    struct image *image = request->image;
    const uint64_t host_cluster = request->piece.host_cluster, count = request->piece.count;
    error_clear(&request->error);
    if (finish(request, host_cluster, count) == PLAN_DONE) return 0;
    alloc_drop(&image->alloc, host_cluster, count, inflight_drop_time(&image->inflight));
    return request->error.code;
}
