/* SPDX-License-Identifier: MIT
 *
 * Host clusters for what is no guest data (a snapshot's tables), and references more to clusters in use. Both are table work: what they
 * change goes to the disk at the next flush, before anything that relies on it. Called by request under the image's lock.
 */
#include "base/bytes.h"
#include "guest/pieces.h"

/* Few clusters are looked for among the free ones; many go behind new refcount blocks. */
enum plan plan_take(struct request *request) {
    struct image *image = request->image;
    const uint64_t count = request->length;
    struct alloc_found found;
    if (request->value != 0) return PLAN_DONE;
    if (count > refcount_left_in_slice(&image->refcount, 0) / 2) return plan_cover_with(request, refcount_reach(&image->refcount), count);
    const enum plan plan = plan_clusters(request, count, true, &found);
    if (plan != PLAN_DONE) return plan;
    alloc_take(&image->alloc, found);
    request->value = geometry_offset(&image->geometry, found.host_cluster);
    return PLAN_DONE;
}

void link_taken(struct request *request) { request->value = geometry_offset(&request->image->geometry, request->piece.host_cluster); }

static enum plan refuse(struct request *request, uint64_t host_cluster, const char *why) {
    error_set(&request->error, ERROR_CORRUPT, "the host cluster at offset %llu %s",
              (unsigned long long) geometry_offset(&request->image->geometry, host_cluster), why);
    return PLAN_FAILED;
}

static enum plan refer_in_slice(struct request *request, struct slot *slot, uint64_t host_cluster) {
    struct image *image = request->image;
    const uint64_t left = min_u64(request->length - request->done, refcount_left_in_slice(&image->refcount, host_cluster));
    for (uint64_t i = 0; i < left; i++) {
        const uint64_t count = refcount_get(&image->refcount, slot, host_cluster + i);
        if (count == 0) return refuse(request, host_cluster + i, "is in use, but its refcount is 0");
        if (count == image->geometry.refcount_max) {
            error_set(&request->error, -ERANGE, "the host cluster at offset %llu has %llu references, as many as %u bits hold",
                      (unsigned long long) geometry_offset(&image->geometry, host_cluster + i), (unsigned long long) count,
                      1u << image->geometry.refcount_order);
            return PLAN_FAILED;
        }
        refcount_set(&image->refcount, slot, host_cluster + i, count + 1);
        request->done++;
    }
    return PLAN_GO_ON;
}

enum plan plan_refer(struct request *request) {
    struct refcount *refcount = &request->image->refcount;
    const uint64_t host_cluster = request->guest_offset + request->done;
    struct slot *slot = NULL;
    if (request->done == request->length) return PLAN_DONE;
    switch (refcount_slice(refcount, host_cluster, &slot, &request->want, &request->error)) {
        case REFCOUNT_WANT: return PLAN_WANT;
        case REFCOUNT_FAILED: return PLAN_FAILED;
        case REFCOUNT_UNCOVERED: return refuse(request, host_cluster, "is in use, but no refcount block covers it");
        case REFCOUNT_READY: break;
    }
    return refer_in_slice(request, slot, host_cluster);
}
