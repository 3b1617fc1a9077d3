/* SPDX-License-Identifier: MIT
 *
 * The door of the guest storey: checks a request, leads it through its states, and is the only place where an image is
 * marked corrupt. Each state has one function here; what a state plans is in read, write, clear and prepare.
 * The lock is taken and dropped within one function, and never held while moves are carried out.
 * Called by the image storey, the binding and the jobs.
 */
#include "guest/request.h"

#include <assert.h>
#include <string.h>
#include <time.h>

#include "base/bytes.h"
#include "base/memory.h"
#include "guest/pieces.h"

static void woken(struct waiter *waiter) {
    struct request *request = (struct request *) (void *) ((char *) waiter - offsetof(struct request, waiter));
    request->wake(request);
}

void request_start(struct request *request, struct image *image, enum request_kind kind, uint64_t guest_offset, uint64_t length,
                   void *bytes) {
    memset(request, 0, offsetof(struct request, moves));
    memset(&request->state, 0, sizeof *request - offsetof(struct request, state));
    request->moves.count = 0;
    request->image = request->want_image = image;
    request->kind = kind;
    request->guest_offset = guest_offset;
    request->length = length;
    request->bytes = bytes;
    request->waiter.wake = woken;
    request->state = STATE_CHECK;
}

/* ---- checks ---- */

static bool changes_image(enum request_kind kind) {
    return kind != REQUEST_READ && kind != REQUEST_FLUSH && kind != REQUEST_LOOKUP && kind != REQUEST_REFCOUNT;
}

/* Whether guest_offset and length are guest bytes. */
static bool is_of_guest(enum request_kind kind) {
    return kind != REQUEST_FLUSH && kind != REQUEST_REFCOUNT && kind != REQUEST_RESIZE && kind != REQUEST_TAKE && kind != REQUEST_REFER;
}

static const char *kind_name(enum request_kind kind) {
    static const char *const names[] = {"read",  "write",  "compressed write", "write of zeroes", "discard", "allocation",
                                        "flush", "resize", "allocation",       "reference",       "look-up", "look-up"};
    return names[kind];
}

static int check_pack(struct request *request) {
    const struct image *image = request->image;
    const uint64_t end = request->guest_offset + request->length;
    if (image->format == IMAGE_RAW || image->geometry.data_file) {
        return error_set(&request->error, -ENOTSUP, "'%s' is %s: nothing can be compressed in it", image->file->name,
                         image->format == IMAGE_RAW ? "a raw image" : "an image with an external data file");
    }
    if (geometry_in_cluster(&image->geometry, request->guest_offset) == 0 &&
        (geometry_in_cluster(&image->geometry, end) == 0 || end == image->size)) {
        return 0;
    }
    return error_set(&request->error, -EINVAL, "a compressed write of %llu bytes at offset %llu is not one of whole clusters of %u bytes",
                     (unsigned long long) request->length, (unsigned long long) request->guest_offset, image->geometry.cluster_size);
}

static int check(struct request *request) {
    struct image *image = request->image;
    const bool guest_range = is_of_guest(request->kind);
    if (image->lost) {
        return error_set(&request->error, -EIO, "'%s' has to be opened anew: its tables could not be read after they had changed",
                         image->file->name);
    }
    if (guest_range && !within_u64(request->guest_offset, request->length, image->size)) {
        return error_set(&request->error, -EINVAL, "%s of %llu bytes at offset %llu passes the end of '%s' (%llu bytes)",
                         kind_name(request->kind), (unsigned long long) request->length, (unsigned long long) request->guest_offset,
                         image->file->name, (unsigned long long) image->size);
    }
    if (guest_range && request->kind != REQUEST_LOOKUP && image->data == NULL) {
        return error_set(&request->error, -EBADF, "'%s' was opened without its external data file", image->file->name);
    }
    if (request->kind == REQUEST_PACK && check_pack(request) < 0) return request->error.code;
    if (!changes_image(request->kind)) return 0;
    if (image->read_only) return error_set(&request->error, -EROFS, "'%s' is open for reading only", image->file->name);
    if (image->corrupt) {
        return error_set(&request->error, ERROR_CORRUPT, "'%s' is marked corrupt: no writes until it is repaired", image->file->name);
    }
    return 0;
}

static void count(struct request *request) {
    struct image_stats *stats = &request->image->stats;
    switch (request->kind) {
        case REQUEST_READ: stats->reads++, stats->read_bytes += request->length; break;
        case REQUEST_PACK:
        case REQUEST_WRITE: stats->writes++, stats->written_bytes += request->length; break;
        case REQUEST_ZERO: stats->zero_writes++, stats->zero_write_bytes += request->length; break;
        case REQUEST_DISCARD: stats->discards++, stats->discarded_bytes += request->length; break;
        case REQUEST_FLUSH: stats->flushes++; break;
        default: break;
    }
}

static bool all_zero(const uint8_t *bytes, uint64_t length) {
    return length > 0 && bytes[0] == 0 && memcmp(bytes, bytes + 1, length - 1) == 0;
}

/* Tables that no request has used for a whole interval give their memory back. */
static void clean_caches(struct image *image) {
    struct timespec now;
    if (image->clean_interval == 0 || image->format == IMAGE_RAW) return;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    if ((uint64_t) now.tv_sec - image->cleaned_at < image->clean_interval) return;
    image->cleaned_at = (uint64_t) now.tv_sec;
    cache_trim(&image->map.l2, image->map.l2.clock++);
    cache_trim(&image->refcount.blocks, image->refcount.blocks.clock++);
}

/* Autoclear features whose data stays true. */
static uint64_t kept_autoclear(const struct image *image) { return image->data_is_raw ? FORMAT_AUTOCLEAR_RAW_DATA : 0; }

static enum go advance_check(struct request *request) {
    struct image *image = request->image;
    if (request->kind == REQUEST_WRITE && image->detect_zeroes && all_zero(request->bytes, request->length)) {
        request->kind = REQUEST_ZERO;
        request->may_unmap = image->detected_unmap;
    }
    pthread_mutex_lock(&image->lock);
    const int result = check(request);
    if (result == 0) count(request);
    clean_caches(image);
    const bool claims = changes_image(request->kind) && image->header.autoclear_features != kept_autoclear(image);
    pthread_mutex_unlock(&image->lock);
    request->state = result < 0 ? STATE_FAILED : request->kind == REQUEST_FLUSH ? STATE_FLUSH : claims ? STATE_CLAIM : STATE_PLAN;
    return GO_ON;
}

/* Autoclear features that speak of data that we do not keep true are cleared, and durably so, before anything else changes. */
static enum go advance_claim(struct request *request) {
    store_be64(request->note, kept_autoclear(request->image));
    request->moves.count = 0;
    moves_add_bytes(&request->moves, MOVE_WRITE, request->image->file, FORMAT_AUTOCLEAR_OFFSET, request->note, sizeof request->note);
    moves_add(&request->moves, MOVE_SYNC, request->image->file, 0, 0)->after = true;
    return GO_MOVE;
}

static void claimed(struct request *request, int result) {
    request->state = result < 0 ? STATE_FAILED : STATE_PLAN;
    if (result < 0) return;
    pthread_mutex_lock(&request->image->lock);
    request->image->header.autoclear_features = kept_autoclear(request->image);
    pthread_mutex_unlock(&request->image->lock);
}

/* ---- planning ---- */

static enum plan plan(struct request *request) {
    struct image *image = request->image;
    request->want_image = image;
    request->piece = (struct piece){.kind = PIECE_NONE};
    inflight_begin(&image->inflight, &request->entry);
    if (request->kind == REQUEST_LOOKUP) return plan_lookup(request);
    if (request->kind == REQUEST_REFCOUNT) return plan_refcount(request);
    if (request->kind == REQUEST_RESIZE) return plan_resize(request);
    if (request->kind == REQUEST_TAKE) return plan_take(request);
    if (request->kind == REQUEST_REFER) return plan_refer(request);
    if (request->done == request->length) return PLAN_DONE;
    if (image->corrupt) return check(request) < 0 ? PLAN_FAILED : PLAN_DONE;
    const uint64_t at = request->guest_offset + request->done, left = request->length - request->done;
    switch (request->kind) {
        case REQUEST_WRITE: return plan_write(request, at, left, request->bytes + request->done);
        case REQUEST_PACK: return plan_pack(request, at, left);
        case REQUEST_ALLOCATE: return plan_write(request, at, left, NULL);
        default: return plan_clear(request);
    }
}

/* A read needs no lock of its own: read_next takes each level's in turn. */
static enum plan plan_read(struct request *request) {
    pthread_mutex_lock(&request->image->lock);
    inflight_begin(&request->image->inflight, &request->entry);
    pthread_mutex_unlock(&request->image->lock);
    if (request->reading.top == NULL) {
        request->reading = (struct reading){
            .top = request->image, .guest_offset = request->guest_offset, .length = request->length, .bytes = request->bytes};
    }
    request->piece = (struct piece){.kind = PIECE_BYTES};
    return read_next(request, &request->reading);
}

/* Waits, reads a table, or flushes, as request->want says. Called without the lock; a wait is entered under it. */
static enum go follow_want(struct request *request) {
    const struct want *want = &request->want;
    if (want->kind == WANT_READ) {
        request->moves.count = 0;
        moves_add_bytes(&request->moves, MOVE_READ, request->want_image->file, want->slot->host_offset, want->slot->bytes,
                        want->cache->slot_size);
        request->after_table = request->state;
        request->state = STATE_TABLE;
        return GO_MOVE;
    }
    if (want->kind == WANT_FLUSH) {
        request->after_flush = request->state;
        request->state = STATE_FLUSH;
        return GO_ON;
    }
    return GO_PARKED;
}

static void park_if_waiting(struct request *request, enum plan result) {
    if (result == PLAN_WANT && request->want.kind == WANT_WAIT) waiters_add(request->want.waiters, &request->waiter);
}

static enum go follow_plan(struct request *request, enum plan result) {
    switch (result) {
        case PLAN_MOVE: request->state = STATE_MOVE; return request->moves.count > 0 ? GO_MOVE : GO_ON;
        case PLAN_EDGES: request->state = STATE_EDGES; return GO_ON;
        case PLAN_GO_ON: return GO_ON;
        case PLAN_WANT: return follow_want(request);
        case PLAN_FAILED: request->state = STATE_FAILED; return GO_ON;
        case PLAN_DONE: break;
    }
    const bool flush_after = request->image->write_through && changes_image(request->kind);
    request->after_flush = STATE_DONE;
    request->state = flush_after ? STATE_FLUSH : STATE_DONE;
    return GO_ON;
}

static enum go advance_plan(struct request *request) {
    struct image *image = request->image;
    enum plan result;
    if (request->kind == REQUEST_PACK && pack_next(request) < 0) return follow_plan(request, PLAN_FAILED);
    if (image->format == IMAGE_RAW && request->kind != REQUEST_LOOKUP && request->kind != REQUEST_READ) {
        result = plan_raw(request);
    } else if (request->kind == REQUEST_READ) {
        result = plan_read(request);
    } else {
        pthread_mutex_lock(&image->lock);
        result = plan(request);
        park_if_waiting(request, result);
        pthread_mutex_unlock(&image->lock);
    }
    return follow_plan(request, result);
}

/* ---- edges and moves ---- */

/* A cover brought the clusters that the request needs. */
static int link_extra(struct request *request) {
    if (request->kind == REQUEST_RESIZE) return link_l1(request);
    link_taken(request);
    return 0;
}

static int link_piece(struct request *request, int result) {
    struct image *image = request->image;
    struct piece *piece = &request->piece;
    const uint64_t progress = piece->progress;
    pthread_mutex_lock(&image->lock);
    switch (piece->kind) {
        case PIECE_DATA: result = link_data(request, result); break;
        case PIECE_PACKED: result = link_packed(request, result); break;
        case PIECE_CLEAR: result = link_clear(request, result); break;
        case PIECE_TABLE:
        case PIECE_COVER:
        case PIECE_GROW:
            result = link_prepared(request, result);
            if (result == 0 && piece->kind == PIECE_COVER && piece->count > 0) result = link_extra(request);
            break;
        default:
            if (request->kind != REQUEST_READ) image->flush.unsynced = true;
            break;
    }
    inflight_leave(&image->inflight, &request->entry);
    pthread_mutex_unlock(&image->lock);
    memory_free(piece->buffer);
    piece->buffer = NULL;
    piece->kind = PIECE_NONE;
    if (result < 0) unpack_drop(&request->reading);
    if (result == 0) request->done += progress;
    return result;
}

static enum go finish_piece(struct request *request, int result) {
    result = link_piece(request, result);
    if (result < 0) error_set(&request->error, result, "no memory to map new clusters");
    request->state = result < 0 ? STATE_FAILED : STATE_PLAN;
    return GO_ON;
}

static enum go advance_edges(struct request *request) {
    struct reading *reading = &request->reading;
    if (reading->top == NULL || reading->done == reading->length) {
        if (!cow_next_edge(request)) {
            pthread_mutex_lock(&request->image->lock);
            cow_moves(request);
            pthread_mutex_unlock(&request->image->lock);
            reading->top = NULL;
            request->state = STATE_MOVE;
            return GO_MOVE;
        }
    }
    const enum plan result = read_next(request, reading);
    switch (result) {
        case PLAN_MOVE: return GO_MOVE;
        case PLAN_WANT: return follow_want(request);
        case PLAN_FAILED: return finish_piece(request, request->error.code);
        default: return GO_ON;
    }
}

/* ---- the end ---- */

/* Contradictory metadata of this very image: no more writes, and the header says so once. */
static enum go note_corruption(struct request *request) {
    struct image *image = request->image;
    const bool first = image->format == IMAGE_QCOW2 && !image->corrupt_noted && request->want_image == image;
    if (request->error.code != ERROR_CORRUPT || !first) return GO_ON;
    image->corrupt = image->corrupt_noted = image->flush.frozen = true;
    image->flush.unsynced = !image->read_only;
    if (image->read_only || image->header.version < 3) return GO_ON;
    image->header.incompatible_features |= FORMAT_INCOMPATIBLE_CORRUPT;
    store_be64(request->note, image->header.incompatible_features);
    request->moves.count = 0;
    moves_add_bytes(&request->moves, MOVE_WRITE, image->file, FORMAT_INCOMPATIBLE_OFFSET, request->note, sizeof request->note);
    return GO_MOVE;
}

static enum go advance_failed(struct request *request) {
    struct image *image = request->image;
    assert(request->error.code < 0);
    request->state = STATE_NOTE;
    pthread_mutex_lock(&image->lock);
    const enum go go = note_corruption(request);
    pthread_mutex_unlock(&image->lock);
    return go;
}

static enum go advance_done(struct request *request) {
    struct image *image = request->image;
    pack_end(request);
    pthread_mutex_lock(&image->lock);
    inflight_end(&image->inflight, &request->entry);
    pthread_mutex_unlock(&image->lock);
    return GO_DONE;
}

static enum go advance_state(struct request *request) {
    switch (request->state) {
        case STATE_CHECK: return advance_check(request);
        case STATE_CLAIM: return advance_claim(request);
        case STATE_PLAN: return advance_plan(request);
        case STATE_EDGES: return advance_edges(request);
        case STATE_MOVE: return finish_piece(request, 0); /* a piece without moves */
        case STATE_FLUSH: return advance_flush(request);
        case STATE_FAILED: return advance_failed(request);
        case STATE_TABLE:
        case STATE_NOTE: request->state = STATE_DONE; return GO_ON;
        case STATE_DONE: break;
    }
    return advance_done(request);
}

enum request_step request_advance(struct request *request) {
    for (;;) {
        switch (advance_state(request)) {
            case GO_ON: break;
            case GO_MOVE: return REQUEST_MOVE;
            case GO_PARKED: return REQUEST_PARKED;
            case GO_DONE: return REQUEST_DONE;
        }
    }
}

static void table_read(struct request *request, int result) {
    struct image *image = request->want_image;
    pthread_mutex_lock(&image->lock);
    if (result == 0) cache_publish(request->want.cache, request->want.slot);
    else cache_abandon(request->want.cache, request->want.slot);
    pthread_mutex_unlock(&image->lock);
    request->state = request->after_table;
    if (result == 0) return;
    if (request->state == STATE_EDGES) finish_piece(request, result);
    else request->state = STATE_FAILED;
}

/* The header may not have been told: the next request that meets a contradiction, or is refused for one, tries again. */
static void noted(struct request *request, int result) {
    struct image *image = request->image;
    pthread_mutex_lock(&image->lock);
    image->corrupt_noted = result == 0;
    pthread_mutex_unlock(&image->lock);
}

void request_moved(struct request *request, int result) {
    switch (request->state) {
        case STATE_CLAIM: claimed(request, result); break;
        case STATE_TABLE: table_read(request, result); break;
        case STATE_EDGES:
            if (result < 0) finish_piece(request, result);
            break;
        case STATE_MOVE: finish_piece(request, result); break;
        case STATE_FLUSH: flush_moves_ended(request, result); break;
        case STATE_NOTE: noted(request, result); break;
        default: break;
    }
}
