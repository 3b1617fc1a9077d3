/* SPDX-License-Identifier: MIT
 *
 * A ring of threads, each of which carries out one job after the other in the plain way.
 *
 * A thread starts when there are more jobs than threads, up to the depth or THREADS_MAX, and ends when the ring is closed. Where
 * none can be started, the caller's thread does the work. They take no signals, which belong to the program around us.
 * Invariant: a job is in `asked`, or with one thread, or in `ended`. No lock is held while a job is carried out.
 */
#include <signal.h>

#include "base/bytes.h"
#include "base/memory.h"
#include "storage/ring.h"
#include "storage/ring_forms.h"

#define THREADS_MAX 32u

struct threads_ring {
    struct ring ring;
    struct ring_ended ended;
    bool eager;
    unsigned count, limit; /* threads there are, and may be; the owner's */
    pthread_t threads[THREADS_MAX];
    pthread_mutex_t lock; /* over all below */
    pthread_cond_t changed;
    struct ring_jobs asked;
    unsigned busy; /* jobs asked for or being carried out */
    bool closing;
};

static struct threads_ring *threads_of(struct ring *ring) { return (struct threads_ring *) ring; }

/* ---- in the pool ---- */

/* The next job, or NULL when the ring closes. */
static struct ring_job *wait_for_job(struct threads_ring *threads) {
    pthread_mutex_lock(&threads->lock);
    while (!threads->asked.first && !threads->closing) pthread_cond_wait(&threads->changed, &threads->lock);
    struct ring_job *job = ring_jobs_take(&threads->asked);
    pthread_mutex_unlock(&threads->lock);
    return job;
}

static void end_job(struct threads_ring *threads, struct ring_job *job) {
    pthread_mutex_lock(&threads->lock);
    threads->busy--;
    pthread_mutex_unlock(&threads->lock);
    ring_ended_add(&threads->ended, job);
}

static void *work(void *argument) {
    struct threads_ring *threads = argument;
    for (struct ring_job *job; (job = wait_for_job(threads)) != NULL;) {
        move_carry_out(&job->move, &job->error);
        end_job(threads, job);
    }
    return NULL;
}

/* ---- in the owner's thread ---- */

/* False when no thread can be had. */
static bool start_thread(struct threads_ring *threads) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const bool started = pthread_create(&threads->threads[threads->count], NULL, work, threads) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    threads->count += started;
    return started;
}

/* Leaves the job to a thread. False when there is none. */
static bool ask(struct threads_ring *threads, struct ring_job *job) {
    pthread_mutex_lock(&threads->lock);
    const bool wanted = threads->busy >= threads->count && threads->count < threads->limit;
    pthread_mutex_unlock(&threads->lock);
    if (wanted && !start_thread(threads) && threads->count == 0) return false;
    pthread_mutex_lock(&threads->lock);
    threads->busy++;
    ring_jobs_add(&threads->asked, job);
    pthread_cond_signal(&threads->changed);
    pthread_mutex_unlock(&threads->lock);
    return true;
}

static void threads_submit(struct ring *ring, struct ring_job *job) {
    struct threads_ring *threads = threads_of(ring);
    error_clear(&job->error);
    if (!(threads->eager && ring_at_once(&job->move))) {
        if (ask(threads, job)) return;
        move_carry_out(&job->move, &job->error);
    }
    ring_ended_add(&threads->ended, job);
}

static struct ring_job *threads_reap(struct ring *ring, uint64_t until) { return ring_ended_take(&threads_of(ring)->ended, until); }

static void threads_wake(struct ring *ring) { ring_ended_wake(&threads_of(ring)->ended); }

static void threads_close(struct ring *ring) {
    struct threads_ring *threads = threads_of(ring);
    pthread_mutex_lock(&threads->lock);
    threads->closing = true;
    pthread_cond_broadcast(&threads->changed);
    pthread_mutex_unlock(&threads->lock);
    for (unsigned i = 0; i < threads->count; i++) pthread_join(threads->threads[i], NULL);
    pthread_mutex_destroy(&threads->lock);
    pthread_cond_destroy(&threads->changed);
    ring_ended_destroy(&threads->ended);
    memory_free(threads);
}

static const struct ring_ops threads_ops = {
    .name = "threads",
    .submit = threads_submit,
    .reap = threads_reap,
    .wake = threads_wake,
    .now = ring_clock,
    .close = threads_close,
};

int ring_threads_open(unsigned depth, bool eager, struct ring **ring, struct error *error) {
    struct threads_ring *threads = memory_zeroed(sizeof *threads);
    if (!threads) return error_set(error, -ENOMEM, "no memory for a ring");
    threads->ring.ops = &threads_ops;
    threads->eager = eager;
    threads->limit = (unsigned) min_u64(depth, THREADS_MAX);
    pthread_mutex_init(&threads->lock, NULL);
    pthread_cond_init(&threads->changed, NULL);
    ring_ended_init(&threads->ended);
    *ring = &threads->ring;
    return 0;
}
