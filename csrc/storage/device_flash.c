/* SPDX-License-Identifier: MIT
 *
 * Flash, as a row of first-come-first-served stations.
 *
 *   read:  controller ─▶ die (read_time) ─▶ channel ─▶ interface
 *   write: controller ─▶ interface ─▶ channel ─▶ die (write_time)
 *   trim:  controller ─▶ trim_time
 *   flush: all earlier writes ended ─▶ controller ─▶ flush_time, one after the other
 *
 * Stripe number s lies on channel s mod channels, and there on die (s / channels) mod dies. A die works while its channel carries
 * another's bytes, so enough dies hide the latency, and what bounds a deep queue is min(interface_rate, channels × channel_rate,
 * channels × dies × stripe / read_time, and request size / command_time). A write ends when its dies have it, so a flush has nothing of
 * its own to write, and what comes after a flush does not wait for it.
 * Invariant: parts reach a station in order of time, because each step is an event of its own; then a station needs no queue, only the
 * time at which it is free again.
 */
#include "base/memory.h"
#include "storage/device.h"
#include "storage/device_kinds.h"

enum stage {
    AT_CONTROLLER_END = EVENT_END + 1,
    AT_CHANNEL,
    AT_INTERFACE,
    AT_DIE
};

struct flash {
    struct device device;
    uint64_t controller, interface, flush; /* stations */
    uint64_t *channels;                    /* a station each */
    uint64_t *dies;                        /* channels × dies */
    uint64_t writes;                       /* inside */
    struct operations flushes;             /* that wait for writes; those of the earlier ones end first */
};

static uint64_t part_count(const struct flash *flash, const struct operation *operation) {
    if (operation->what == DEVICE_TRIM || operation->what == DEVICE_FLUSH || operation->length == 0) return 0;
    const uint64_t stripe = flash->device.parameters.stripe;
    return (operation->offset + operation->length - 1) / stripe - operation->offset / stripe + 1;
}

static uint64_t *channel_of(struct flash *flash, uint64_t offset) {
    const struct device_parameters *p = &flash->device.parameters;
    return &flash->channels[offset / p->stripe % p->channels];
}

static uint64_t *die_of(struct flash *flash, uint64_t offset) {
    const struct device_parameters *p = &flash->device.parameters;
    return &flash->dies[offset / p->stripe % ((uint64_t) p->channels * p->dies)];
}

/* ---- from station to station ---- */

/* A part is over at `time`; the operation is with its last part. */
static void end_part(struct flash *flash, struct operation *operation, uint64_t time) {
    operation->ended_at = max_u64(operation->ended_at, time);
    if (--operation->parts == 0) device_end(&flash->device, operation, operation->ended_at);
}

/* Sends every part to its first station. */
static void start_parts(struct flash *flash, struct operation *operation, uint64_t now) {
    const struct device_parameters *p = &flash->device.parameters;
    const uint64_t end = operation->offset + operation->length;
    operation->parts = part_count(flash, operation);
    if (operation->parts == 0) device_end(&flash->device, operation, now);
    for (uint64_t at = operation->offset, next, left; at < end; at = next) {
        next = min_u64(end, round_down_u64(at, p->stripe) + p->stripe);
        if (operation->what == DEVICE_READ) left = station_pass(die_of(flash, at), now, p->read_time);
        else left = station_pass(&flash->interface, now, transfer_time(next - at, p->interface_rate));
        device_plan(&flash->device, left, AT_CHANNEL, operation, at, next - at);
    }
}

static void leave_controller(struct flash *flash, struct operation *operation, uint64_t now) {
    const struct device_parameters *p = &flash->device.parameters;
    if (operation->what == DEVICE_TRIM) device_end(&flash->device, operation, now + p->trim_time);
    else if (operation->what == DEVICE_FLUSH) device_end(&flash->device, operation, station_pass(&flash->flush, now, p->flush_time));
    else start_parts(flash, operation, now);
}

static void flash_event(struct device *device, const struct event *event) {
    struct flash *flash = (struct flash *) device;
    const struct device_parameters *p = &device->parameters;
    struct operation *operation = event->operation;
    switch (event->stage) {
        case AT_CONTROLLER_END: leave_controller(flash, operation, event->time); break;
        case AT_CHANNEL: {
            const uint64_t left =
                station_pass(channel_of(flash, event->offset), event->time, transfer_time(event->length, p->channel_rate));
            device_plan(device, left, operation->what == DEVICE_READ ? AT_INTERFACE : AT_DIE, operation, event->offset, event->length);
            break;
        }
        case AT_INTERFACE:
            end_part(flash, operation, station_pass(&flash->interface, event->time, transfer_time(event->length, p->interface_rate)));
            break;
        case AT_DIE: end_part(flash, operation, station_pass(die_of(flash, event->offset), event->time, p->write_time)); break;
        default: break;
    }
}

/* ---- coming and going ---- */

static void give_command(struct flash *flash, struct operation *operation, uint64_t now) {
    const uint64_t left = station_pass(&flash->controller, now, flash->device.parameters.command_time);
    device_plan(&flash->device, left, AT_CONTROLLER_END, operation, 0, 0);
}

static void flash_admit(struct device *device, struct operation *operation, uint64_t now) {
    struct flash *flash = (struct flash *) device;
    if (operation->what == DEVICE_WRITE) flash->writes++;
    if (operation->what == DEVICE_FLUSH) operation->parts = flash->writes;
    if (operation->what == DEVICE_FLUSH && operation->parts > 0) operations_add(&flash->flushes, operation);
    else give_command(flash, operation, now);
}

/* A write went out: flushes that came after it wait for one less. An earlier flush never waits for more than a later one. */
static void flash_went(struct device *device, const struct operation *operation, uint64_t now) {
    struct flash *flash = (struct flash *) device;
    if (operation->what != DEVICE_WRITE) return;
    flash->writes--;
    for (struct operation *flush = flash->flushes.first; flush; flush = flush->next)
        if (flush->number > operation->number) flush->parts--;
    while (flash->flushes.first && flash->flushes.first->parts == 0) give_command(flash, operations_take(&flash->flushes), now);
}

static uint64_t flash_events_of(const struct device *device, const struct operation *operation) {
    return max_u64(1, part_count((const struct flash *) device, operation));
}

static void flash_destroy(struct device *device) {
    struct flash *flash = (struct flash *) device;
    memory_free(flash->channels);
    memory_free(flash->dies);
    memory_free(flash);
}

static const struct device_ops flash_ops = {
    .events_of = flash_events_of,
    .admit = flash_admit,
    .event = flash_event,
    .went = flash_went,
    .destroy = flash_destroy,
};

struct device *device_flash_new(const struct device_parameters *parameters) {
    struct flash *flash = memory_zeroed(sizeof *flash);
    if (!flash) return NULL;
    flash->device.ops = &flash_ops;
    flash->channels = memory_array(parameters->channels, sizeof *flash->channels);
    flash->dies = memory_array((size_t) parameters->channels * parameters->dies, sizeof *flash->dies);
    if (flash->channels && flash->dies) return &flash->device;
    flash_destroy(&flash->device);
    return NULL;
}
