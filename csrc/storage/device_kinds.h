/* SPDX-License-Identifier: MIT
 *
 * What device.c and the two kinds say to each other: operations, events in order of time, and the kind's table of functions.
 * A kind never looks ahead: it plans events and is called when their time has come, so operations may arrive at any time in between.
 */
#ifndef QCOW2_STORAGE_DEVICE_KINDS_H
#define QCOW2_STORAGE_DEVICE_KINDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"
#include "storage/device_parameters.h"

#define NEVER UINT64_MAX
#define NANOSECONDS UINT64_C(1000000000) /* in a second */

struct device;

struct operation {
    struct operation *next; /* in the one list that it is in */
    enum device_operation what;
    uint64_t offset, length, token;
    uint64_t number; /* order of arrival */
    uint64_t ended_at;
    uint64_t events;    /* that it may have pending at once; there is room for them */
    uint64_t parts;     /* flash: still under way; of a flush: writes before it that are */
    unsigned overtaken; /* hdd: by so many later ones */
    bool is_ending;     /* hdd, a flush: its end is planned */
};

struct operations { /* first in, first out */
    struct operation *first, *last;
};

struct event {
    uint64_t time, order; /* order decides ties */
    unsigned stage;       /* the kind's, or EVENT_END */
    struct operation *operation;
    uint64_t offset, length;
};

#define EVENT_END 0u /* the operation is over */

struct device_ops {
    /* How many events the operation may have pending at once. */
    uint64_t (*events_of)(const struct device *device, const struct operation *operation);
    /* The operation comes in: there were fewer than queue_depth. */
    void (*admit)(struct device *device, struct operation *operation, uint64_t now);
    /* An event's time has come. */
    void (*event)(struct device *device, const struct event *event);
    /* device->decide_at has come and all that arrived until then is known. NULL: the kind never asks for it. */
    void (*decide)(struct device *device, uint64_t now);
    /* The operation went out. */
    void (*went)(struct device *device, const struct operation *operation, uint64_t now);
    void (*destroy)(struct device *device);
};

struct device { /* the first member of each kind's own struct */
    const struct device_ops *ops;
    struct device_parameters parameters;
    uint64_t now;               /* all before has happened */
    uint64_t arrivals, planned; /* so far */
    struct operations outside;  /* waiting to come in */
    struct operations ended;    /* and not yet taken by device_next */
    struct operation *barrier;  /* inside, and nothing else comes in before it is over; or NULL */
    uint64_t inside;
    uint64_t decide_at; /* when to call decide, or NEVER */
    struct event *heap; /* the earliest is first */
    size_t event_count, event_capacity;
    uint64_t events_promised; /* room that must be there */
};

/* Each kind's device with its own part made; the caller has yet to fill in the common part. NULL: no memory. */
struct device *device_hdd_new(const struct device_parameters *parameters);
struct device *device_flash_new(const struct device_parameters *parameters);

/* Plans an event. Never fails: the room was promised. */
void device_plan(struct device *device, uint64_t time, unsigned stage, struct operation *operation, uint64_t offset, uint64_t length);

/* Plans the operation's end. */
void device_end(struct device *device, struct operation *operation, uint64_t time);

static inline void operations_add(struct operations *list, struct operation *operation) {
    operation->next = NULL;
    if (list->first) list->last->next = operation;
    else list->first = operation;
    list->last = operation;
}

static inline struct operation *operations_take(struct operations *list) {
    struct operation *operation = list->first;
    if (operation) list->first = operation->next;
    return operation;
}

/* a × b / c, rounded down or up; more than 64 bits in between, at most 2^62 out. */
static inline uint64_t mul_div_u64(uint64_t a, uint64_t b, uint64_t c) {
    const unsigned __int128 result = (unsigned __int128) a * b / c;
    return result >> 62 ? UINT64_C(1) << 62 : (uint64_t) result;
}
static inline uint64_t mul_div_up_u64(uint64_t a, uint64_t b, uint64_t c) {
    const unsigned __int128 result = ((unsigned __int128) a * b + (c - 1)) / c;
    return result >> 62 ? UINT64_C(1) << 62 : (uint64_t) result;
}

/* How long `length` bytes take at a rate, rounded up. */
static inline uint64_t transfer_time(uint64_t length, uint64_t rate) { return mul_div_up_u64(length, NANOSECONDS, rate); }

/* A first-come-first-served station is the time at which it is free again. Takes one who comes at `now`; returns when it leaves. */
static inline uint64_t station_pass(uint64_t *free_at, uint64_t now, uint64_t time) { return *free_at = max_u64(*free_at, now) + time; }

#endif
