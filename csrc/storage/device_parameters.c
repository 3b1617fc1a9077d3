/* SPDX-License-Identifier: MIT
 *
 * Default disks, and one table of all numbers: name, unit, whose it is, and bounds.
 *
 * The bounds are wide: they keep out what divides by zero, a track of less than a sector, and times so long that the virtual clock could
 * run over. What two numbers say together, such as a seek curve that falls, is refused after them.
 * Invariant for the other device files: what passed device_check needs no second look.
 * Called by whoever makes a device, and by the binding for its option table.
 */
#include "storage/device_parameters.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "base/bytes.h"

#define MICROSECONDS UINT64_C(1000)
#define MILLISECONDS UINT64_C(1000000)
#define SECONDS UINT64_C(1000000000)
#define MB UINT64_C(1000000)
#define KIB (UINT64_C(1) << 10)
#define MIB (UINT64_C(1) << 20)
#define SECTOR_SIZE UINT64_C(512)

#define CAPACITY_MAX (UINT64_C(1) << 53)
#define RATE_MIN MB
#define RATE_MAX (UINT64_C(1) << 50)
#define RPM_MAX UINT64_C(100000)
#define TIME_MAX (10 * SECONDS)

_Static_assert(RATE_MIN * 60 / RPM_MAX >= SECTOR_SIZE, "a track holds a sector");

static const struct device_parameters defaults[DEVICE_KINDS] = {
    [DEVICE_HDD] =
        {
            .kind = DEVICE_HDD,
            .capacity = 1000000 * MB,
            .queue_depth = 32,
            .command_time = 50 * MICROSECONDS,
            .interface_rate = 550 * MB,
            .rpm = 7200,
            .seek_track = 1 * MILLISECONDS,
            .seek_average = 8500 * MICROSECONDS,
            .seek_full = 18 * MILLISECONDS,
            .outer_rate = 180 * MB,
            .inner_rate = 90 * MB,
            .write_cache = 32 * MIB,
        },
    [DEVICE_SSD] =
        {
            .kind = DEVICE_SSD,
            .capacity = 1000000 * MB,
            .queue_depth = 32,
            .command_time = 10 * MICROSECONDS,
            .interface_rate = 550 * MB,
            .channels = 8,
            .dies = 4,
            .stripe = 16 * KIB,
            .read_time = 80 * MICROSECONDS,
            .write_time = 60 * MICROSECONDS,
            .trim_time = 100 * MICROSECONDS,
            .flush_time = 500 * MICROSECONDS,
            .channel_rate = 400 * MB,
        },
    [DEVICE_NVME] =
        {
            .kind = DEVICE_NVME,
            .capacity = 1000000 * MB,
            .queue_depth = 1024,
            .command_time = 1500,
            .interface_rate = 3200 * MB,
            .channels = 16,
            .dies = 4,
            .stripe = 16 * KIB,
            .read_time = 70 * MICROSECONDS,
            .write_time = 25 * MICROSECONDS,
            .trim_time = 50 * MICROSECONDS,
            .flush_time = 200 * MICROSECONDS,
            .channel_rate = 800 * MB,
        },
};

struct device_parameters device_defaults(enum device_kind kind) {
    return defaults[kind];
}

/* ---- the table ---- */

enum whose {
    EVERY,
    HDD,
    FLASH
};

struct entry {
    const char *name, *unit;
    enum whose whose;
    size_t at; /* in struct device_parameters */
    uint64_t least, most;
};

#define ENTRY(name, unit, whose, least, most)                                                                                              \
    { #name, unit, whose, offsetof(struct device_parameters, name), least, most }

static const struct entry entries[] = {
    ENTRY(capacity, "B", EVERY, SECTOR_SIZE, CAPACITY_MAX),
    ENTRY(queue_depth, "", EVERY, 1, 65536),
    ENTRY(command_time, "ns", EVERY, 0, TIME_MAX),
    ENTRY(interface_rate, "B/s", EVERY, RATE_MIN, RATE_MAX),
    ENTRY(rpm, "rpm", HDD, 60, RPM_MAX),
    ENTRY(seek_track, "ns", HDD, 0, TIME_MAX),
    ENTRY(seek_average, "ns", HDD, 0, TIME_MAX),
    ENTRY(seek_full, "ns", HDD, 0, TIME_MAX),
    ENTRY(outer_rate, "B/s", HDD, RATE_MIN, RATE_MAX),
    ENTRY(inner_rate, "B/s", HDD, RATE_MIN, RATE_MAX),
    ENTRY(write_cache, "B", HDD, 0, CAPACITY_MAX),
    ENTRY(seed, "", HDD, 0, UINT64_MAX),
    ENTRY(channels, "", FLASH, 1, 1024),
    ENTRY(dies, "", FLASH, 1, 1024),
    ENTRY(stripe, "B", FLASH, SECTOR_SIZE, UINT64_C(1) << 30),
    ENTRY(read_time, "ns", FLASH, 0, TIME_MAX),
    ENTRY(write_time, "ns", FLASH, 0, TIME_MAX),
    ENTRY(trim_time, "ns", FLASH, 0, TIME_MAX),
    ENTRY(flush_time, "ns", FLASH, 0, TIME_MAX),
    ENTRY(channel_rate, "B/s", FLASH, RATE_MIN, RATE_MAX),
};
#define ENTRY_COUNT (sizeof entries / sizeof entries[0])

static const char *const kind_names[DEVICE_KINDS] = {[DEVICE_HDD] = "hdd", [DEVICE_SSD] = "ssd", [DEVICE_NVME] = "nvme"};

static bool has(enum device_kind kind, const struct entry *entry) {
    return entry->whose == EVERY || entry->whose == (kind == DEVICE_HDD ? HDD : FLASH);
}

static uint64_t value_of(const struct device_parameters *parameters, const struct entry *entry) {
    uint64_t value;
    memcpy(&value, (const uint8_t *) parameters + entry->at, sizeof value);
    return value;
}

static int check_bounds(const struct entry *entry, uint64_t value, struct error *error) {
    if (value >= entry->least && value <= entry->most) return 0;
    return error_set(error, -EINVAL, "the simulated disk's %s is %llu, not from %llu to %llu", entry->name, (unsigned long long) value,
                     (unsigned long long) entry->least, (unsigned long long) entry->most);
}

/* ---- by name ---- */

const char *device_kind_name(enum device_kind kind) { return kind_names[kind]; }

int device_kind_find(const char *name, enum device_kind *kind, struct error *error) {
    for (unsigned i = 0; i < DEVICE_KINDS; i++) {
        if (strcmp(name, kind_names[i]) != 0) continue;
        *kind = (enum device_kind) i;
        return 0;
    }
    return error_set(error, -EINVAL, "there is no simulated disk '%s': the kinds are hdd, ssd and nvme", name);
}

unsigned device_parameter_count(enum device_kind kind) {
    unsigned count = 0;
    for (size_t i = 0; i < ENTRY_COUNT; i++) count += has(kind, &entries[i]);
    return count;
}

struct device_parameter device_parameter_at(const struct device_parameters *parameters, unsigned index) {
    const struct entry *entry = entries;
    while (!has(parameters->kind, entry) || index-- > 0) entry++;
    return (struct device_parameter){entry->name, entry->unit, value_of(parameters, entry)};
}

int device_parameter_set(struct device_parameters *parameters, const char *name, uint64_t value, struct error *error) {
    for (size_t i = 0; i < ENTRY_COUNT; i++) {
        const struct entry *entry = &entries[i];
        if (!has(parameters->kind, entry) || strcmp(name, entry->name) != 0) continue;
        const int result = check_bounds(entry, value, error);
        if (result == 0) memcpy((uint8_t *) parameters + entry->at, &value, sizeof value);
        return result;
    }
    return error_set(error, -EINVAL, "a simulated %s has no parameter '%s'", kind_names[parameters->kind], name);
}

/* ---- together ---- */

static int check_hdd(const struct device_parameters *p, struct error *error) {
    if (p->seek_track > p->seek_average || p->seek_average > p->seek_full)
        return error_set(error, -EINVAL, "the simulated disk's seek_track, seek_average and seek_full do not rise");
    if (p->inner_rate <= p->outer_rate) return 0;
    return error_set(error, -EINVAL, "the simulated disk's inner_rate is above its outer_rate");
}

static int check_flash(const struct device_parameters *p, struct error *error) {
    if (is_power_of_two_u64(p->stripe)) return 0;
    return error_set(error, -EINVAL, "the simulated disk's stripe is %llu, not a power of two", (unsigned long long) p->stripe);
}

int device_check(const struct device_parameters *p, struct error *error) {
    if ((unsigned) p->kind >= DEVICE_KINDS) return error_set(error, -EINVAL, "there is no kind %d of simulated disk", (int) p->kind);
    for (size_t i = 0; i < ENTRY_COUNT; i++)
        if (has(p->kind, &entries[i]) && check_bounds(&entries[i], value_of(p, &entries[i]), error) < 0) return error->code;
    return p->kind == DEVICE_HDD ? check_hdd(p, error) : check_flash(p, error);
}
