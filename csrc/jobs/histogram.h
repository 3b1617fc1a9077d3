/* SPDX-License-Identifier: MIT
 *
 * A distribution of times in bounded memory: exact below 128 ns, above that 64 buckets to each power of two, so that
 * any percentile is known to 1.6 %. Count, mean, deviation, least and greatest are exact. Not shared between threads: each worker fills its own, and they are added.
 */
#ifndef QCOW2_JOBS_HISTOGRAM_H
#define QCOW2_JOBS_HISTOGRAM_H

#include <stdint.h>

#define HISTOGRAM_FINE_BITS 6u
#define HISTOGRAM_BUCKETS ((64u - HISTOGRAM_FINE_BITS + 1u) << HISTOGRAM_FINE_BITS)

struct histogram {
    uint64_t count, least, greatest; /* nanoseconds */
    double mean, squares;            /* Welford's: squares of differences from the mean, summed */
    uint64_t buckets[HISTOGRAM_BUCKETS];
};

void histogram_clear(struct histogram *histogram);

void histogram_add(struct histogram *histogram, uint64_t nanoseconds);

/* Adds another one's values. */
void histogram_merge(struct histogram *histogram, const struct histogram *other);

/* The value that a share `fraction` (0–1) of all values does not exceed, as the middle of its bucket; 0 when empty. */
uint64_t histogram_percentile(const struct histogram *histogram, double fraction);

/* The sample standard deviation; 0 for fewer than two values. */
double histogram_deviation(const struct histogram *histogram);

/* The bounds of a bucket: [least, end). */
void histogram_bucket(unsigned index, uint64_t *least, uint64_t *end);

#endif
