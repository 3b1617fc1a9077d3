/* SPDX-License-Identifier: MIT
 *
 * The clockwork that all simulated disks share: a heap of events, a gate of queue_depth, and the order of what happens at one time.
 *
 * Time goes from event to event. At one time, first come the kind's own events in the order in which they were planned, then ends of
 * operations in order of arrival, then the kind's decision. Invariant: nothing is decided for a time before all that arrives at that time
 * is known. So a decision is made only when somebody asks for a later time; that is why device_next is told how far it may go, and
 * why nobody can ask when the next operation will end without letting time go on.
 * Room for events is promised at submit, so nothing can fail later. Called by file_model.c; never by two threads.
 */
#include "storage/device.h"

#include <assert.h>

#include "base/memory.h"
#include "storage/device_kinds.h"

#define END_ORDER (UINT64_C(1) << 63) /* ends come after all other events of their time */

/* ---- the heap ---- */

static bool is_before(const struct event *a, const struct event *b) { return a->time != b->time ? a->time < b->time : a->order < b->order; }

/* Makes room for `more` events besides those that were promised before. */
static int promise(struct device *device, uint64_t more) {
    size_t bytes;
    uint64_t needed;
    if (!add_u64(device->events_promised, more, &needed)) return -ENOMEM;
    if (needed > device->event_capacity) {
        const uint64_t capacity = max_u64(needed, device->event_capacity * 2);
        if (!mul_u64(capacity, sizeof *device->heap, &bytes)) return -ENOMEM;
        struct event *heap = memory_resize(device->heap, bytes);
        if (!heap) return -ENOMEM;
        device->heap = heap;
        device->event_capacity = capacity;
    }
    device->events_promised = needed;
    return 0;
}

static void push(struct device *device, struct event event) {
    assert(device->event_count < device->event_capacity);
    size_t at = device->event_count++;
    for (size_t above; at > 0 && is_before(&event, &device->heap[above = (at - 1) / 2]); at = above) device->heap[at] = device->heap[above];
    device->heap[at] = event;
}

static struct event pop(struct device *device) {
    struct event *heap = device->heap;
    const struct event first = heap[0], moved = heap[--device->event_count];
    size_t at = 0;
    for (size_t below; (below = 2 * at + 1) < device->event_count; at = below) {
        if (below + 1 < device->event_count && is_before(&heap[below + 1], &heap[below])) below++;
        if (!is_before(&heap[below], &moved)) break;
        heap[at] = heap[below];
    }
    heap[at] = moved;
    return first;
}

void device_plan(struct device *device, uint64_t time, unsigned stage, struct operation *operation, uint64_t offset, uint64_t length) {
    push(device, (struct event){time, device->planned++, stage, operation, offset, length});
}

void device_end(struct device *device, struct operation *operation, uint64_t time) {
    push(device, (struct event){time, END_ORDER | operation->number, EVENT_END, operation, 0, 0});
}

/* ---- time ---- */

static void admit_more(struct device *device, uint64_t now) {
    while (device->outside.first && device->inside < device->parameters.queue_depth && !device->barrier) {
        device->inside++;
        device->ops->admit(device, operations_take(&device->outside), now);
    }
}

static void finish(struct device *device, struct operation *operation, uint64_t now) {
    operation->ended_at = now;
    device->inside--;
    device->events_promised -= operation->events;
    if (device->barrier == operation) device->barrier = NULL;
    operations_add(&device->ended, operation);
    device->ops->went(device, operation, now);
    admit_more(device, now);
}

/* Lets the next thing happen: an event up to `until`, or a decision before it. False: there is none. */
static bool step(struct device *device, uint64_t until) {
    const uint64_t event_at = device->event_count > 0 ? device->heap[0].time : NEVER;
    if (device->decide_at < event_at) {
        if (device->decide_at >= until) return false;
        device->now = device->decide_at;
        device->decide_at = NEVER;
        device->ops->decide(device, device->now);
        return true;
    }
    if (device->event_count == 0 || event_at > until) return false;
    assert(event_at >= device->now);
    const struct event event = pop(device);
    device->now = event.time;
    if (event.stage == EVENT_END) finish(device, event.operation, event.time);
    else device->ops->event(device, &event);
    return true;
}

/* ---- the device ---- */

int device_new(const struct device_parameters *parameters, struct device **device) {
    struct device *made = parameters->kind == DEVICE_HDD ? device_hdd_new(parameters) : device_flash_new(parameters);
    if (!made) return -ENOMEM;
    made->parameters = *parameters;
    made->decide_at = NEVER;
    if (promise(made, 1) < 0) { /* one for the kind's own use */
        device_free(made);
        return -ENOMEM;
    }
    *device = made;
    return 0;
}

static void free_all(struct operations *list) {
    for (struct operation *operation; (operation = operations_take(list)) != NULL;) memory_free(operation);
}

void device_free(struct device *device) {
    if (!device) return;
    for (uint64_t time; device_next(device, DEVICE_TIME_MAX, &time) != 0;) {
    }
    free_all(&device->ended);
    free_all(&device->outside);
    memory_free(device->heap);
    device->ops->destroy(device);
}

int device_submit(struct device *device, enum device_operation what, uint64_t offset, uint64_t length, uint64_t now, uint64_t token) {
    assert(token != 0 && now >= device->now);
    struct operation *operation = memory_zeroed(sizeof *operation);
    if (!operation) return -ENOMEM;
    operation->what = what;
    operation->offset = min_u64(offset, device->parameters.capacity);
    operation->length = min_u64(length, device->parameters.capacity - operation->offset);
    operation->token = token;
    operation->events = device->ops->events_of(device, operation);
    if (promise(device, operation->events) < 0) {
        memory_free(operation);
        return -ENOMEM;
    }
    while (step(device, now)) {
    }
    device->now = now;
    operation->number = device->arrivals++;
    operations_add(&device->outside, operation);
    admit_more(device, now);
    return 0;
}

/* Without a bound, time stops when nothing is under way, whatever the device does on its own. */
static bool is_awaited(const struct device *device, uint64_t until) { return until != DEVICE_TIME_MAX || device->inside > 0; }

uint64_t device_next(struct device *device, uint64_t until, uint64_t *ended_at) {
    while (!device->ended.first && is_awaited(device, until) && step(device, until)) {
    }
    struct operation *operation = operations_take(&device->ended);
    if (!operation) {
        if (until != DEVICE_TIME_MAX) device->now = max_u64(device->now, until);
        return 0;
    }
    const uint64_t token = operation->token;
    *ended_at = operation->ended_at;
    memory_free(operation);
    return token;
}

const struct device_parameters *device_parameters_of(const struct device *device) { return &device->parameters; }
