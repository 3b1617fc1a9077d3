/* SPDX-License-Identifier: MIT
 *
 * Zones, seeks and rotation.
 *
 * The disk is one spiral in PLATTER_ZONES zones of about equal size; within a zone all tracks hold the same bytes, so a byte's track and
 * its angle follow from its offset, and the platter's angle from the time. A change of track within a run of bytes costs nothing: real
 * disks skew their tracks so that the next one begins where the head arrives.
 * Invariant: zones begin at the start of a track and are sorted; the last one also holds what lies past the end.
 * Called by device_hdd.c.
 */
#include "storage/device_platter.h"

#include "storage/device_kinds.h"

#define SECTOR_SIZE UINT64_C(512)
#define FRACTION_BITS 30u /* of the whole stroke */

static const struct platter_zone *zone_of(const struct platter *platter, uint64_t offset) {
    unsigned low = 0, high = platter->zone_count - 1;
    while (low < high) {
        const unsigned middle = (low + high + 1) / 2;
        if (platter->zones[middle].start <= offset) low = middle;
        else high = middle - 1;
    }
    return &platter->zones[low];
}

static uint64_t track_of(const struct platter *platter, uint64_t offset) {
    const struct platter_zone *zone = zone_of(platter, offset);
    return zone->first_track + (offset - zone->start) / zone->track_bytes;
}

/* The square root of a number below 2^62, rounded down. */
static uint64_t root_u64(uint64_t number) {
    uint64_t root = 0;
    for (uint64_t bit = UINT64_C(1) << 30; bit > 0; bit >>= 1)
        if ((root + bit) * (root + bit) <= number) root += bit;
    return root;
}

/* seek_track for one track, seek_average for a third of the stroke with a square root between, seek_full for all of it with a line
 * between. */
uint64_t platter_seek_time(const struct platter *platter, uint64_t from, uint64_t to) {
    const uint64_t a = track_of(platter, from), b = track_of(platter, to), distance = a < b ? b - a : a - b;
    if (distance == 0) return 0;
    const uint64_t whole = UINT64_C(1) << FRACTION_BITS;
    const uint64_t thirds = 3 * mul_div_u64(distance - 1, whole, max_u64(1, platter->track_count - 1));
    if (thirds <= whole)
        return platter->seek_track + mul_div_u64(platter->seek_average - platter->seek_track, root_u64(thirds << FRACTION_BITS), whole);
    return platter->seek_average + mul_div_u64(platter->seek_full - platter->seek_average, min_u64(thirds, 3 * whole) - whole, 2 * whole);
}

uint64_t platter_wait_time(const struct platter *platter, uint64_t offset, uint64_t now) {
    const struct platter_zone *zone = zone_of(platter, offset);
    const uint64_t angle = mul_div_u64((offset - zone->start) % zone->track_bytes, platter->revolution, zone->track_bytes);
    const uint64_t present = (now % platter->revolution + platter->phase) % platter->revolution;
    return (angle + platter->revolution - present) % platter->revolution;
}

uint64_t platter_pass_time(const struct platter *platter, uint64_t start, uint64_t end) {
    const struct platter_zone *last = &platter->zones[platter->zone_count - 1];
    uint64_t time = 0;
    for (const struct platter_zone *zone = zone_of(platter, start); start < end; zone++) {
        const uint64_t stop = zone == last ? end : min_u64(end, zone[1].start);
        time += mul_div_up_u64(stop - start, platter->revolution, zone->track_bytes);
        start = stop;
    }
    return time;
}

uint64_t platter_passed(const struct platter *platter, uint64_t offset, uint64_t time) {
    return mul_div_u64(time, platter_track_bytes(platter, offset), platter->revolution);
}

uint64_t platter_track_bytes(const struct platter *platter, uint64_t offset) { return zone_of(platter, offset)->track_bytes; }

/* An angle from a seed: neighbouring seeds are far apart. */
static uint64_t mix(uint64_t seed) {
    seed = (seed ^ seed >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    seed = (seed ^ seed >> 27) * UINT64_C(0x94d049bb133111eb);
    return seed ^ seed >> 31;
}

void platter_init(struct platter *platter, const struct device_parameters *p) {
    const uint64_t share = ceil_div_u64(p->capacity, PLATTER_ZONES);
    uint64_t start = 0, track = 0;
    *platter = (struct platter){
        .revolution = 60 * NANOSECONDS / p->rpm, .seek_track = p->seek_track, .seek_average = p->seek_average, .seek_full = p->seek_full};
    platter->phase = mix(p->seed) % platter->revolution;
    for (unsigned i = 0; i < PLATTER_ZONES && start < p->capacity; i++) {
        const uint64_t rate = p->outer_rate - mul_div_u64(p->outer_rate - p->inner_rate, i, PLATTER_ZONES - 1);
        const uint64_t track_bytes = max_u64(SECTOR_SIZE, round_down_u64(mul_div_u64(rate, platter->revolution, NANOSECONDS), SECTOR_SIZE));
        const uint64_t tracks = ceil_div_u64(min_u64(share, p->capacity - start), track_bytes);
        platter->zones[platter->zone_count++] = (struct platter_zone){start, track_bytes, track};
        start += tracks * track_bytes;
        track += tracks;
    }
    platter->track_count = track;
}
