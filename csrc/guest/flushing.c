/* SPDX-License-Identifier: MIT
 *
 * Leading a flush round to its end inside a request: for REQUEST_FLUSH, at the end of each write with write-through, and
 * whenever a plan finds no clean slot. One round runs at a time; a request that comes later waits for its end and looks again, and
 * often finds that nothing is left to do. Called by request; what a round does is metadata/flush's business.
 */
#include <assert.h>

#include "guest/pieces.h"

static bool may_flush(const struct image *image) { return image->format == IMAGE_QCOW2; }

static enum go flush_over(struct request *request) {
    request->flushing = false;
    assert(request->after_flush != STATE_EDGES); /* edges are read from slices that are pinned, or clean */
    request->state = request->round.result < 0 ? STATE_FAILED : request->kind == REQUEST_FLUSH ? STATE_DONE : request->after_flush;
    if (request->round.result < 0) error_set(&request->error, request->round.result, "flush failed");
    return GO_ON;
}

static enum go flush_raw(struct request *request) {
    request->state = STATE_DONE;
    if (request->flushed || request->image->read_only) return GO_ON;
    request->flushed = true;
    request->state = STATE_FLUSH;
    request->moves.count = 0;
    moves_add(&request->moves, MOVE_SYNC, request->image->file, 0, 0);
    return GO_MOVE;
}

static enum go advance_flush_locked(struct request *request) {
    struct image *image = request->image;
    struct flush *flush = &image->flush;
    if (!request->flushing) {
        if (flush->running) {
            waiters_add(&flush->finished, &request->waiter);
            return GO_PARKED;
        }
        request->round = (struct flush_round){.result = 0};
        if (!flush_needed(flush)) return flush_over(request);
        request->round.result = flush_begin(flush, &request->round, &request->error);
        if (request->round.result < 0) return flush_over(request);
        request->flushing = true;
    }
    const uint64_t oldest = inflight_oldest(&image->inflight, &request->entry);
    if (flush_next(flush, &request->round, oldest, &request->moves, &request->error) == FLUSH_MOVE) return GO_MOVE;
    return flush_over(request);
}

enum go advance_flush(struct request *request) {
    struct image *image = request->image;
    if (!may_flush(image)) return flush_raw(request);
    pthread_mutex_lock(&image->lock);
    const enum go go = advance_flush_locked(request);
    pthread_mutex_unlock(&image->lock);
    return go;
}

void flush_moves_ended(struct request *request, int result) {
    if (!may_flush(request->image)) {
        if (result < 0) request->state = STATE_FAILED;
        return;
    }
    pthread_mutex_lock(&request->image->lock);
    flush_moved(&request->image->flush, &request->round, result);
    pthread_mutex_unlock(&request->image->lock);
    if (request->round.result == 0) error_clear(&request->error); /* space that was not given back is no failure */
}
