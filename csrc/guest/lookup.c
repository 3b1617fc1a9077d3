/* SPDX-License-Identifier: MIT
 *
 * Requests that are answered from tables alone: where a guest offset lies, and a host cluster's refcount. They plan like any
 * other (a table that is missing is read and the plan made again), and have no piece to move. Called by request
 * under the image's lock. Changes nothing.
 */
#include "guest/pieces.h"

enum plan plan_lookup(struct request *request) {
    struct map *map = &request->image->map;
    struct slot *slot = NULL;
    if (request->image->format == IMAGE_RAW) {
        request->run = (struct run){
            .type = CLUSTER_NORMAL, .guest_offset = request->guest_offset, .length = request->length, .host_offset = request->guest_offset};
        return PLAN_DONE;
    }
    switch (map_slice(map, request->guest_offset, &slot, &request->want, &request->error)) {
        case MAP_WANT: return PLAN_WANT;
        case MAP_FAILED: return PLAN_FAILED;
        case MAP_NO_TABLE: map_run_without_table(map, request->guest_offset, request->length, &request->run); return PLAN_DONE;
        case MAP_READY: break;
    }
    const int result = map_run(map, slot, request->guest_offset, request->length, &request->run, &request->error);
    return result < 0 ? PLAN_FAILED : PLAN_DONE;
}

enum plan plan_refcount(struct request *request) {
    struct refcount *refcount = &request->image->refcount;
    struct slot *slot = NULL;
    request->value = 0;
    request->covered = false;
    switch (refcount_slice(refcount, request->guest_offset, &slot, &request->want, &request->error)) {
        case REFCOUNT_WANT: return PLAN_WANT;
        case REFCOUNT_FAILED: return PLAN_FAILED;
        case REFCOUNT_UNCOVERED: return PLAN_DONE;
        case REFCOUNT_READY: break;
    }
    request->covered = true;
    request->value = refcount_get(refcount, slot, request->guest_offset);
    return PLAN_DONE;
}
