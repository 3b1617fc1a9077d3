/* SPDX-License-Identifier: MIT
 *
 * Many requests at once: a driver of requests over a ring. A queue has `depth` slots; a request in a slot is advanced as far as it goes
 * whenever its moves have ended or it was woken. A queue and its ring belong to one thread; several queues may share a
 * ring in that thread (each job then comes back to its own queue). Requests of other threads may wake ours: they only note it.
 */
#ifndef QCOW2_JOBS_QUEUE_H
#define QCOW2_JOBS_QUEUE_H

#include "guest/request.h"
#include "storage/ring.h"

#define QUEUE_DEPTH_MAX 1024u

struct queue;

struct queue_slot {
    struct request request;
    struct ring_job jobs[MOVES_MAX];
    struct queue *queue;
    unsigned sent, ended;    /* of the request's moves */
    bool busy, has_moved;    /* has_moved: some of its moves have gone to the ring */
    struct queue_slot *next; /* in the queue's list of free, woken or done slots */
    struct queue_slot *woken_next;
    uint64_t started_at; /* ring_now, nanoseconds */
    void *user;          /* the caller's */
    unsigned direction;  /* the caller's */
    uint64_t number;     /* the caller's */
};

struct queue {
    struct image *image;
    struct ring *ring;
    unsigned depth, busy;
    unsigned stream; /* given to every job, for a scheduler */
    struct queue_slot *slots;
    struct queue_slot *free, *done, *done_last;
    pthread_mutex_t lock; /* of `woken` alone */
    struct queue_slot *woken;
};

/* A queue of `depth` slots (1–QUEUE_DEPTH_MAX) on the image. The ring must take depth × MOVES_MAX jobs. */
int queue_init(struct queue *queue, struct image *image, struct ring *ring, unsigned depth);

/* Nothing may be busy. */
void queue_destroy(struct queue *queue);

/* A slot to start a request in, or NULL: all are busy. */
struct queue_slot *queue_slot_take(struct queue *queue);

/* Starts slot->request, which request_start has prepared. */
void queue_start(struct queue_slot *slot);

/* A job of the ring ended: goes on with its slot, whichever queue that is in. */
void queue_job_ended(struct ring_job *job);

/* Goes on with the slots that were woken. */
void queue_run_woken(struct queue *queue);

/* Whether any slot was woken and not yet run; from any thread. */
bool queue_has_woken(struct queue *queue);

/* A slot whose request is done, or NULL. It stays the caller's until queue_slot_give. */
struct queue_slot *queue_take_done(struct queue *queue);

void queue_slot_give(struct queue_slot *slot);

/* For a ring of one queue: woken slots, then what has ended; with `wait`, until something is done (or nothing is under way). */
void queue_poll(struct queue *queue, bool wait);

#endif
