/* SPDX-License-Identifier: MIT
 *
 * The spinning part of a hard disk: where each byte is, and how long it takes to get there. Pure geometry: it knows the time only as the
 * angle of the platter, and nothing of operations.
 */
#ifndef QCOW2_STORAGE_DEVICE_PLATTER_H
#define QCOW2_STORAGE_DEVICE_PLATTER_H

#include <stdint.h>

#include "storage/device_parameters.h"

#define PLATTER_ZONES 64u

struct platter_zone { /* all its tracks hold the same number of bytes */
    uint64_t start, track_bytes, first_track;
};

struct platter {
    uint64_t revolution, phase; /* nanoseconds; the angle at time 0 */
    uint64_t seek_track, seek_average, seek_full;
    struct platter_zone zones[PLATTER_ZONES];
    unsigned zone_count;
    uint64_t track_count;
};

/* Lays the capacity out in zones. */
void platter_init(struct platter *platter, const struct device_parameters *parameters);

/* From the track of one offset to that of another. */
uint64_t platter_seek_time(const struct platter *platter, uint64_t from, uint64_t to);

/* From `now` until the offset comes round. */
uint64_t platter_wait_time(const struct platter *platter, uint64_t offset, uint64_t now);

/* How long [start, end) takes to pass below the head, changes of track included. */
uint64_t platter_pass_time(const struct platter *platter, uint64_t start, uint64_t end);

/* How much passes in `time` from the offset on, as long as its zone goes on. */
uint64_t platter_passed(const struct platter *platter, uint64_t offset, uint64_t time);

/* Bytes of the offset's track. */
uint64_t platter_track_bytes(const struct platter *platter, uint64_t offset);

#endif
