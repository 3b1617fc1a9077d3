/* SPDX-License-Identifier: MIT
 *
 * A ring without any concurrency: a job is over when ring_submit returns, and is reaped in order of submission.
 * The plainest form, for comparisons and for finding out whether a fault has to do with order. Only
 * ring_wake involves another thread, which is what the lock is for.
 */
#include "base/memory.h"
#include "storage/ring.h"
#include "storage/ring_forms.h"

struct sync_ring {
    struct ring ring;
    struct ring_ended ended;
};

static struct sync_ring *sync_of(struct ring *ring) { return (struct sync_ring *) ring; }

static void sync_submit(struct ring *ring, struct ring_job *job) {
    error_clear(&job->error);
    move_carry_out(&job->move, &job->error);
    ring_ended_add(&sync_of(ring)->ended, job);
}

static struct ring_job *sync_reap(struct ring *ring, uint64_t until) { return ring_ended_take(&sync_of(ring)->ended, until); }

static void sync_wake(struct ring *ring) { ring_ended_wake(&sync_of(ring)->ended); }

static void sync_close(struct ring *ring) {
    ring_ended_destroy(&sync_of(ring)->ended);
    memory_free(ring);
}

static const struct ring_ops sync_ops = {
    .name = "sync",
    .submit = sync_submit,
    .reap = sync_reap,
    .wake = sync_wake,
    .now = ring_clock,
    .close = sync_close,
};

int ring_sync_open(struct ring **ring, struct error *error) {
    struct sync_ring *sync = memory_zeroed(sizeof *sync);
    if (!sync) return error_set(error, -ENOMEM, "no memory for a ring");
    sync->ring.ops = &sync_ops;
    ring_ended_init(&sync->ended);
    *ring = &sync->ring;
    return 0;
}
