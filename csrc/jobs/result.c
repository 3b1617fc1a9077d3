/* SPDX-License-Identifier: MIT
 *
 * Counting. Samples are made as time goes on; an interval in which nothing ended is all zero. Called by job in its
 * thread, and by bench when the threads are gone.
 */
#include "jobs/result.h"

#include <string.h>

#include "base/bytes.h"
#include "base/memory.h"

void job_result_init(struct job_result *result) {
    memset(result, 0, sizeof *result);
    for (int i = 0; i < JOB_DIRECTIONS; i++) histogram_clear(&result->directions[i].latency);
}

void job_result_clear(struct job_result *result) {
    memory_free(result->series);
    job_result_init(result);
}

static struct job_sample *sample_at(struct job_result *result, uint64_t index) {
    if (index >= JOB_SERIES_MAX) return NULL;
    if (index >= result->series_capacity) {
        const uint64_t capacity = min_u64(max_u64(64, 2 * (index + 1)), JOB_SERIES_MAX);
        struct job_sample *grown = memory_resize(result->series, capacity * sizeof *grown);
        if (grown == NULL) return NULL;
        memset(grown + result->series_capacity, 0, (capacity - result->series_capacity) * sizeof *grown);
        result->series = grown;
        result->series_capacity = capacity;
    }
    result->series_count = max_u64(result->series_count, index + 1);
    return &result->series[index];
}

void job_result_count(struct job_result *result, unsigned direction, uint64_t bytes, uint64_t latency, uint64_t index) {
    struct job_direction *counts = &result->directions[direction];
    counts->operations++;
    counts->bytes += bytes;
    histogram_add(&counts->latency, latency);
    struct job_sample *sample = index == UINT64_MAX ? NULL : sample_at(result, index);
    if (sample == NULL) return;
    sample->operations[direction]++;
    sample->bytes[direction] += bytes;
}

static int add_series(struct job_result *sum, const struct job_result *more) {
    for (uint64_t i = 0; i < more->series_count; i++) {
        struct job_sample *sample = sample_at(sum, i);
        if (sample == NULL) return -ENOMEM;
        for (int d = 0; d < JOB_DIRECTIONS; d++) {
            sample->operations[d] += more->series[i].operations[d];
            sample->bytes[d] += more->series[i].bytes[d];
        }
    }
    return 0;
}

int job_result_add(struct job_result *sum, const struct job_result *more) {
    for (int d = 0; d < JOB_DIRECTIONS; d++) {
        sum->directions[d].operations += more->directions[d].operations;
        sum->directions[d].bytes += more->directions[d].bytes;
        sum->directions[d].errors += more->directions[d].errors;
        histogram_merge(&sum->directions[d].latency, &more->directions[d].latency);
    }
    sum->verified += more->verified;
    if (more->error.code < 0) error_set(&sum->error, more->error.code, "%s", more->error.text);
    return add_series(sum, more);
}
