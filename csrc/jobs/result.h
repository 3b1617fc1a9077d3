/* SPDX-License-Identifier: MIT
 *
 * What a job measured: for each direction counts and a distribution of latencies, and the course over time. Results of several
 * jobs add up.
 */
#ifndef QCOW2_JOBS_RESULT_H
#define QCOW2_JOBS_RESULT_H

#include "base/error.h"
#include "jobs/histogram.h"

enum {
    JOB_READ,
    JOB_WRITE,
    JOB_TRIM,
    JOB_SYNC,
    JOB_DIRECTIONS
};

struct job_direction {
    uint64_t operations, bytes, errors;
    struct histogram latency; /* nanoseconds from start to end of a request */
};

#define JOB_SERIES_MAX (UINT64_C(1) << 14) /* samples; what comes later is in the sums alone */

struct job_sample { /* one interval of the time series, from the start of the measured time */
    uint64_t operations[JOB_DIRECTIONS], bytes[JOB_DIRECTIONS];
};

struct job_result {
    struct job_direction directions[JOB_DIRECTIONS];
    uint64_t elapsed;  /* nanoseconds of measured time */
    uint64_t verified; /* blocks that were compared and found right */
    struct job_sample *series;
    uint64_t series_count, series_capacity;
    struct error error; /* of the first operation that failed */
};

void job_result_init(struct job_result *result);

void job_result_clear(struct job_result *result);

/* One operation: `index` is the interval of the series that it ended in, UINT64_MAX without a series. Without memory the series ends. */
void job_result_count(struct job_result *result, unsigned direction, uint64_t bytes, uint64_t latency, uint64_t index);

/* Adds another one's counts, latencies, samples and error; elapsed stays. Returns 0 or -ENOMEM. */
int job_result_add(struct job_result *sum, const struct job_result *more);

#endif
