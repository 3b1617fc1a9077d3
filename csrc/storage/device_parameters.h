/* SPDX-License-Identifier: MIT
 *
 * What a simulated disk is made of, its kind and its numbers, and what it can be asked for. Times are in nanoseconds, rates in
 * bytes per second, sizes in bytes. device.h says what each kind does with them.
 * Every number also has a name, a unit and bounds, so that a script can list and set it.
 */
#ifndef QCOW2_STORAGE_DEVICE_PARAMETERS_H
#define QCOW2_STORAGE_DEVICE_PARAMETERS_H

#include <stdint.h>

#include "base/error.h"

enum device_kind {
    DEVICE_HDD,  /* one arm over a spinning disk */
    DEVICE_SSD,  /* flash behind SATA */
    DEVICE_NVME, /* flash behind PCIe; differs from DEVICE_SSD in its defaults only */
};
#define DEVICE_KINDS 3

enum device_operation {
    DEVICE_READ,
    DEVICE_WRITE,
    DEVICE_TRIM,  /* hdd: a command and no more */
    DEVICE_FLUSH, /* offset and length mean nothing */
};

struct device_parameters {
    enum device_kind kind;
    uint64_t capacity;
    uint64_t queue_depth;    /* operations that the device looks at at once; more wait outside, in order */
    uint64_t command_time;   /* overhead of each operation; flash: one after the other, so 1 / command_time bounds the IOPS */
    uint64_t interface_rate; /* between host and device, both ways together */
    /* hdd */
    uint64_t rpm;
    uint64_t seek_track, seek_average, seek_full; /* track to track, over a third of the tracks, over all of them */
    uint64_t outer_rate, inner_rate;              /* media rate at offset 0 and at the end; in equal steps between */
    uint64_t write_cache;                         /* bytes; 0 = write through */
    uint64_t seed;                                /* decides the platter's angle at time 0 */
    /* ssd and nvme */
    uint64_t channels;
    uint64_t dies;   /* flash dies on each channel; the latencies of different dies overlap */
    uint64_t stripe; /* bytes on one die before the next channel's turn; a power of two */
    uint64_t read_time, write_time, trim_time, flush_time;
    uint64_t channel_rate;
};

/* The parameters of a usual disk of the kind.
 * hdd:  1 TB, 7200 rpm, seeks 1 / 8.5 / 18 ms, 180 → 90 MB/s, 32 commands, 32 MiB write cache (on, as drives are shipped).
 * ssd:  1 TB, 550 MB/s, 32 commands of 10 µs, 8 channels × 4 dies, read 80 µs, write 60 µs (into fast cells), flush 500 µs.
 * nvme: 1 TB, 3.2 GB/s, 1024 commands of 1.5 µs, 16 channels × 4 dies, read 70 µs, write 25 µs, flush 200 µs. */
struct device_parameters device_defaults(enum device_kind kind);

/* Refuses parameters that mean nothing (-EINVAL), naming the parameter. Those of other kinds are not looked at. */
int device_check(const struct device_parameters *parameters, struct error *error);

/* ---- by name ---- */

struct device_parameter { /* one line of the list */
    const char *name;     /* as the member is called */
    const char *unit;     /* "B", "B/s", "ns", "rpm", or "" for a plain number */
    uint64_t value;
};

/* "hdd", "ssd" or "nvme". */
const char *device_kind_name(enum device_kind kind);

/* The kind of that name; -EINVAL with a sentence when there is none. */
int device_kind_find(const char *name, enum device_kind *kind, struct error *error);

/* How many parameters the kind has, and the one at `index` with its value. */
unsigned device_parameter_count(enum device_kind kind);
struct device_parameter device_parameter_at(const struct device_parameters *parameters, unsigned index);

/* Sets one by name. -EINVAL with a sentence when the kind has no such parameter or the value is out of its bounds; how values fit each
 * other is for device_check. */
int device_parameter_set(struct device_parameters *parameters, const char *name, uint64_t value, struct error *error);

#endif
