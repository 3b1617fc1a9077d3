/* SPDX-License-Identifier: MIT
 *
 * An I/O scheduler: a ring over a ring, which holds operations back and sends them in an order of its own.
 *
 * SCHEDULER_NONE sends everything at once. SCHEDULER_FAIR knows two classes. Every stream has a queue for its synchronous operations
 * (reads, syncs, what a flush writes); the asynchronous ones of all streams (writes) share one more. Queues take turns; in its turn a
 * queue has the disk for a slice, in which it sends at most `quantum` operations at a time, upwards from where the last one was, the
 * oldest first once it has expired. A synchronous queue that is empty is waited for, slice_idle long, when its stream's next operations have come
 * soon and lain near so far; others hand the turn on, so that the disk can choose among what several of them ask for. Asynchronous operations also wait while synchronous ones are under way.
 *
 *   low_latency   slices shrink so that a round over all queues that have something to do takes about target_latency
 *   write_depth   how many asynchronous operations may be under way: time since a mark / slice_sync, one at least, quantum at most.
 *                 The mark is the last end of a synchronous operation (ANY_SYNC), or of one that ended later than expire_sync
 *                 after it was submitted (DELAYED_SYNC). OFF: quantum.
 */
#ifndef QCOW2_JOBS_SCHEDULER_H
#define QCOW2_JOBS_SCHEDULER_H

#include "storage/ring.h"

enum scheduler_kind {
    SCHEDULER_NONE,
    SCHEDULER_FAIR
};

enum scheduler_write_depth {
    WRITE_DEPTH_OFF,
    WRITE_DEPTH_ANY_SYNC,
    WRITE_DEPTH_DELAYED_SYNC
};

struct scheduler_options { /* times in nanoseconds */
    enum scheduler_kind kind;
    bool low_latency;
    enum scheduler_write_depth write_depth;
    uint64_t slice_sync, slice_async, slice_idle; /* lengths of turns, and of a wait for the next operation */
    uint64_t expire_sync, expire_async;           /* how old an operation gets before it is the next one of its queue */
    uint64_t target_latency;                      /* for low_latency */
    unsigned quantum;                             /* operations of one queue under way */
};

/* 100, 40 and 8 ms; 125 and 250 ms; 300 ms; 8; low latency on, delayed sync. */
struct scheduler_options scheduler_options_default(void);

/* Opens a scheduler for `streams` streams (ring_job.stream is below that) over a ring, which stays the caller's and must outlive it. */
int scheduler_open(const struct scheduler_options *options, struct ring *below, unsigned streams, struct ring **ring, struct error *error);

#endif
