/* SPDX-License-Identifier: MIT
 *
 * Zeroes and discards of whole subclusters (extended L2): bits of one entry's bitmap, no bytes. When nothing in the host cluster
 * is left and it may be given up, it is dropped as well. What bits cannot say (compressed clusters, raw external data files) is written
 * as bytes by write.c. Called by clear under the image's lock.
 */
#include "base/bytes.h"
#include "guest/pieces.h"

/* Whether every subcluster in the range reads as zeroes without a change. */
static bool reads_as_zero(const struct image *image, const struct cluster *cluster, uint64_t subclusters) {
    const uint64_t zero = cluster->bitmap >> 32, allocated = cluster->bitmap & UINT32_MAX;
    const uint64_t nothing = image->backing == NULL ? ~(zero | allocated) : 0;
    return (subclusters & ~(zero | nothing)) == 0;
}

static enum plan mark_zero(struct request *request, struct slot *slot, uint64_t guest_offset, uint64_t subclusters, bool give_up) {
    struct image *image = request->image;
    const struct cluster old = map_get(&image->map, slot, guest_offset);
    struct cluster new = old;
    if (alloc_reserve_drops(&image->alloc, 1) < 0) {
        error_set(&request->error, -ENOMEM, "no memory to give up a cluster");
        return PLAN_FAILED;
    }
    cluster_mark_zero(&new, subclusters);
    const bool drops = give_up && cluster_is_placed(&old) && (new.bitmap &UINT32_MAX) == 0;
    if (drops) new = (struct cluster){.type = CLUSTER_UNALLOCATED, .bitmap = new.bitmap};
    map_set(&image->map, slot, guest_offset, &new);
    if (drops) drop_cluster(image, &old, inflight_drop_time(&image->inflight));
    return PLAN_GO_ON;
}

enum plan clear_subclusters(struct request *request, uint64_t guest_offset, uint64_t length, bool give_up) {
    struct image *image = request->image;
    struct slot *slot = NULL;
    struct run run;
    switch (map_slice(&image->map, guest_offset, &slot, &request->want, &request->error)) {
        case MAP_NO_TABLE:
            if (image->backing != NULL) return plan_table(request, guest_offset);
            request->done += length;
            return PLAN_GO_ON;
        case MAP_WANT: return PLAN_WANT;
        case MAP_FAILED: return PLAN_FAILED;
        case MAP_READY: break;
    }
    if (map_run(&image->map, slot, guest_offset, length, &run, &request->error) < 0) return PLAN_FAILED;
    const struct cluster cluster = map_get(&image->map, slot, guest_offset);
    const uint32_t start = geometry_in_cluster(&image->geometry, guest_offset);
    const uint64_t subclusters = cluster_subclusters(&image->geometry, start, start + (uint32_t) length);
    struct waiters *waiters = inflight_conflict(&image->inflight, guest_offset, guest_offset + length);
    if (waiters != NULL) return plan_wait(request, waiters);
    if (cluster.type != CLUSTER_COMPRESSED && reads_as_zero(image, &cluster, subclusters)) {
        request->done += length;
        return PLAN_GO_ON;
    }
    if (cluster.type == CLUSTER_COMPRESSED || image->data_is_raw) return plan_write(request, guest_offset, length, NULL);
    if (!map_table_is_ours(&image->map, guest_offset)) return plan_table(request, guest_offset);
    const enum plan plan = mark_zero(request, slot, guest_offset, subclusters, give_up);
    if (plan == PLAN_GO_ON) request->done += length;
    return plan;
}
