/* SPDX-License-Identifier: MIT
 *
 * A benchmark run: several jobs, started together. Without a scheduler and in real time each job has a worker thread and a ring of its
 * own; else all jobs share one ring in one thread: in virtual time the caller's (it is over when bench_start returns), in real time a
 * worker's. Results are read after bench_wait; no worker ever sees a lua_State.
 */
#ifndef QCOW2_JOBS_BENCH_H
#define QCOW2_JOBS_BENCH_H

#include "jobs/loop.h"
#include "jobs/scheduler.h"

#define BENCH_JOBS_MAX 1024u

struct bench_cpu {         /* of a worker's thread */
    uint64_t user, system; /* nanoseconds */
    uint64_t voluntary_switches, involuntary_switches;
};

struct bench_job {
    struct image *image;
    struct job_options options;
};

struct bench;

/* Makes jobs and rings of the given form. With a scheduler (NULL: none) all jobs share it. Jobs on a simulated disk run in its virtual
 * time, and then all of them must lie on that one. */
int bench_new(const struct bench_job *jobs, unsigned count, enum ring_kind aio, const struct scheduler_options *scheduler,
              struct bench **bench, struct error *error);

/* Starts the workers; in virtual time, runs everything. */
int bench_start(struct bench *bench, struct error *error);

/* Asks all jobs to stop soon; from any thread. */
void bench_stop(struct bench *bench);

/* Operations completed so far; from any thread. */
uint64_t bench_progress(const struct bench *bench);

/* Waits until all jobs are over, at most so many nanoseconds (RING_FOREVER: as long as it takes). Returns whether they are. */
bool bench_wait(struct bench *bench, uint64_t nanoseconds);

/* After bench_wait said true: the results of `count` jobs from `first` on added up: elapsed is from the first one's start to the last one's
 * end, errors and time series are sums, the error is the first one's. The caller clears it. */
int bench_result(const struct bench *bench, unsigned first, unsigned count, struct job_result *sum, struct bench_cpu *cpu);

/* Stops, waits and frees; NULL is ignored. */
void bench_free(struct bench *bench);

#endif
