/* SPDX-License-Identifier: MIT
 *
 * A disk with one arm and a write cache.
 *
 * The arm's state is where the last operation ended (`at`) and a line in time: the head passes offset `media` at `media_at`. After a read
 * that line goes on by itself, reading ahead, until a track's worth is in the buffer; a read that begins at `at` joins it and pays neither
 * seek nor rotation.
 *
 *   read:  command ─▶ all of it in the write cache? ─▶ interface ─▶ end       else waits for the arm ─▶ end
 *   write: command ─▶ room in the cache? ─▶ interface ─▶ dirty, end           else waits for room; larger than the cache: for the arm
 *   flush: alone inside and the cache empty? ─▶ command ─▶ end                else the arm writes the cache out
 *   what has no bytes, and a trim: command ─▶ end
 *
 * The arm serves the shortest positioning time, but the oldest one after OVERTAKEN_MAX later ones. Of dirty ranges it writes the one
 * that it reaches first among the DESTAGE_LOOK nearest. It turns to these when nobody waits for it and its last operation is a revolution
 * ago, and every second time when somebody waits for room or a flush.
 * Invariants: cached = bytes on their way into the cache + dirty ones + those being written, and never exceeds write_cache; each step of
 * the arm serves an operation or makes dirty bytes fewer, so a flush ends.
 */
#include <assert.h>

#include "base/memory.h"
#include "base/ranges.h"
#include "storage/device.h"
#include "storage/device_kinds.h"
#include "storage/device_platter.h"

#define DESTAGE_MAX (UINT64_C(512) << 10) /* bytes in one go, for whoever comes meanwhile must wait */
#define DESTAGE_LOOK 16u
#define OVERTAKEN_MAX 128u

enum stage {
    AT_COMMAND_END = EVENT_END + 1,
    AT_CACHE,    /* a write's bytes are in the cache */
    AT_DESTAGED, /* a dirty range is on the disk; no operation's */
};

struct hdd {
    struct device device;
    struct platter platter;
    /* the arm */
    struct operations waiting;  /* for it */
    uint64_t free_at, quiet_at; /* free of what it does; a revolution after its last operation */
    uint64_t at, media, media_at;
    bool reads_ahead, destaged_last;
    /* the cache */
    struct ranges dirty;
    uint64_t cached;
    struct operations roomless; /* writes that wait for room */
    uint64_t interface;         /* a station */
};

/* ---- the arm ---- */

/* How far reading ahead gets at most: a track from where it was last asked for. */
static uint64_t ahead_limit(const struct hdd *hdd) { return hdd->at + platter_track_bytes(&hdd->platter, hdd->at); }

/* How far the buffer reaches at `now`. */
static uint64_t ahead_at(const struct hdd *hdd, uint64_t now) {
    if (now <= hdd->media_at) return hdd->media;
    const uint64_t passed = platter_passed(&hdd->platter, hdd->media, now - hdd->media_at);
    return min_u64(ahead_limit(hdd), hdd->media + passed);
}

static bool joins_ahead(const struct hdd *hdd, const struct operation *operation) {
    return hdd->reads_ahead && operation->what == DEVICE_READ && operation->offset == hdd->at;
}

/* When the head begins to pass `offset` if the arm sets out at `now`. Where it just is, nothing is lost. */
static uint64_t positioned_at(const struct hdd *hdd, uint64_t offset, uint64_t now) {
    if (now == hdd->media_at && offset == hdd->media) return now;
    const uint64_t there = now + platter_seek_time(&hdd->platter, hdd->media, offset);
    return there + platter_wait_time(&hdd->platter, offset, there);
}

/* The same for a waiting operation. */
static uint64_t starts_at(const struct hdd *hdd, const struct operation *operation, uint64_t now) {
    if (!joins_ahead(hdd, operation)) return positioned_at(hdd, operation->offset, now);
    const uint64_t ahead = ahead_at(hdd, now);
    const bool must_return = ahead == ahead_limit(hdd) && ahead < operation->offset + operation->length;
    return must_return ? now + platter_wait_time(&hdd->platter, ahead, now) : now;
}

/* A read from where the last one ended. Returns when its last byte has been read, `now` when it was already. */
static uint64_t read_on(struct hdd *hdd, uint64_t end, uint64_t now) {
    const uint64_t ahead = ahead_at(hdd, now);
    if (ahead == ahead_limit(hdd)) { /* it stopped: it goes on when that place comes round */
        hdd->media = ahead;
        hdd->media_at = now + platter_wait_time(&hdd->platter, ahead, now);
    }
    hdd->at = end;
    if (ahead >= end) return now;
    hdd->media_at += platter_pass_time(&hdd->platter, hdd->media, end);
    hdd->media = end;
    return hdd->media_at;
}

/* The head goes to [start, end) and over it. Returns when it has. */
static uint64_t pass_over(struct hdd *hdd, uint64_t start, uint64_t end, uint64_t now) {
    hdd->media_at = positioned_at(hdd, start, now) + platter_pass_time(&hdd->platter, start, end);
    hdd->at = hdd->media = end;
    hdd->reads_ahead = false;
    return hdd->media_at;
}

static void serve(struct hdd *hdd, struct operation *operation, uint64_t now) {
    const uint64_t end = operation->offset + operation->length;
    const uint64_t carried = now + transfer_time(operation->length, hdd->device.parameters.interface_rate);
    const uint64_t passed = joins_ahead(hdd, operation) ? read_on(hdd, end, now) : pass_over(hdd, operation->offset, end, now);
    hdd->reads_ahead = operation->what == DEVICE_READ;
    hdd->free_at = max_u64(carried, passed);
    hdd->quiet_at = hdd->free_at + hdd->platter.revolution;
    device_end(&hdd->device, operation, hdd->free_at);
}

/* Takes the next operation for the arm out of those that wait: at least one does. */
static struct operation *choose(struct hdd *hdd, uint64_t now) {
    struct operation *best = NULL, *before_best = NULL;
    uint64_t best_start = NEVER;
    for (struct operation *operation = hdd->waiting.first, *before = NULL; operation; before = operation, operation = operation->next) {
        const bool must = operation->overtaken >= OVERTAKEN_MAX;
        const uint64_t start = must ? now : starts_at(hdd, operation, now);
        if (best && !must && start >= best_start) continue;
        best = operation;
        before_best = before;
        best_start = start;
        if (must) break; /* the oldest of these */
    }
    for (struct operation *operation = hdd->waiting.first; operation != best; operation = operation->next) operation->overtaken++;
    if (before_best) before_best->next = best->next;
    else hdd->waiting.first = best->next;
    if (hdd->waiting.last == best) hdd->waiting.last = before_best;
    return best;
}

/* ---- the cache ---- */

static void ask_decision(struct hdd *hdd, uint64_t now) {
    hdd->device.decide_at = min_u64(hdd->device.decide_at, max_u64(now, hdd->free_at));
}

static void wait_for_arm(struct hdd *hdd, struct operation *operation, uint64_t now) {
    operations_add(&hdd->waiting, operation);
    ask_decision(hdd, now);
}

/* Lets writes in while there is room. */
static void fill(struct hdd *hdd, uint64_t now) {
    const struct device_parameters *p = &hdd->device.parameters;
    while (hdd->roomless.first && hdd->roomless.first->length <= p->write_cache - hdd->cached) {
        struct operation *operation = operations_take(&hdd->roomless);
        const uint64_t time = transfer_time(operation->length, p->interface_rate);
        hdd->cached += operation->length;
        device_plan(&hdd->device, station_pass(&hdd->interface, now, time), AT_CACHE, operation, 0, 0);
    }
}

/* How many bytes of [start, end) are dirty. */
static uint64_t dirty_within(const struct hdd *hdd, uint64_t start, uint64_t end) {
    uint64_t bytes = 0;
    const struct range *last = hdd->dirty.items + hdd->dirty.count;
    for (const struct range *range = ranges_at_or_after(&hdd->dirty, start); range && range < last && range->start < end; range++)
        bytes += min_u64(end, range->end) - max_u64(start, range->start);
    return bytes;
}

/* A write's bytes are in the cache: what they replace there gives room. Without memory to note them they go to the arm. */
static void arrive_in_cache(struct hdd *hdd, struct operation *operation, uint64_t now) {
    const uint64_t end = operation->offset + operation->length, replaced = dirty_within(hdd, operation->offset, end);
    if (ranges_add(&hdd->dirty, operation->offset, end) < 0) {
        hdd->cached -= operation->length;
        wait_for_arm(hdd, operation, now);
    } else {
        hdd->cached -= replaced;
        device_end(&hdd->device, operation, now);
        ask_decision(hdd, now);
    }
    fill(hdd, now);
}

/* What of a dirty range to write. Never its middle, so that taking it out needs no memory; never nothing, wherever the arm is. */
static struct range piece_of(const struct hdd *hdd, const struct range *range) {
    const bool is_inside = range->start < hdd->at && hdd->at < range->end;
    const uint64_t start = is_inside && range->end - hdd->at <= DESTAGE_MAX ? hdd->at : range->start;
    return (struct range){start, min_u64(range->end, start + DESTAGE_MAX)};
}

/* What to write next: of the DESTAGE_LOOK dirty ranges around the arm, half of them below, the one that the head reaches first. */
static struct range next_dirty(const struct hdd *hdd, uint64_t now) {
    const struct range *items = hdd->dirty.items, *above = ranges_at_or_after(&hdd->dirty, hdd->at);
    const size_t middle = above ? (size_t) (above - items) : hdd->dirty.count, half = DESTAGE_LOOK / 2;
    struct range best = {0};
    uint64_t best_start = NEVER;
    for (size_t i = middle - min_u64(middle, half); i < min_u64(middle + half, hdd->dirty.count); i++) {
        const struct range piece = piece_of(hdd, &items[i]);
        const uint64_t start = positioned_at(hdd, piece.start, now);
        if (start >= best_start) continue;
        best = piece;
        best_start = start;
    }
    return best;
}

static void destage(struct hdd *hdd, uint64_t now) {
    const struct range range = next_dirty(hdd, now);
    assert(!range_empty(&range));
    ranges_remove(&hdd->dirty, range.start, range.end);
    hdd->free_at = pass_over(hdd, range.start, range.end, now);
    hdd->device.decide_at = hdd->free_at;
    device_plan(&hdd->device, hdd->free_at, AT_DESTAGED, NULL, range.start, range.end - range.start);
}

/* A flush that is inside alone, with nothing cached, is over. */
static void try_flush(struct device *device, uint64_t now) {
    struct hdd *hdd = (struct hdd *) device;
    struct operation *flush = device->barrier;
    if (!flush || device->inside > 1 || hdd->cached > 0 || flush->is_ending) return;
    flush->is_ending = true;
    device_end(device, flush, now + device->parameters.command_time);
}

/* ---- the kind ---- */

static void leave_command(struct hdd *hdd, struct operation *operation, uint64_t now) {
    const struct device_parameters *p = &hdd->device.parameters;
    const uint64_t end = operation->offset + operation->length;
    if (operation->what == DEVICE_TRIM || operation->length == 0) {
        device_end(&hdd->device, operation, now);
    } else if (operation->what == DEVICE_WRITE && operation->length <= p->write_cache) {
        operations_add(&hdd->roomless, operation);
        fill(hdd, now);
        ask_decision(hdd, now);
    } else if (operation->what == DEVICE_READ && dirty_within(hdd, operation->offset, end) == operation->length) {
        device_end(&hdd->device, operation, station_pass(&hdd->interface, now, transfer_time(operation->length, p->interface_rate)));
    } else {
        wait_for_arm(hdd, operation, now);
    }
}

static void hdd_event(struct device *device, const struct event *event) {
    struct hdd *hdd = (struct hdd *) device;
    switch (event->stage) {
        case AT_COMMAND_END: leave_command(hdd, event->operation, event->time); break;
        case AT_CACHE: arrive_in_cache(hdd, event->operation, event->time); break;
        case AT_DESTAGED:
            hdd->cached -= event->length;
            fill(hdd, event->time);
            try_flush(device, event->time);
            break;
        default: break;
    }
}

static void hdd_decide(struct device *device, uint64_t now) {
    struct hdd *hdd = (struct hdd *) device;
    const bool is_urgent = hdd->roomless.first || device->barrier, is_dirty = hdd->dirty.count > 0;
    const bool is_due = hdd->waiting.first ? is_urgent && !hdd->destaged_last : is_urgent || now >= hdd->quiet_at;
    hdd->destaged_last = is_dirty && is_due;
    if (hdd->destaged_last) {
        destage(hdd, now);
    } else if (hdd->waiting.first) {
        serve(hdd, choose(hdd, now), now);
        device->decide_at = hdd->free_at;
    } else if (is_dirty) {
        device->decide_at = hdd->quiet_at;
    }
}

static void hdd_admit(struct device *device, struct operation *operation, uint64_t now) {
    if (operation->what == DEVICE_FLUSH) {
        device->barrier = operation;
        try_flush(device, now);
        ask_decision((struct hdd *) device, now);
    } else {
        device_plan(device, now + device->parameters.command_time, AT_COMMAND_END, operation, 0, 0);
    }
}

static void hdd_went(struct device *device, const struct operation *operation, uint64_t now) {
    (void) operation;
    try_flush(device, now);
}

static uint64_t hdd_events_of(const struct device *device, const struct operation *operation) {
    (void) device, (void) operation;
    return 1;
}

static void hdd_destroy(struct device *device) {
    struct hdd *hdd = (struct hdd *) device;
    ranges_clear(&hdd->dirty);
    memory_free(hdd);
}

static const struct device_ops hdd_ops = {
    .events_of = hdd_events_of,
    .admit = hdd_admit,
    .event = hdd_event,
    .decide = hdd_decide,
    .went = hdd_went,
    .destroy = hdd_destroy,
};

struct device *device_hdd_new(const struct device_parameters *parameters) {
    struct hdd *hdd = memory_zeroed(sizeof *hdd);
    if (!hdd) return NULL;
    hdd->device.ops = &hdd_ops;
    platter_init(&hdd->platter, parameters);
    return &hdd->device;
}
