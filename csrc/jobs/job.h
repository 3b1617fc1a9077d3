/* SPDX-License-Identifier: MIT
 *
 * One job: a pattern of requests kept under way on one image, and what it measured. A job never waits itself: whoever runs it calls
 * job_fill and job_collect, and waits on the ring in between (loop.h), in real or in virtual time.
 *
 *   ramp_time ─▶ measured ─▶ (verify: every block is read back) ─▶ over
 *
 * With verify a block is under way in one request at a time, so what it must hold is known at every moment. The blocks of different jobs
 * must be different ones then; they may share clusters.
 */
#ifndef QCOW2_JOBS_JOB_H
#define QCOW2_JOBS_JOB_H

#include <stdatomic.h>

#include "jobs/pattern.h"
#include "jobs/queue.h"
#include "jobs/result.h"

enum job_buffers {
    JOB_BUFFERS_RANDOM,
    JOB_BUFFERS_FILLED
};

struct job_options { /* times in nanoseconds, sizes in bytes; fio's words */
    struct pattern_options pattern;
    unsigned iodepth;
    uint64_t operations;         /* number of operations; 0 = once over the range, or no bound where there is a runtime */
    uint64_t runtime, ramp_time; /* 0 = none */
    uint64_t rate;               /* bytes a second; 0 = as fast as it goes */
    uint64_t fsync;              /* a flush after so many writes; 0 = none */
    bool verify;
    enum job_buffers buffers;
    uint8_t fill;      /* JOB_BUFFERS_FILLED: the byte to write */
    uint64_t interval; /* of the time series; 0 = no series */
};

struct job {
    struct job_options options;
    struct pattern pattern;
    struct queue queue;
    struct job_result result;
    uint8_t *buffers;           /* iodepth × bs, aligned */
    uint32_t *generations;      /* verify: what each block holds (contents.h); top bit: under way */
    uint64_t issued, completed; /* operations of the pattern */
    uint64_t writes_since_sync;
    bool begun, holds, verifying, over;
    uint64_t started_at, measured_at; /* ring_now */
    uint64_t next_verify;
    struct pattern_operation held; /* drawn, but not issued yet: its block is under way */
    atomic_bool stop;              /* set from any thread: no more is issued */
    _Atomic uint64_t progress;     /* operations completed, for whoever polls */
};

/* Makes the job ready on an image and a ring that takes iodepth × MOVES_MAX ring jobs. `stream` names it to a scheduler. */
int job_init(struct job *job, const struct job_options *options, struct image *image, struct ring *ring, unsigned stream,
             struct error *error);

void job_destroy(struct job *job);

/* Starts requests while there are slots and it is time. Returns ring_now's time when more may start, or RING_FOREVER: when one ends. */
uint64_t job_fill(struct job *job);

/* Takes in what is done. */
void job_collect(struct job *job);

/* Asks the job to issue no more; from any thread. */
void job_stop(struct job *job);

/* Operations completed; from any thread. */
uint64_t job_progress(const struct job *job);

#endif
