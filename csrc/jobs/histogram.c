/* SPDX-License-Identifier: MIT
 *
 * Buckets of a floating shape: the highest bit of a value chooses the row, the six bits after it the place in the row.
 * Mean and squares are kept by Welford's method and merged by Chan's, which lose no digits over long runs.
 * Called by workers for each operation, so adding is a few instructions.
 */
#include "jobs/histogram.h"

#include <math.h>
#include <string.h>

#define FINE (1u << HISTOGRAM_FINE_BITS)

void histogram_clear(struct histogram *histogram) {
    memset(histogram, 0, sizeof *histogram);
    histogram->least = UINT64_MAX;
}

static unsigned bucket_of(uint64_t value) {
    if (value < 2 * FINE) return (unsigned) value;
    const unsigned shift = 63u - (unsigned) __builtin_clzll(value) - HISTOGRAM_FINE_BITS;
    return shift * FINE + (unsigned) (value >> shift);
}

void histogram_bucket(unsigned index, uint64_t *least, uint64_t *end) {
    const unsigned shift = index < 2 * FINE ? 0 : index / FINE - 1;
    *least = (uint64_t) (index - shift * FINE) << shift;
    *end = *least + (UINT64_C(1) << shift);
}

void histogram_add(struct histogram *histogram, uint64_t nanoseconds) {
    histogram->count++;
    if (nanoseconds < histogram->least) histogram->least = nanoseconds;
    if (nanoseconds > histogram->greatest) histogram->greatest = nanoseconds;
    const double difference = (double) nanoseconds - histogram->mean;
    histogram->mean += difference / (double) histogram->count;
    histogram->squares += difference * ((double) nanoseconds - histogram->mean);
    histogram->buckets[bucket_of(nanoseconds)]++;
}

void histogram_merge(struct histogram *histogram, const struct histogram *other) {
    if (other->count == 0) return;
    const double count = (double) histogram->count, more = (double) other->count, difference = other->mean - histogram->mean;
    histogram->squares += other->squares + difference * difference * count * more / (count + more);
    histogram->mean += difference * more / (count + more);
    histogram->count += other->count;
    if (other->least < histogram->least) histogram->least = other->least;
    if (other->greatest > histogram->greatest) histogram->greatest = other->greatest;
    for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++) histogram->buckets[i] += other->buckets[i];
}

static uint64_t middle(const struct histogram *histogram, unsigned index) {
    uint64_t least, end;
    histogram_bucket(index, &least, &end);
    const uint64_t value = least + (end - least) / 2;
    if (value > histogram->greatest) return histogram->greatest;
    return value < histogram->least ? histogram->least : value;
}

uint64_t histogram_percentile(const struct histogram *histogram, double fraction) {
    if (histogram->count == 0) return 0;
    const double wanted = ceil(fraction * (double) histogram->count);
    const uint64_t rank = wanted < 1 ? 1 : (uint64_t) wanted;
    uint64_t seen = 0;
    for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++) {
        seen += histogram->buckets[i];
        if (seen >= rank) return middle(histogram, i);
    }
    return histogram->greatest;
}

double histogram_deviation(const struct histogram *histogram) {
    return histogram->count < 2 ? 0 : sqrt(histogram->squares / (double) (histogram->count - 1));
}
