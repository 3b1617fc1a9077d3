/* SPDX-License-Identifier: MIT
 *
 * Storey 1: simulated disks against closed forms, and against themselves; then the file and the ring above them.
 *
 * The forms are computed here in floating point from the parameters alone, with a linear zone rate and continuous tracks; the device
 * computes in integers, by zones. The share by which the two may differ stands at each check. Every end of every run goes into one hash,
 * which the last line but one prints: builds by gcc and clang print the same.
 */
#include <inttypes.h>
#include <pthread.h>
#include <string.h>

#include "base/bytes.h"
#include "base/memory.h"
#include "storage/device.h"
#include "storage/file_memory.h"
#include "storage/file_model.h"
#include "unit.h"

#define KIB UINT64_C(1024)
#define MIB (KIB * 1024)
#define SECOND 1e9

static uint64_t hash = UINT64_C(0xcbf29ce484222325);

static void hash_in(uint64_t number) {
    hash = (hash ^ number) * UINT64_C(0x100000001b3);
    hash ^= hash >> 29;
}

/* These two and a cumulative sum stand in for libm, which the programs do not link. */
static double distance_of(double a, double b) { return a < b ? b - a : a - b; }

static double root_of(double number) {
    double root = number > 1 ? number : 1;
    for (int i = 0; i < 30; i++) root = (root + number / root) / 2;
    return root;
}

static bool is_near(double got, double expected, double share) { return distance_of(got, expected) <= share * distance_of(expected, 0); }

static void check_near(const char *what, double got, double expected, double share) {
    printf("  %-52s %14.3f, by the form %14.3f (%+.2f %%)\n", what, got, expected, 100 * (got / expected - 1));
    CHECK(is_near(got, expected, share));
}

static struct device *new_device(const struct device_parameters *parameters) {
    struct error error = {0};
    struct device *device = NULL;
    CHECK(device_check(parameters, &error) == 0);
    CHECK(device_new(parameters, &device) == 0);
    return device;
}

/* ---- closed loops ---- */

struct load { /* `depth` operations at any time, until `count` have ended */
    enum device_operation what;
    uint64_t block, start, range; /* offsets in [start, start + range) */
    bool is_sequential;
    unsigned depth, count;
    unsigned write_share; /* percent of operations that are writes instead */
};

struct outcome {
    double seconds, iops, rate, mean_latency; /* latency in seconds */
    double population;                        /* mean number under way, from the sum over time */
    uint64_t longest, ended_at;
};

static struct { uint64_t submitted_at; } slots[2048];

static void submit_one(struct device *device, const struct load *load, uint64_t *state, uint64_t number, unsigned slot, uint64_t now) {
    const uint64_t blocks = load->range / load->block;
    const uint64_t block = load->is_sequential ? number % blocks : unit_below(state, blocks);
    const bool is_write = load->write_share > 0 && unit_below(state, 100) < load->write_share;
    slots[slot].submitted_at = now;
    CHECK(device_submit(device, is_write ? DEVICE_WRITE : load->what, load->start + block * load->block, load->block, now, slot + 1) == 0);
}

static struct outcome run_on(struct device *device, const struct load *load, uint64_t now) {
    uint64_t state = 42 + now, started = now, sent = 0;
    double latencies = 0, area = 0;
    struct outcome outcome = {0};
    while (sent < load->depth) submit_one(device, load, &state, sent, (unsigned) sent, now), sent++;
    for (unsigned ended = 0, under_way = load->depth; ended < load->count; ended++) {
        uint64_t at = 0;
        const uint64_t token = device_next(device, DEVICE_TIME_MAX, &at);
        CHECK(token != 0 && at >= now);
        area += (double) under_way * (double) (at - now);
        now = at;
        hash_in(token), hash_in(at);
        const uint64_t latency = at - slots[token - 1].submitted_at;
        outcome.longest = max_u64(outcome.longest, latency);
        latencies += (double) latency;
        if (sent < load->count) submit_one(device, load, &state, sent++, (unsigned) token - 1, now);
        else under_way--;
    }
    uint64_t at;
    CHECK(device_next(device, DEVICE_TIME_MAX, &at) == 0);
    outcome.ended_at = now;
    outcome.seconds = (double) (now - started) / SECOND;
    outcome.iops = load->count / outcome.seconds;
    outcome.rate = outcome.iops * (double) load->block;
    outcome.mean_latency = latencies / load->count / SECOND;
    outcome.population = area / (double) (now - started);
    return outcome;
}

static struct outcome run(const struct device_parameters *parameters, const struct load *load) {
    struct device *device = new_device(parameters);
    const struct outcome outcome = run_on(device, load, 0);
    device_free(device);
    /* Little's law: mean number under way = throughput × mean latency */
    CHECK(is_near(outcome.population, outcome.iops * outcome.mean_latency, 0.01));
    return outcome;
}

/* ---- hdd ---- */

static double rate_at(const struct device_parameters *p, double share) {
    return (double) p->outer_rate - (double) (p->outer_rate - p->inner_rate) * share;
}

static double seek_form(const struct device_parameters *p, double distance) {
    const double track = (double) p->seek_track, average = (double) p->seek_average, full = (double) p->seek_full;
    if (distance <= 1.0 / 3) return track + (average - track) * root_of(3 * distance);
    return average + (full - average) * (3 * distance - 1) / 2;
}

/* Command, mean seek and mean transfer over uniform pairs of offsets, half a revolution. */
static double mean_access(const struct device_parameters *p, double bytes) {
    enum {
        STEPS = 300
    };
    static double tracks[STEPS]; /* which share of all tracks lies before the middle of each step */
    double seek = 0, transfer = 0, total = 0;
    for (int i = 0; i < STEPS; i++) {
        const double rate = rate_at(p, (i + 0.5) / STEPS);
        tracks[i] = total + 0.5 / rate;
        total += 1 / rate;
        transfer += bytes / rate * SECOND / STEPS;
    }
    for (int i = 0; i < STEPS; i++)
        for (int j = 0; j < STEPS; j++) seek += seek_form(p, distance_of(tracks[i], tracks[j]) / total);
    return (double) p->command_time + seek / STEPS / STEPS + 30 * SECOND / (double) p->rpm + transfer;
}

static void check_hdd_access(void) {
    struct device_parameters p = device_defaults(DEVICE_HDD);
    const struct load load = {.what = DEVICE_READ, .block = 4 * KIB, .range = p.capacity, .depth = 1, .count = 20000};
    check_near("hdd: random 4 KiB read, 7200 rpm, ms", run(&p, &load).mean_latency * 1e3, mean_access(&p, 4096) / 1e6, 0.01);
    p.rpm = 15000, p.seek_track = 200000, p.seek_average = 3500000, p.seek_full = 8000000, p.inner_rate = p.outer_rate, p.seed = 7;
    check_near("hdd: the same, 15000 rpm, one zone, ms", run(&p, &load).mean_latency * 1e3, mean_access(&p, 4096) / 1e6, 0.01);
}

static void check_hdd_sequential(void) {
    const struct device_parameters p = device_defaults(DEVICE_HDD);
    struct load load = {.what = DEVICE_READ, .block = 64 * KIB, .range = 2048 * MIB, .is_sequential = true, .depth = 1, .count = 6000};
    check_near("hdd: sequential 64 KiB reads outside, MB/s", run(&p, &load).rate / 1e6, (double) p.outer_rate / 1e6, 0.01);
    load.start = p.capacity - 2048 * MIB;
    check_near("hdd: sequential 64 KiB reads inside, MB/s", run(&p, &load).rate / 1e6, (double) p.inner_rate / 1e6, 0.01);
    load.depth = 8;
    check_near("hdd: the same, depth 8, MB/s", run(&p, &load).rate / 1e6, (double) p.inner_rate / 1e6, 0.01);
    load.what = DEVICE_WRITE, load.start = 0, load.depth = 1,
    load.count = 20000; /* what is left in the cache, 2.6 %, was not written to the disk */
    check_near("hdd: sequential 64 KiB writes, cached, MB/s", run(&p, &load).rate / 1e6, (double) p.outer_rate / 1e6, 0.03);
}

/* Without a cache the next write comes a command too late and waits for the platter: a revolution and the transfer time of nothing more. */
static void check_hdd_write_through(void) {
    struct device_parameters p = device_defaults(DEVICE_HDD);
    p.write_cache = 0;
    const struct load load = {
        .what = DEVICE_WRITE, .block = 64 * KIB, .range = 1024 * MIB, .is_sequential = true, .depth = 1, .count = 5000};
    const double form = 60 * SECOND / (double) p.rpm + 65536 / (double) p.outer_rate * SECOND;
    check_near("hdd: sequential 64 KiB writes, uncached, ms", run(&p, &load).mean_latency * 1e3, form / 1e6, 0.01);
}

static void check_hdd_depths(void) {
    const struct device_parameters p = device_defaults(DEVICE_HDD);
    double before = 0;
    for (unsigned depth = 1; depth <= 64; depth *= 2) {
        const struct load load = {.what = DEVICE_READ, .block = 4 * KIB, .range = p.capacity, .depth = depth, .count = 6000};
        const struct outcome outcome = run(&p, &load);
        printf("  hdd: random 4 KiB reads, depth %2u: %6.1f IOPS, mean %7.2f ms, longest %7.2f ms\n", depth, outcome.iops,
               outcome.mean_latency * 1e3, (double) outcome.longest / 1e6);
        CHECK(depth <= p.queue_depth ? outcome.iops > before * (depth > 2 ? 1.05 : 1) : is_near(outcome.iops, before, 0.02));
        before = outcome.iops;
    }
    CHECK(before > 2 * SECOND / mean_access(&p, 4096));
}

/* One far away among many that are near: it is overtaken a bounded number of times. */
static void check_hdd_starvation(void) {
    const struct device_parameters p = device_defaults(DEVICE_HDD);
    struct device *device = new_device(&p);
    uint64_t state = 1, now = 0, token;
    unsigned served = 0;
    CHECK(device_submit(device, DEVICE_READ, 0, 4096, 0, 1) == 0);
    CHECK(device_next(device, DEVICE_TIME_MAX, &now) == 1);
    CHECK(device_submit(device, DEVICE_READ, p.capacity - MIB, 4096, now, 99) == 0);
    for (uint64_t i = 0; i < 8; i++) CHECK(device_submit(device, DEVICE_READ, unit_below(&state, 1000) * 64 * KIB, 4096, now, 1) == 0);
    while ((token = device_next(device, DEVICE_TIME_MAX, &now)) != 99) {
        CHECK(token == 1 && ++served <= 200);
        CHECK(device_submit(device, DEVICE_READ, unit_below(&state, 1000) * 64 * KIB, 4096, now, 1) == 0);
    }
    CHECK(served >= 100);
    hash_in(now), hash_in(served);
    device_free(device);
}

/* ---- the write cache ---- */

static uint64_t one(struct device *device, enum device_operation what, uint64_t offset, uint64_t length, uint64_t *now) {
    const uint64_t started = *now;
    uint64_t ended = 0;
    CHECK(device_submit(device, what, offset, length, started, 5) == 0);
    CHECK(device_next(device, DEVICE_TIME_MAX, &ended) == 5);
    *now = ended;
    hash_in(ended);
    return ended - started;
}

static void nothing_for(struct device *device, uint64_t time, uint64_t *now) {
    uint64_t ended;
    CHECK(device_next(device, *now + time, &ended) == 0);
    *now += time;
}

static void check_cache(void) {
    const struct device_parameters p = device_defaults(DEVICE_HDD);
    struct device *device = new_device(&p);
    const uint64_t quick = p.command_time + (64 * KIB * 1000000000 + p.interface_rate - 1) / p.interface_rate;
    uint64_t now = 0, state = 3;
    CHECK(one(device, DEVICE_FLUSH, 0, 0, &now) == p.command_time);
    for (int i = 0; i < 100; i++) CHECK(one(device, DEVICE_WRITE, unit_below(&state, 1000000) * 64 * KIB, 64 * KIB, &now) <= quick);
    CHECK(one(device, DEVICE_WRITE, 0, 64 * KIB, &now) == quick);
    CHECK(one(device, DEVICE_READ, 0, 64 * KIB, &now) == quick); /* from the cache */
    const uint64_t flush = one(device, DEVICE_FLUSH, 0, 0, &now);
    CHECK(flush > 90 * 1000000 && flush < 100 * (p.seek_full + 8400000));
    CHECK(one(device, DEVICE_FLUSH, 0, 0, &now) == p.command_time); /* nothing is left */
    CHECK(one(device, DEVICE_WRITE, 0, 64 * KIB, &now) == quick);
    CHECK(one(device, DEVICE_WRITE, 0, 64 * KIB, &now) == quick); /* an overwrite takes no more room */
    nothing_for(device, 1000000000, &now);                        /* idle for a second: the arm writes it */
    CHECK(one(device, DEVICE_FLUSH, 0, 0, &now) == p.command_time);
    device_free(device);
}

/* A write over what the arm is just writing leaves one dirty range, which ends where the arm ends up: it is not above the arm, and is
 * written when the arm comes round, once. */
static void check_rewrite_below_arm(void) {
    const struct device_parameters p = device_defaults(DEVICE_HDD);
    for (uint64_t offset = 0; offset <= 1024 * KIB; offset += 256 * KIB) {
        struct device *device = new_device(&p);
        uint64_t now = 0;
        one(device, DEVICE_WRITE, offset, 64 * KIB, &now);
        nothing_for(device, 1, &now); /* the arm has set out */
        one(device, DEVICE_WRITE, offset, 64 * KIB, &now);
        one(device, DEVICE_WRITE, 0, 0, &now);
        nothing_for(device, 1000000000, &now);
        CHECK(one(device, DEVICE_FLUSH, 0, 0, &now) == p.command_time);
        device_free(device);
    }
}

/* A flush waits for the writes before it, and what comes after the flush waits for that. */
static void check_hdd_flush(void) {
    const struct device_parameters p = device_defaults(DEVICE_HDD);
    struct device *device = new_device(&p);
    uint64_t now = 0, ended;
    for (uint64_t i = 0; i < 8; i++) CHECK(device_submit(device, DEVICE_WRITE, (i * 7919 % 8) * 1000 * MIB, 64 * KIB, now, i + 1) == 0);
    CHECK(device_submit(device, DEVICE_FLUSH, 0, 0, now, 9) == 0);
    CHECK(device_submit(device, DEVICE_READ, 0, 4096, now, 10) == 0);
    for (uint64_t i = 1; i <= 10; i++) CHECK(device_next(device, DEVICE_TIME_MAX, &ended) == i && ended >= now), now = ended, hash_in(now);
    device_free(device);
}

/* Cached writes at some distance from each other do not cost half a revolution each, as they would in order of their addresses. */
static void check_scattered_drain(void) {
    const struct device_parameters p = device_defaults(DEVICE_HDD);
    struct device *device = new_device(&p);
    uint64_t now = 0;
    for (uint64_t i = 0; i < 512; i++) one(device, DEVICE_WRITE, i * MIB, 4 * KIB, &now);
    one(device, DEVICE_FLUSH, 0, 0, &now);
    const double revolution = 60 * SECOND / (double) p.rpm;
    printf("  hdd: 512 writes of 4 KiB, 1 MiB apart, and a flush: %.2f ms each\n", (double) now / 512e6);
    CHECK((double) now > 512.0 * (double) p.seek_track && (double) now < 512 * revolution / 3);
    device_free(device);
}

/* A burst that fits goes at the rate of the interface; the flush after it is bound by the disk. A load that goes on is bound by the
 * disk too: in order by its media rate (check_hdd_sequential), at random by the arm. */
static void check_burst_and_drain(void) {
    const struct device_parameters p = device_defaults(DEVICE_HDD);
    struct device *device = new_device(&p);
    const struct load burst = {
        .what = DEVICE_WRITE, .block = 64 * KIB, .range = 16 * MIB, .is_sequential = true, .depth = 8, .count = 16 * MIB / (64 * KIB)};
    const struct outcome absorbed = run_on(device, &burst, 0);
    check_near("hdd: burst of 16 MiB into the write cache, MB/s", absorbed.rate / 1e6, (double) p.interface_rate / 1e6, 0.02);
    uint64_t now = absorbed.ended_at;
    one(device, DEVICE_FLUSH, 0, 0, &now); /* from the burst's begin on: 16 MiB at the media rate, and finding the place */
    check_near("hdd: the same with a flush, ms", (double) now / 1e6, 16 * (double) MIB / (double) p.outer_rate * 1e3 + 12, 0.15);
    const struct load load = {.what = DEVICE_WRITE, .block = 64 * KIB, .range = p.capacity, .depth = 4, .count = 4000};
    const struct outcome full = run_on(device, &load, now);
    printf("  hdd: random 64 KiB writes through a full cache: %.1f IOPS\n", full.iops);
    CHECK(full.iops > SECOND / mean_access(&p, 65536) && full.iops < 400);
    device_free(device);
}

/* A full cache and waiting reads share the arm: neither starves. */
static void check_mixed(void) {
    const struct device_parameters p = device_defaults(DEVICE_HDD);
    const struct load load = {.what = DEVICE_READ, .block = 64 * KIB, .range = p.capacity, .depth = 32, .count = 8000, .write_share = 50};
    const struct outcome outcome = run(&p, &load);
    printf("  hdd: half reads, half writes, depth 32: %.1f IOPS, longest %.1f ms\n", outcome.iops, (double) outcome.longest / 1e6);
    CHECK(outcome.longest < 20 * UINT64_C(1000000000));
}

/* ---- flash ---- */

static void check_flash_latency(enum device_kind kind, enum device_operation what) {
    const struct device_parameters p = device_defaults(kind);
    const struct load load = {.what = what, .block = 4 * KIB, .range = p.capacity, .depth = 1, .count = 20000};
    const double latency = (double) (p.command_time + (what == DEVICE_READ ? p.read_time : p.write_time)) +
                           4096 * SECOND * (1 / (double) p.channel_rate + 1 / (double) p.interface_rate);
    char name[80];
    snprintf(name, sizeof name, "%s: random 4 KiB %s, depth 1, IOPS", device_kind_name(kind), what == DEVICE_READ ? "reads" : "writes");
    check_near(name, run(&p, &load).iops, SECOND / latency, 0.01);
}

static double least(double a, double b) { return a < b ? a : b; }

static void check_flash_bandwidth(const char *name, const struct device_parameters *p, enum device_operation what) {
    const struct load load = {.what = what, .block = 256 * KIB, .range = p->capacity, .is_sequential = true, .depth = 64, .count = 3000};
    const double channels = (double) p->channels * (double) p->channel_rate, interface = (double) p->interface_rate;
    const double time = (double) (what == DEVICE_READ ? p->read_time : p->write_time) / SECOND;
    const double dies = (double) (p->channels * p->dies * p->stripe) / time;
    check_near(name, run(p, &load).rate / 1e6, least(least(channels, interface), dies) / 1e6, 0.02);
}

static void check_flash(enum device_kind kind) {
    struct device_parameters p = device_defaults(kind);
    check_flash_latency(kind, DEVICE_READ);
    check_flash_latency(kind, DEVICE_WRITE);
    check_flash_bandwidth("  reads, bound by the interface, MB/s", &p, DEVICE_READ);
    check_flash_bandwidth("  writes, bound by the interface, MB/s", &p, DEVICE_WRITE);
    p.channels = 2, p.dies = 16, p.channel_rate = 150000000;
    check_flash_bandwidth("  reads, bound by the channels, MB/s", &p, DEVICE_READ);
    check_flash_bandwidth("  writes, bound by the channels, MB/s", &p, DEVICE_WRITE);
    p = device_defaults(kind);
    p.channels = 4, p.dies = 2, p.read_time = 800000, p.write_time = 1000000;
    check_flash_bandwidth("  reads, bound by the dies, MB/s", &p, DEVICE_READ);
    check_flash_bandwidth("  writes, bound by the dies, MB/s", &p, DEVICE_WRITE);
}

/* A flush gives its command when the writes before it have ended; a read after it does not wait for it. */
static void check_flash_flush(enum device_kind kind) {
    const struct device_parameters p = device_defaults(kind);
    struct device *device = new_device(&p);
    uint64_t now = 0, ended, last_write = 0, count = 0;
    for (uint64_t i = 1; i <= 8; i++) CHECK(device_submit(device, DEVICE_WRITE, i * MIB, 64 * KIB, now, 1) == 0);
    CHECK(device_submit(device, DEVICE_FLUSH, 0, 0, now, 2) == 0);
    CHECK(device_submit(device, DEVICE_WRITE, 512 * MIB, 64 * KIB, now, 4) == 0);
    CHECK(device_submit(device, DEVICE_READ, 100 * MIB, 4096, now, 3) == 0);
    for (uint64_t token, read = 0, writes = 0; (token = device_next(device, DEVICE_TIME_MAX, &ended)) != 0; count++) {
        hash_in(ended);
        if (token == 1 && ++writes == 8) last_write = ended;
        if (token == 3) read = ended;
        if (token != 2) continue;
        CHECK(read != 0 && writes >= 8 && ended >= last_write + p.command_time + p.flush_time);
    }
    CHECK(count == 11); /* nothing is left under way */
    device_free(device);
}

static void check_flash_depths(enum device_kind kind) {
    const struct device_parameters p = device_defaults(kind);
    double before = 0;
    for (unsigned depth = 1; depth <= 128; depth *= 2) {
        const struct load load = {.what = DEVICE_READ, .block = 4 * KIB, .range = p.capacity, .depth = depth, .count = 20000};
        const struct outcome outcome = run(&p, &load);
        printf("  %s: random 4 KiB reads, depth %3u: %8.0f IOPS, mean %6.1f µs\n", device_kind_name(kind), depth, outcome.iops,
               outcome.mean_latency * 1e6);
        CHECK(outcome.iops >= before);
        before = outcome.iops;
    }
    const struct load mixed = {.what = DEVICE_READ, .block = 64 * KIB, .range = p.capacity, .depth = 48, .count = 20000, .write_share = 30};
    run(&p, &mixed);
}

/* ---- what has no bytes ---- */

static void check_nothing(enum device_kind kind) {
    const struct device_parameters p = device_defaults(kind);
    const uint64_t trim = p.command_time + p.trim_time, flush = p.command_time + p.flush_time;
    struct device *device = new_device(&p);
    uint64_t now = 0;
    const uint64_t offsets[] = {0, 4096, p.capacity - 1, p.capacity, p.capacity + 1, UINT64_MAX};
    for (size_t i = 0; i < sizeof offsets / sizeof offsets[0]; i++) {
        CHECK(one(device, DEVICE_READ, offsets[i], 0, &now) == p.command_time);
        CHECK(one(device, DEVICE_WRITE, offsets[i], 0, &now) == p.command_time);
        CHECK(one(device, DEVICE_TRIM, offsets[i], 1024 * MIB, &now) == trim);
        CHECK(one(device, DEVICE_FLUSH, offsets[i], 4096, &now) == flush);
        if (offsets[i] < p.capacity) continue;
        CHECK(one(device, DEVICE_READ, offsets[i], 4096, &now) == p.command_time); /* past the end there is nothing */
        CHECK(one(device, DEVICE_WRITE, offsets[i], UINT64_MAX, &now) == p.command_time);
        CHECK(one(device, DEVICE_FLUSH, 0, 0, &now) == flush);
    }
    CHECK(one(device, DEVICE_WRITE, p.capacity - 4096, 1024 * MIB, &now) > p.command_time); /* cut at the end */
    nothing_for(device, 1000000000, &now);
    CHECK(one(device, DEVICE_FLUSH, 0, 0, &now) == flush);
    device_free(device);
}

/* ---- arrivals at any time ---- */

#define STORM_STEPS 6000
static struct {
    enum device_operation what;
    bool ended;
} stormed[4 * STORM_STEPS];

/* Takes an end: after a flush, nothing that came before it and that it covers may be under way. */
static void take_end(const struct device_parameters *p, uint64_t token, uint64_t *oldest) {
    CHECK(!stormed[token].ended);
    stormed[token].ended = true;
    if (stormed[token].what == DEVICE_FLUSH)
        for (uint64_t i = *oldest; i < token; i++) CHECK(stormed[i].ended || (p->kind != DEVICE_HDD && stormed[i].what != DEVICE_WRITE));
    while (stormed[*oldest].ended) ++*oldest;
}

static void submit_any(struct device *device, uint64_t *state, uint64_t token, uint64_t now) {
    const uint64_t capacity = device_parameters_of(device)->capacity;
    const uint64_t size = unit_below(state, 200);
    const uint64_t length = size == 0 ? unit_below(state, 40 * MIB) : size < 20 ? unit_below(state, MIB) : size % 64 * 4 * KIB;
    const uint64_t offset = unit_below(state, 2) ? unit_below(state, capacity + MIB) : unit_below(state, 256) * 64 * KIB;
    const uint64_t kind = unit_below(state, 40);
    const enum device_operation what = kind == 0 ? DEVICE_FLUSH : kind == 1 ? DEVICE_TRIM : kind < 20 ? DEVICE_WRITE : DEVICE_READ;
    stormed[token].what = what;
    stormed[token].ended = false;
    CHECK(device_submit(device, what, offset, length, now, token) == 0);
}

/* Random operations at random times; returns a hash of all ends, so that two runs can be compared. */
static uint64_t storm(const struct device_parameters *p, uint64_t seed) {
    struct device *device = new_device(p);
    uint64_t state = seed, now = 0, result = 0, under_way = 0, token = 1, oldest = 1;
    memset(stormed, 0, sizeof stormed);
    for (int i = 0; i < STORM_STEPS; i++) {
        const uint64_t until = now + unit_below(&state, p->kind == DEVICE_HDD ? 20000000 : 200000);
        uint64_t ended;
        for (uint64_t got; (got = device_next(device, until, &ended)) != 0; under_way--) {
            CHECK(ended >= now && ended <= until);
            now = ended;
            take_end(p, got, &oldest);
            result = (result ^ got ^ ended << 20) * UINT64_C(0x9e3779b97f4a7c15);
        }
        now = until;
        for (uint64_t burst = unit_below(&state, 4); burst > 0; burst--, under_way++) submit_any(device, &state, token++, now);
    }
    for (uint64_t got, ended; (got = device_next(device, DEVICE_TIME_MAX, &ended)) != 0; under_way--) {
        CHECK(ended >= now);
        now = ended;
        take_end(p, got, &oldest);
    }
    CHECK(under_way == 0);
    device_free(device);
    return result ^ now;
}

static void check_storms(enum device_kind kind) {
    struct device_parameters p = device_defaults(kind);
    const uint64_t first = storm(&p, unit_seed), again = storm(&p, unit_seed);
    CHECK(first == again);
    hash_in(first);
    p.seed++;
    CHECK(kind != DEVICE_HDD || storm(&p, unit_seed) != first);
    p = device_defaults(kind);
    p.capacity = 64 * MIB, p.queue_depth = 3, p.write_cache = 300 * KIB; /* everything meets everything, and the cache is full */
    for (uint64_t seed = 0; seed < 4; seed++) hash_in(storm(&p, unit_seed + seed));
    p.write_cache = 0;
    hash_in(storm(&p, unit_seed));
}

/* ---- refusals and memory ---- */

static void refused(struct device_parameters p, const char *word) {
    struct error error = {0};
    CHECK(device_check(&p, &error) == -EINVAL && strstr(error.text, word) != NULL);
}

static void check_refusals(void) {
    struct device_parameters p = device_defaults(DEVICE_HDD), bad;
    bad = p, bad.kind = (enum device_kind) 3, refused(bad, "kind 3");
    bad = p, bad.capacity = 0, refused(bad, "capacity");
    bad = p, bad.queue_depth = 0, refused(bad, "queue_depth");
    bad = p, bad.rpm = 0, refused(bad, "rpm");
    bad = p, bad.seek_average = bad.seek_track - 1, refused(bad, "seek_average");
    bad = p, bad.seek_full = bad.seek_average - 1, refused(bad, "seek_full");
    bad = p, bad.inner_rate = bad.outer_rate + 1, refused(bad, "outer_rate");
    p = device_defaults(DEVICE_SSD);
    bad = p, bad.channels = 0, refused(bad, "channels");
    bad = p, bad.stripe = 10000, refused(bad, "stripe");
    bad = p, bad.channel_rate = 0, refused(bad, "channel_rate");
}

/* Every parameter can be listed and set by its name. */
static void check_names(enum device_kind kind) {
    struct device_parameters p = device_defaults(kind), changed = p;
    struct error error = {0};
    enum device_kind found;
    CHECK(device_kind_find(device_kind_name(kind), &found, &error) == 0 && found == kind);
    for (unsigned i = 0; i < device_parameter_count(kind); i++) {
        const struct device_parameter before = device_parameter_at(&p, i);
        CHECK(device_parameter_set(&changed, before.name, before.value + 1, &error) == 0);
        CHECK(device_parameter_at(&changed, i).value == before.value + 1);
        CHECK(device_parameter_set(&changed, before.name, before.value, &error) == 0);
        for (unsigned j = 0; j < i; j++) CHECK(strcmp(before.name, device_parameter_at(&p, j).name) != 0);
        CHECK(before.unit != NULL);
    }
    CHECK(memcmp(&p, &changed, sizeof p) == 0);
    CHECK(device_parameter_set(&p, kind == DEVICE_HDD ? "dies" : "rpm", 1, &error) == -EINVAL && strstr(error.text, "no parameter"));
    error_clear(&error);
    CHECK(device_parameter_set(&p, "capacity", 0, &error) == -EINVAL && strstr(error.text, "capacity is 0"));
    error_clear(&error);
    CHECK(device_kind_find("tape", &found, &error) == -EINVAL && strstr(error.text, "'tape'"));
    CHECK(memcmp(&p, &changed, sizeof p) == 0);
}

/* Each allocation fails in turn: submit says so, and the device goes on without that operation. */
static void check_memory(enum device_kind kind) {
    const struct device_parameters p = device_defaults(kind);
    const uint64_t held = memory_held();
    unsigned failures = 0;
    for (uint64_t nth = 1; nth < 60; nth++) {
        struct device *device = NULL;
        uint64_t now = 0, under_way = 0;
        memory_fail_at(nth);
        const int result = device_new(&p, &device);
        CHECK(result == 0 || result == -ENOMEM);
        failures += result < 0;
        for (uint64_t i = 1; result == 0 && i <= 20; i++) {
            const int code = device_submit(device, i == 15 ? DEVICE_FLUSH : DEVICE_WRITE, i * 7 % 20 * 64 * KIB, 4096, 0, i);
            CHECK(code == 0 || code == -ENOMEM);
            failures += code < 0;
            under_way += code == 0;
        }
        while (result == 0 && device_next(device, DEVICE_TIME_MAX, &now) != 0) under_way--;
        CHECK(under_way == 0);
        memory_fail_at(0);
        device_free(device);
        CHECK(memory_held() == held);
    }
    CHECK(failures > 20);
}

/* ---- the file ---- */

static struct file *new_model(const struct device_parameters *p) {
    struct error error = {0};
    struct file *below = NULL, *model = NULL;
    CHECK(file_memory_new("disk", &below) == 0);
    CHECK(file_model_open(p, below, &model, &error) == 0);
    CHECK(file_is_model(model) && !file_is_model(below) && file_model_clock(model) == 0);
    CHECK(file_model_parameters(model)->kind == p->kind);
    file_release(below);
    return model;
}

static uint64_t time_of_flash(const struct device_parameters *p, uint64_t length, bool write) { /* one stripe at most */
    return p->command_time + (write ? p->write_time : p->read_time) + ceil_div_u64(length * 1000000000, p->channel_rate) +
           ceil_div_u64(length * 1000000000, p->interface_rate);
}

/* A synchronous call takes as long as the device says, and its bytes are where they were put. */
static void check_model_file(void) {
    struct device_parameters p = device_defaults(DEVICE_NVME);
    p.capacity = 64 * MIB;
    struct file *model = new_model(&p);
    struct error error = {0};
    uint8_t bytes[4096], back[4096];
    uint64_t now = 0, length;
    memset(bytes, 0x5a, sizeof bytes);
    CHECK(file_write(model, MIB, bytes, sizeof bytes, &error) == 0);
    CHECK(file_model_clock(model) == (now += time_of_flash(&p, 4096, true)));
    CHECK(file_read(model, MIB, back, sizeof back, &error) == 0 && memcmp(bytes, back, sizeof back) == 0);
    CHECK(file_model_clock(model) == (now += time_of_flash(&p, 4096, false)));
    CHECK(file_sync(model, &error) == 0);
    CHECK(file_model_clock(model) == (now += p.command_time + p.flush_time));
    CHECK(file_discard(model, 0, MIB, &error) == 0);
    CHECK(file_zero(model, MIB, MIB, FILE_ZERO_UNMAP, &error) == 0);
    CHECK(file_model_clock(model) == (now += 2 * (p.command_time + p.trim_time)));
    CHECK(file_read(model, MIB, back, sizeof back, &error) == 0 && back[0] == 0 && back[4095] == 0);
    now = file_model_clock(model);
    CHECK(file_truncate(model, 64 * MIB, &error) == 0 && file_length(model, &length, &error) == 0 && length == 64 * MIB);
    CHECK(file_allocate(model, 0, MIB, &error) == 0 || error.code == -ENOTSUP);
    error_clear(&error);
    CHECK(file_truncate(model, 64 * MIB + 1, &error) == -ENOSPC);
    error_clear(&error);
    CHECK(file_write(model, 64 * MIB - 1, bytes, 2, &error) == -ENOSPC && strstr(error.text, "write of 2 bytes"));
    error_clear(&error);
    CHECK(file_zero(model, 64 * MIB, 1, 0, &error) == -ENOSPC);
    CHECK(file_read(model, 100 * MIB, back, 0, &error) == 0 && file_write(model, 100 * MIB, bytes, 0, &error) == 0);
    CHECK(file_model_clock(model) == now); /* none of these takes time */
    CHECK(file_stats_of(model).writes == 2 && file_stats_of(model).syncs == 1);
    struct file *small = NULL;
    p.capacity = MIB;
    error_clear(&error);
    CHECK(file_model_open(&p, model, &small, &error) == -EINVAL && strstr(error.text, "capacity"));
    file_release(model);
}

/* ---- the ring ---- */

static struct ring_job job_of(struct file *file, enum move_kind kind, uint64_t offset, void *bytes, uint64_t length) {
    struct moves moves = {0};
    if (bytes) moves_add_bytes(&moves, kind, file, offset, bytes, length);
    else moves_add(&moves, kind, file, offset, length);
    return (struct ring_job){.move = moves.items[0], .error = {.code = -1}};
}

static struct ring *new_ring(struct file *model, unsigned depth) {
    struct error error = {0};
    struct ring *ring = NULL;
    CHECK(ring_virtual_open(model, depth, &ring, &error) == 0);
    return ring;
}

/* Time goes on in reaps alone, to the next end or as far as it may. */
static void check_ring_time(void) {
    const struct device_parameters p = device_defaults(DEVICE_SSD);
    struct file *model = new_model(&p);
    struct ring *ring = new_ring(model, 2);
    uint8_t bytes[8192] = {1};
    const uint64_t quick = time_of_flash(&p, 4096, false), slow = time_of_flash(&p, 8192, true);
    CHECK(ring_now(ring) == 0 && ring_reap(ring, 0) == NULL);
    CHECK(ring_reap(ring, RING_FOREVER) == NULL && ring_now(ring) == 0); /* nothing is under way */
    CHECK(ring_reap(ring, 1000) == NULL && ring_now(ring) == 1000);
    CHECK(ring_reap(ring, 500) == NULL && ring_now(ring) == 1000); /* never back */
    struct ring_job write = job_of(model, MOVE_WRITE, 0, bytes, 8192);
    write.stream = 7;
    ring_submit(ring, &write);
    CHECK(ring_reap(ring, 0) == NULL && ring_now(ring) == 1000);
    CHECK(ring_reap(ring, 1000 + slow - 1) == NULL && ring_now(ring) == 1000 + slow - 1);
    struct ring_job read = job_of(model, MOVE_READ, MIB, bytes, 4096);
    ring_submit(ring, &read);
    CHECK(ring_reap(ring, RING_FOREVER) == &write && write.error.code == 0 && ring_now(ring) == 1000 + slow);
    CHECK(write.stream == 7 && write.submitted_at == 0);
    ring_wake(ring);
    CHECK(ring_reap(ring, RING_FOREVER) == NULL && ring_now(ring) == 1000 + slow); /* woken */
    CHECK(ring_reap(ring, UINT64_MAX - 1) == &read && ring_now(ring) == 1000 + slow - 1 + quick);
    ring_close(ring);
    file_release(model);
}

/* What takes no time is over at once, with the same counts and sentences as in a synchronous call; other files take none. */
static void check_ring_moves(void) {
    struct device_parameters p = device_defaults(DEVICE_HDD);
    p.capacity = 64 * MIB;
    struct file *model = new_model(&p), *other = NULL;
    struct ring *ring = new_ring(model, 12);
    uint8_t bytes[4096] = {9}, back[4096];
    CHECK(file_memory_new("other", &other) == 0);
    struct ring_job jobs[] = {
        job_of(model, MOVE_TRUNCATE, 32 * MIB, NULL, 0),    job_of(model, MOVE_READ, 0, back, 0),
        job_of(model, MOVE_WRITE, 64 * MIB, bytes, 4096),   job_of(model, MOVE_ZERO, 0, NULL, 65 * MIB),
        job_of(model, MOVE_WRITE, INT64_MAX, bytes, 4096),  job_of(other, MOVE_WRITE, 0, bytes, 4096),
        job_of(model, MOVE_TRUNCATE, 65 * MIB, NULL, 0),    job_of(model, MOVE_ALLOCATE, 0, NULL, 4096),
        job_of(model, MOVE_WRITE, 32 * MIB, bytes, 4096),   job_of(model, MOVE_ZERO, 0, NULL, 4096),
        job_of(model, MOVE_READ, 32 * MIB - 4, back, 4096), job_of(model, MOVE_SYNC, 0, NULL, 0),
    };
    const int codes[] = {0, 0, -ENOSPC, -ENOSPC, -EFBIG, 0, -ENOSPC, 0, 0, 0, 0, 0};
    for (size_t i = 0; i < 12; i++) ring_submit(ring, &jobs[i]);
    for (size_t i = 0; i < 8; i++) CHECK(ring_reap(ring, 0) == &jobs[i]);
    CHECK(ring_reap(ring, 0) == NULL && ring_now(ring) == 0);
    CHECK(back[3] == 0 && back[4] == 9); /* bytes move in order of submission */
    for (uint64_t before = 0, i = 8; i < 12; i++, before = ring_now(ring))
        CHECK(ring_reap(ring, RING_FOREVER) != NULL && ring_now(ring) >= before);
    for (size_t i = 0; i < 12; i++) {
        if (i == 7 && jobs[i].error.code == -ENOTSUP) continue;
        CHECK(jobs[i].error.code == codes[i] && (codes[i] == 0) == (jobs[i].error.text[0] == 0));
    }
    CHECK(file_stats_of(model).writes == 2 && file_stats_of(model).reads == 1 && file_stats_of(model).syncs == 1);
    CHECK(strstr(jobs[2].error.text, "write of 4096 bytes at offset 67108864 of 'disk'") != NULL);
    ring_close(ring);
    file_release(other);
    file_release(model);
}

/* Two rings and synchronous calls share the disk and the clock. */
static void check_shared_clock(void) {
    const struct device_parameters p = device_defaults(DEVICE_SSD);
    struct file *model = new_model(&p);
    struct ring *one = new_ring(model, 1), *two = new_ring(model, 1);
    struct error error = {0};
    uint8_t bytes[4096] = {0};
    const uint64_t time = time_of_flash(&p, 4096, false);
    struct ring_job first = job_of(model, MOVE_READ, 0, bytes, 4096), second = job_of(model, MOVE_READ, MIB + 16 * KIB, bytes, 4096);
    ring_submit(one, &first);
    CHECK(ring_reap(two, RING_FOREVER) == NULL && ring_now(two) == 0); /* nothing of its own */
    ring_submit(two, &second);
    CHECK(ring_reap(two, RING_FOREVER) == &second && ring_now(one) == p.command_time + time);
    CHECK(ring_reap(one, 0) == &first); /* it ended meanwhile */
    ring_submit(one, &first);
    const uint64_t now = ring_now(one);
    CHECK(file_read(model, MIB + 16 * KIB, bytes, 4096, &error) == 0 && ring_now(two) == now + p.command_time + time);
    CHECK(ring_reap(one, 0) == &first);
    ring_close(one);
    ring_close(two);
    file_release(model);
}

/* A closed loop through the ring takes exactly as long as on the device alone. */
static void check_ring_load(enum device_kind kind, unsigned depth) {
    const struct device_parameters p = device_defaults(kind);
    enum {
        COUNT = 2000
    };
    const struct load load = {.what = DEVICE_READ, .block = 4 * KIB, .range = p.capacity, .depth = depth, .count = COUNT};
    const struct outcome outcome = run(&p, &load);
    struct file *model = new_model(&p);
    struct ring *ring = new_ring(model, depth);
    struct ring_job jobs[32], *job;
    uint8_t bytes[4096];
    uint64_t state = 42;
    unsigned sent = 0, ended = 0;
    for (; sent < depth; sent++) {
        jobs[sent] = job_of(model, MOVE_READ, unit_below(&state, load.range / load.block) * load.block, bytes, 4096);
        ring_submit(ring, &jobs[sent]);
    }
    for (; (job = ring_reap(ring, RING_FOREVER)) != NULL; ended++) {
        CHECK(job->error.code == 0);
        if (sent++ >= COUNT) continue;
        *job = job_of(model, MOVE_READ, unit_below(&state, load.range / load.block) * load.block, bytes, 4096);
        ring_submit(ring, job);
    }
    CHECK(ended == COUNT && ring_now(ring) == outcome.ended_at);
    ring_close(ring);
    file_release(model);
}

/* Each allocation fails in turn above the device too: -ENOMEM in the job or the call, nothing kept. */
static void check_model_memory(void) {
    const struct device_parameters p = device_defaults(DEVICE_SSD);
    const uint64_t held = memory_held();
    unsigned failures = 0, passed = 0;
    for (uint64_t nth = 1; passed == 0; nth++) {
        struct file *below = NULL, *model = NULL;
        struct ring *ring = NULL;
        struct error error = {0};
        uint8_t bytes[4096] = {0};
        CHECK(file_memory_new("disk", &below) == 0 && file_truncate(below, MIB, &error) == 0);
        memory_fail_at(nth);
        int code = file_model_open(&p, below, &model, &error);
        if (code == 0) code = ring_virtual_open(model, 4, &ring, &error);
        if (code == 0) {
            struct ring_job job = job_of(model, MOVE_WRITE, 0, bytes, 4096);
            ring_submit(ring, &job);
            CHECK(ring_reap(ring, RING_FOREVER) == &job);
            code = job.error.code;
            error = job.error;
        }
        if (code == 0) code = file_read(model, 0, bytes, 4096, &error);
        memory_fail_at(0);
        CHECK(code == 0 || (code == -ENOMEM && error.text[0] != 0));
        failures += code < 0;
        passed += code == 0;
        ring_close(ring);
        file_release(model);
        file_release(below);
        CHECK(memory_held() == held);
    }
    CHECK(failures > 6);
}

/* ---- threads ---- */

static void *call_often(void *argument) {
    struct file *model = argument;
    struct error error = {0};
    uint8_t bytes[512] = {0};
    for (uint64_t i = 0, before = 0, now; i < 300; i++, before = now) {
        CHECK(file_write(model, i * 4096, bytes, sizeof bytes, &error) == 0);
        CHECK((now = file_model_clock(model)) > before);
    }
    return NULL;
}

/* Synchronous calls from any thread, while a ring is at work in its own. */
static void check_threads(void) {
    const struct device_parameters p = device_defaults(DEVICE_SSD);
    struct file *model = new_model(&p);
    struct ring *ring = new_ring(model, 8);
    struct ring_job jobs[8], *job;
    pthread_t threads[3];
    uint8_t bytes[4096];
    unsigned ended = 0;
    for (int i = 0; i < 3; i++) CHECK(pthread_create(&threads[i], NULL, call_often, model) == 0);
    for (uint64_t i = 0; i < 8; i++) jobs[i] = job_of(model, MOVE_READ, i * MIB, bytes, 4096), ring_submit(ring, &jobs[i]);
    for (; (job = ring_reap(ring, RING_FOREVER)) != NULL; ended++)
        if (ended < 1000) ring_submit(ring, job);
    CHECK(ended == 1008);
    for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
    ring_close(ring);
    file_release(model);
}

/* ---- what the defaults give ---- */

/* Of a load that goes on: a first part fills the write cache and is not counted. */
static struct outcome run_warm(const struct device_parameters *p, const struct load *load) {
    struct device *device = new_device(p);
    struct load before = *load;
    before.count = p->write_cache > 0 ? (unsigned) (2 * p->write_cache / load->block) : load->depth;
    const uint64_t started = load->what == DEVICE_WRITE ? run_on(device, &before, 0).ended_at : 0;
    const struct outcome outcome = run_on(device, load, started);
    device_free(device);
    return outcome;
}

static void print_rates(enum device_kind kind) {
    const struct device_parameters p = device_defaults(kind);
    for (unsigned depth = 1; depth <= 32; depth += 31) {
        for (unsigned write = 0; write <= 1; write++) {
            struct load load = {.what = write ? DEVICE_WRITE : DEVICE_READ, .block = 4 * KIB, .range = p.capacity, .depth = depth};
            load.count = kind == DEVICE_HDD ? 2000 : 5000;
            const double iops = run_warm(&p, &load).iops;
            load.block = MIB, load.is_sequential = true, load.count = 1000;
            printf("  %-4s %s, depth %2u: 4 KiB at random %8.0f IOPS, 1 MiB in order %6.1f MB/s\n", device_kind_name(kind),
                   write ? "writes" : "reads ", depth, iops, run_warm(&p, &load).rate / 1e6);
        }
    }
}

int main(void) {
    unit_start();
    check_refusals();
    check_hdd_access();
    check_hdd_sequential();
    check_hdd_write_through();
    check_hdd_depths();
    check_hdd_starvation();
    check_cache();
    check_rewrite_below_arm();
    check_hdd_flush();
    check_scattered_drain();
    check_burst_and_drain();
    check_mixed();
    for (enum device_kind kind = DEVICE_SSD; kind <= DEVICE_NVME; kind++) {
        check_flash(kind);
        check_flash_depths(kind);
        check_flash_flush(kind);
    }
    for (enum device_kind kind = DEVICE_HDD; kind <= DEVICE_NVME; kind++) {
        check_names(kind);
        check_nothing(kind);
        check_storms(kind);
        check_memory(kind);
        check_ring_load(kind, 1);
        check_ring_load(kind, 32);
        print_rates(kind);
    }
    check_model_file();
    check_ring_time();
    check_ring_moves();
    check_shared_clock();
    check_model_memory();
    check_threads();
    printf("  hash of all ends: %016" PRIx64 "\n", hash);
    return unit_end("device_test");
}
