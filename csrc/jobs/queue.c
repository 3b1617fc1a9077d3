/* SPDX-License-Identifier: MIT
 *
 * A slot goes round: advance → send its moves (up to the next that must come after) → all ended → advance. A request that is
 * parked sends nothing until its wake puts the slot on the woken list. Invariant: a slot is in one place at a time: free, under way (jobs in
 * the ring, parked or woken), or done. Called by workers, the loop and the binding.
 */
#include "jobs/queue.h"

#include <string.h>

#include "base/memory.h"

static void wake(struct request *request) {
    struct queue_slot *slot = request->owner;
    struct queue *queue = slot->queue;
    pthread_mutex_lock(&queue->lock);
    slot->woken_next = queue->woken;
    queue->woken = slot;
    pthread_mutex_unlock(&queue->lock);
    ring_wake(queue->ring);
}

int queue_init(struct queue *queue, struct image *image, struct ring *ring, unsigned depth) {
    *queue = (struct queue){.image = image, .ring = ring, .depth = depth};
    queue->slots = memory_array(depth, sizeof *queue->slots);
    if (queue->slots == NULL) return -ENOMEM;
    pthread_mutex_init(&queue->lock, NULL);
    for (unsigned i = depth; i-- > 0;) {
        queue->slots[i].queue = queue;
        queue->slots[i].next = queue->free;
        queue->free = &queue->slots[i];
    }
    return 0;
}

void queue_destroy(struct queue *queue) {
    if (queue->slots == NULL) return;
    pthread_mutex_destroy(&queue->lock);
    memory_free(queue->slots);
    memset(queue, 0, sizeof *queue);
}

struct queue_slot *queue_slot_take(struct queue *queue) {
    struct queue_slot *slot = queue->free;
    if (slot != NULL) queue->free = slot->next;
    return slot;
}

void queue_slot_give(struct queue_slot *slot) {
    slot->next = slot->queue->free;
    slot->queue->free = slot;
}

static void finish(struct queue_slot *slot) {
    struct queue *queue = slot->queue;
    slot->busy = false;
    queue->busy--;
    slot->next = NULL;
    if (queue->done == NULL) queue->done = slot;
    else queue->done_last->next = slot;
    queue->done_last = slot;
}

struct queue_slot *queue_take_done(struct queue *queue) {
    struct queue_slot *slot = queue->done;
    if (slot != NULL) queue->done = slot->next;
    return slot;
}

/* Moves that are waited for by a guest: reads and syncs, and all that a flush writes. */
static bool is_sync(const struct request *request, const struct move *move) {
    return move->kind == MOVE_READ || move->kind == MOVE_SYNC || request->kind == REQUEST_FLUSH;
}

/* Sends moves up to the next that must wait for those before it. */
static void send(struct queue_slot *slot) {
    const struct moves *moves = &slot->request.moves;
    slot->has_moved = true;
    while (slot->sent < moves->count) {
        const struct move *move = &moves->items[slot->sent];
        if (move->after && slot->ended < slot->sent) return;
        struct ring_job *job = &slot->jobs[slot->sent++];
        job->move = *move;
        error_clear(&job->error);
        job->owner = slot;
        job->stream = slot->queue->stream;
        job->is_sync = is_sync(&slot->request, move);
        ring_submit(slot->queue->ring, job);
    }
}

static void advance(struct queue_slot *slot) {
    for (;;) {
        switch (request_advance(&slot->request)) {
            case REQUEST_DONE: finish(slot); return;
            case REQUEST_PARKED: return;
            case REQUEST_MOVE: break;
        }
        slot->sent = slot->ended = 0;
        if (slot->request.moves.count > 0) {
            send(slot);
            return;
        }
        request_moved(&slot->request, 0);
    }
}

void queue_start(struct queue_slot *slot) {
    slot->busy = true;
    slot->has_moved = false;
    slot->queue->busy++;
    slot->request.owner = slot;
    slot->request.wake = wake;
    slot->started_at = ring_now(slot->queue->ring);
    advance(slot);
}

/* The first failure stops the rest of the list. */
static void fail(struct queue_slot *slot, const struct ring_job *job) {
    if (slot->request.error.code == 0) slot->request.error = job->error;
    slot->request.moves.count = slot->sent;
}

void queue_job_ended(struct ring_job *job) {
    struct queue_slot *slot = job->owner;
    slot->ended++;
    if (job->error.code < 0) fail(slot, job);
    if (slot->ended < slot->sent) return;
    if (slot->sent < slot->request.moves.count) {
        send(slot);
        return;
    }
    request_moved(&slot->request, slot->request.error.code);
    advance(slot);
}

bool queue_has_woken(struct queue *queue) {
    pthread_mutex_lock(&queue->lock);
    const bool any = queue->woken != NULL;
    pthread_mutex_unlock(&queue->lock);
    return any;
}

void queue_run_woken(struct queue *queue) {
    pthread_mutex_lock(&queue->lock);
    struct queue_slot *slot = queue->woken;
    queue->woken = NULL;
    pthread_mutex_unlock(&queue->lock);
    while (slot != NULL) {
        struct queue_slot *next = slot->woken_next;
        advance(slot);
        slot = next;
    }
}

void queue_poll(struct queue *queue, bool wait) {
    queue_run_woken(queue);
    for (;;) {
        const bool must_wait = wait && queue->done == NULL && queue->busy > 0;
        struct ring_job *job = ring_reap(queue->ring, must_wait ? RING_FOREVER : 0);
        if (job != NULL) queue_job_ended(job);
        queue_run_woken(queue);
        if (job == NULL && !must_wait) return;
    }
}
