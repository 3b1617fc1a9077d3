/* SPDX-License-Identifier: MIT
 *
 * The event loop: fill every job, go on with what was woken, wait for the ring until something ends or a rate allows more,
 * collect. Nothing else in the house waits for several things at once. Called by bench in a worker's thread or the
 * caller's own.
 */
#include "jobs/loop.h"

#include "base/bytes.h"

/* Starts what may start; *until is when more may. Returns whether any job goes on. */
static bool fill_all(struct job *const *jobs, unsigned count, uint64_t *until) {
    bool any = false;
    *until = RING_FOREVER;
    for (unsigned i = 0; i < count; i++) {
        if (jobs[i]->over) continue;
        *until = min_u64(*until, job_fill(jobs[i]));
        any = any || !jobs[i]->over;
    }
    return any;
}

static bool collect_all(struct job *const *jobs, unsigned count) {
    bool any = false;
    for (unsigned i = 0; i < count; i++) {
        queue_run_woken(&jobs[i]->queue);
        any = any || jobs[i]->queue.done != NULL;
        job_collect(jobs[i]);
    }
    return any;
}

void loop_run(struct ring *ring, struct job *const *jobs, unsigned count) {
    uint64_t until;
    while (fill_all(jobs, count, &until)) {
        if (collect_all(jobs, count)) continue;
        struct ring_job *job = ring_reap(ring, until);
        while (job != NULL) {
            queue_job_ended(job);
            job = ring_reap(ring, 0);
        }
        collect_all(jobs, count);
    }
}
