/* SPDX-License-Identifier: MIT
 *
 * What the forms of a ring share, and how each is opened. Private to ring_*.c.
 * `eager` means RING_AUTO: a form first tries ring_at_once on each job.
 */
#ifndef QCOW2_STORAGE_RING_FORMS_H
#define QCOW2_STORAGE_RING_FORMS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

struct move;
struct ring;
struct ring_job;

/* The forms. Each returns 0 or a negative errno with a sentence. */
int ring_uring_open(unsigned depth, bool eager, struct ring **ring, struct error *error);
int ring_threads_open(unsigned depth, bool eager, struct ring **ring, struct error *error);
int ring_sync_open(struct ring **ring, struct error *error);

/* The monotonic clock in nanoseconds, for ring_ops. */
uint64_t ring_clock(struct ring *ring);

/* Whether the move reads or writes some bytes of a real file that may be read or written so. */
bool ring_is_plain(const struct move *move, uint64_t *length);

/* Carries out a plain move if the page cache can do so without waiting. */
bool ring_at_once(const struct move *move);

struct ring_jobs { /* a queue, first in, first out; all zero when empty */
    struct ring_job *first, *last;
};
void ring_jobs_add(struct ring_jobs *jobs, struct ring_job *job);
struct ring_job *ring_jobs_take(struct ring_jobs *jobs); /* NULL when it is empty */

struct ring_ended { /* jobs that have ended, and the wakes; any thread adds, one takes */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct ring_jobs jobs;
    bool woken;
};
void ring_ended_init(struct ring_ended *ended);
void ring_ended_destroy(struct ring_ended *ended);
void ring_ended_add(struct ring_ended *ended, struct ring_job *job);
struct ring_job *ring_ended_take(struct ring_ended *ended, uint64_t until); /* as ring_reap says */
void ring_ended_wake(struct ring_ended *ended);

#endif
