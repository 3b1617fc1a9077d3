/* SPDX-License-Identifier: MIT
 *
 * Reading: guest bytes resolved through the chain into moves. Each level is looked up under its own lock, never two at
 * once; what reads as zeroes is cleared here and needs no move. A list of moves is filled as far as the tables are at
 * hand; a table that is missing in the middle is asked for again when the moves so far are done. Compressed clusters are unpack's. Called by request for
 * REQUEST_READ and for the edges of copy-on-write. Changes no table.
 */
#include <assert.h>
#include <string.h>

#include "base/bytes.h"
#include "guest/pieces.h"

/* Waits, under the level's lock, unless there are moves that can go first. */
static void wait_if_alone(struct request *request) {
    if (request->want.kind == WANT_WAIT && request->moves.count == 0) waiters_add(request->want.waiters, &request->waiter);
}

/* Looks up one level. */
static enum plan find_run(struct request *request, struct image *level, uint64_t guest_offset, uint64_t length, struct run *run) {
    request->want_image = level;
    if (level->format == IMAGE_RAW) {
        *run = (struct run){.type = CLUSTER_NORMAL, .guest_offset = guest_offset, .length = length, .host_offset = guest_offset};
        return PLAN_DONE;
    }
    struct slot *slot = NULL;
    enum plan plan = PLAN_DONE;
    pthread_mutex_lock(&level->lock);
    switch (map_slice(&level->map, guest_offset, &slot, &request->want, &request->error)) {
        case MAP_READY:
            if (map_run(&level->map, slot, guest_offset, length, run, &request->error) < 0) plan = PLAN_FAILED;
            break;
        case MAP_NO_TABLE: map_run_without_table(&level->map, guest_offset, length, run); break;
        case MAP_WANT:
            plan = PLAN_WANT;
            wait_if_alone(request);
            break;
        case MAP_FAILED: plan = PLAN_FAILED; break;
    }
    pthread_mutex_unlock(&level->lock);
    return plan;
}

/* The run, and the level it is of, that holds guest_offset. Beyond the end of a backing file all reads as zeroes. */
static enum plan resolve(struct request *request, struct image **level, uint64_t guest_offset, uint64_t length, struct run *run) {
    for (;;) {
        const enum plan plan = find_run(request, *level, guest_offset, length, run);
        if (plan != PLAN_DONE) return plan;
        if (run->type != CLUSTER_UNALLOCATED || (*level)->backing == NULL) return PLAN_DONE;
        *level = (*level)->backing;
        length = run->length;
        if (guest_offset >= (*level)->size) {
            *run = (struct run){.type = CLUSTER_ZERO, .guest_offset = guest_offset, .length = length};
            return PLAN_DONE;
        }
        length = min_u64(length, (*level)->size - guest_offset);
    }
}

static void add_read(struct moves *moves, struct file *file, uint64_t host_offset, uint8_t *bytes, uint64_t length) {
    struct move *last = moves->count > 0 ? &moves->items[moves->count - 1] : NULL;
    if (last != NULL && last->file == file && last->offset + last->length == host_offset &&
        (uint8_t *) last->vector[0].iov_base + last->length == bytes) {
        last->vector[0].iov_len += length;
        last->length += length;
        return;
    }
    moves_add_bytes(moves, MOVE_READ, file, host_offset, bytes, length);
}

/* A compressed cluster has a list of moves for itself. */
static enum plan add_run(struct request *request, struct reading *reading, struct image *level, const struct run *run) {
    uint8_t *bytes = reading->bytes + reading->done;
    if (run->type == CLUSTER_COMPRESSED) return request->moves.count > 0 ? PLAN_MOVE : unpack_begin(request, reading, level, run);
    if (run->type == CLUSTER_NORMAL) add_read(&request->moves, level->data, run->host_offset, bytes, run->length);
    else memset(bytes, 0, run->length);
    reading->done += run->length;
    return PLAN_DONE;
}

/* Somebody else will ask for the table again; nobody is going to read it now. */
static void drop_want(struct request *request) {
    if (request->want.kind != WANT_READ) return;
    pthread_mutex_lock(&request->want_image->lock);
    cache_abandon(request->want.cache, request->want.slot);
    pthread_mutex_unlock(&request->want_image->lock);
}

enum plan read_next(struct request *request, struct reading *reading) {
    request->moves.count = 0;
    if (reading->packed != NULL && unpack_end(request, reading) < 0) return PLAN_FAILED;
    while (reading->done < reading->length && request->moves.count < MOVES_MAX) {
        struct image *level = reading->top;
        struct run run;
        const uint64_t at = reading->guest_offset + reading->done;
        enum plan plan = resolve(request, &level, at, reading->length - reading->done, &run);
        if (plan == PLAN_WANT && request->moves.count > 0) {
            drop_want(request);
            return PLAN_MOVE;
        }
        if (plan != PLAN_DONE) return plan;
        plan = add_run(request, reading, level, &run);
        if (plan != PLAN_DONE) return plan;
    }
    return request->moves.count > 0 ? PLAN_MOVE : PLAN_DONE;
}
