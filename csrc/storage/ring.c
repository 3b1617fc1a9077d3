/* SPDX-License-Identifier: MIT
 *
 * Choosing a form of ring, and what the forms have in common.
 *
 * A form keeps its own structs; a job is in one queue of one form at a time, by its `next`. What can be done at once is counted and
 * checked like any other operation of file.h, but only when it succeeds: what fails to happen at once is done
 * anew, as a whole, so that there is never half a move to go on with.
 */
#include "storage/ring.h"

#include <stddef.h>
#include <time.h>

#include "base/bytes.h"
#include "base/timed.h"
#include "storage/file_posix.h"
#include "storage/ring_forms.h"
#include "storage/vector.h"

#define NANOSECONDS UINT64_C(1000000000) /* in a second */

const char *const ring_kind_names[] = {"auto", "io_uring", "threads", "sync", NULL};

int ring_open(enum ring_kind kind, unsigned depth, struct ring **ring, struct error *error) {
    if (depth == 0 || depth > RING_DEPTH_MAX)
        return error_set(error, -EINVAL, "a ring takes 1 to %u operations at a time, not %u", RING_DEPTH_MAX, depth);
    switch (kind) {
        case RING_AUTO: {
            struct error ignored = {0};
            if (ring_uring_open(depth, true, ring, &ignored) == 0) return 0;
            return ring_threads_open(depth, true, ring, error);
        }
        case RING_URING: return ring_uring_open(depth, false, ring, error);
        case RING_THREADS: return ring_threads_open(depth, false, ring, error);
        case RING_SYNC: return ring_sync_open(ring, error);
    }
    return error_set(error, -EINVAL, "unknown kind of ring %d", (int) kind);
}

uint64_t ring_clock(struct ring *ring) {
    struct timespec time;
    (void) ring;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t) time.tv_sec * NANOSECONDS + (uint64_t) time.tv_nsec;
}

bool ring_is_plain(const struct move *move, uint64_t *length) {
    const enum file_operation operation = move->kind == MOVE_WRITE ? FILE_WRITE : FILE_READ;
    if (move->kind != MOVE_READ && move->kind != MOVE_WRITE) return false;
    if (file_posix_descriptor(move->file) < 0 || !vector_total(move->vector, move->vector_count, length)) return false;
    return *length > 0 && file_check(move->file, operation, move->offset, *length) == 0;
}

bool ring_at_once(const struct move *move) {
    const bool write = move->kind == MOVE_WRITE;
    uint64_t length;
    if (!ring_is_plain(move, &length)) return false;
    if (!file_posix_at_once(move->file, write, move->offset, move->vector, move->vector_count, length)) return false;
    file_count(move->file, write ? FILE_WRITE : FILE_READ, length);
    return true;
}

/* ---- queues ---- */

void ring_jobs_add(struct ring_jobs *jobs, struct ring_job *job) {
    job->next = NULL;
    if (jobs->first) jobs->last->next = job;
    else jobs->first = job;
    jobs->last = job;
}

struct ring_job *ring_jobs_take(struct ring_jobs *jobs) {
    struct ring_job *job = jobs->first;
    if (job) jobs->first = job->next;
    return job;
}

void ring_ended_init(struct ring_ended *ended) {
    pthread_mutex_init(&ended->lock, NULL);
    timed_init(&ended->changed);
}

void ring_ended_destroy(struct ring_ended *ended) {
    pthread_mutex_destroy(&ended->lock);
    pthread_cond_destroy(&ended->changed);
}

void ring_ended_add(struct ring_ended *ended, struct ring_job *job) {
    pthread_mutex_lock(&ended->lock);
    ring_jobs_add(&ended->jobs, job);
    pthread_cond_signal(&ended->changed);
    pthread_mutex_unlock(&ended->lock);
}

/* Waits for a change; false when the time is up. */
static bool wait_until(struct ring_ended *ended, uint64_t until) {
    const struct timespec time = {.tv_sec = (time_t) (until / NANOSECONDS), .tv_nsec = (long) (until % NANOSECONDS)};
    if (until == 0) return false;
    if (until != RING_FOREVER) return pthread_cond_timedwait(&ended->changed, &ended->lock, &time) == 0;
    pthread_cond_wait(&ended->changed, &ended->lock);
    return true;
}

struct ring_job *ring_ended_take(struct ring_ended *ended, uint64_t until) {
    pthread_mutex_lock(&ended->lock);
    while (!ended->jobs.first && !ended->woken && wait_until(ended, until)) continue;
    struct ring_job *job = ring_jobs_take(&ended->jobs);
    if (until > 0 && !job) ended->woken = false;
    pthread_mutex_unlock(&ended->lock);
    return job;
}

void ring_ended_wake(struct ring_ended *ended) {
    pthread_mutex_lock(&ended->lock);
    ended->woken = true;
    pthread_cond_signal(&ended->changed);
    pthread_mutex_unlock(&ended->lock);
}
