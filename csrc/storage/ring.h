/* SPDX-License-Identifier: MIT
 *
 * A ring carries out many moves at once: submit, and later reap what has ended, in any order.
 *
 * Forms: io_uring, a pool of threads, the caller's own thread. RING_AUTO is io_uring where there
 * is one, else threads, and first tries a buffered read or write in the caller's thread (RWF_NOWAIT), so that what is in the page
 * cache never pays for a hop. What io_uring does not do here (an unaligned O_DIRECT write, a file without a descriptor, zeroing,
 * discarding) the caller's thread does in ring_submit, through file.h. A ring belongs to one thread; only ring_wake may be called from
 * others.
 */
#ifndef QCOW2_STORAGE_RING_H
#define QCOW2_STORAGE_RING_H

#include <stddef.h>

#include "storage/move.h"

enum ring_kind {
    RING_AUTO,    /* the best there is; cached bytes at once */
    RING_URING,   /* everything that it can do through io_uring */
    RING_THREADS, /* everything in a pool of threads */
    RING_SYNC,    /* everything in ring_submit */
};

/* "auto", "io_uring", …: by enum ring_kind; NULL ends them. */
extern const char *const ring_kind_names[];

#define RING_DEPTH_MAX 16384u
#define RING_VIRTUAL_DEPTH_MAX (1u << 18)
#define RING_FOREVER UINT64_MAX

struct ring_job { /* one move under way; belongs to the caller, who leaves it alone from submit to reap */
    struct move move;
    struct error error;    /* the result: code 0 or why it failed */
    void *owner;           /* the caller's */
    unsigned stream;       /* which of several streams it belongs to, for a scheduler */
    bool is_sync;          /* somebody waits for it (reads, flushes), for a scheduler */
    uint64_t submitted_at; /* the caller's: ring_now when it was submitted, in nanoseconds */
    struct ring_job *next; /* the ring's */
};

struct ring; /* the forms' own; the first member is its ring_ops */

struct ring_ops {
    const char *name; /* "io_uring", "threads", "sync" */
    void (*submit)(struct ring *ring, struct ring_job *job);
    struct ring_job *(*reap)(struct ring *ring, uint64_t until);
    void (*wake)(struct ring *ring);
    uint64_t (*now)(struct ring *ring);                    /* nanoseconds: the monotonic clock */
    void (*pass)(struct ring *ring, uint64_t nanoseconds); /* NULL: time goes on by itself */
    void (*close)(struct ring *ring);
};

struct ring {
    const struct ring_ops *ops;
};

/* Opens a ring for at most `depth` jobs at a time (1 to RING_DEPTH_MAX). RING_URING where there is none (or it is forbidden): -ENOTSUP
 * with a sentence; RING_AUTO takes threads then. */
int ring_open(enum ring_kind kind, unsigned depth, struct ring **ring, struct error *error);

/* Starts the job, in the next ring_reap at the latest; it may be over already when this returns, but is reaped all the same. At most
 * `depth` may be under way, those not yet reaped among them. Whatever orders two jobs (a sync, overlapping ranges) is the caller's: it
 * submits one when it has reaped the other. */
static inline void ring_submit(struct ring *ring, struct ring_job *job) { ring->ops->submit(ring, job); }

/* A job that has ended, or NULL. Waits for one until ring_now is `until`: 0 = not at all, RING_FOREVER = until one ends; in all cases
 * only until ring_wake is called, also when nothing is under way. In virtual time, where nobody can wake, RING_FOREVER with nothing
 * under way gives NULL. */
static inline struct ring_job *ring_reap(struct ring *ring, uint64_t until) { return ring->ops->reap(ring, until); }

/* Makes the ring_reap that waits, or else the next one that would, return NULL; from any thread. Wakes are not counted: one NULL may
 * answer several. */
static inline void ring_wake(struct ring *ring) { ring->ops->wake(ring); }

/* What the caller did by itself took that long: in virtual time, time goes on; else it has already. */
static inline void ring_pass(struct ring *ring, uint64_t nanoseconds) {
    if (ring->ops->pass != NULL) ring->ops->pass(ring, nanoseconds);
}

static inline uint64_t ring_now(struct ring *ring) { return ring->ops->now(ring); }

/* Closes the ring; nothing may be under way. NULL is ignored. */
static inline void ring_close(struct ring *ring) {
    if (ring != NULL) ring->ops->close(ring);
}

#endif
