/* SPDX-License-Identifier: MIT
 *
 * Many workers with deep queues on one image. First, short histories in which everybody writes, clears, discards and reads the same few
 * blocks: each read must give what some order of the requests would give, in which none comes before one that had ended when it
 * began. Then jobs that verify: small blocks of all jobs lie in the same clusters, and whole clusters are discarded.
 *
 *   jobs_test [SECONDS [FILE]]   how long the jobs run (default 1), and the image to make and keep (default: in memory)
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "../unit/unit.h"
#include "base/bytes.h"
#include "image/chain.h"
#include "image/create.h"
#include "jobs/bench.h"
#include "storage/file_memory.h"
#include "storage/file_posix.h"

static struct image *open_image(struct file *file, uint64_t size, unsigned cluster_bits) {
    struct error error = {.code = 0};
    struct image *image = NULL;
    const struct create_options create = {
        .format = IMAGE_QCOW2, .size = size, .version = 3, .cluster_bits = cluster_bits, .refcount_order = 4};
    struct image_options options = image_options_default();
    options.format = IMAGE_OPEN_QCOW2;
    options.overlap_check = OVERLAP_ALL;
    CHECK(image_create(file, &create, &error) == 0);
    CHECK(image_open(file, &options, &image, &error) == 0);
    return image;
}

/* ---- histories ---- */

#define BLOCK 512u
#define CLUSTER_BITS 12u
#define BLOCKS 48u /* 6 clusters */
#define BLOCKS_MAX 8u
#define THREADS 6u
#define DEPTH 6u
#define STEPS 400u

struct entry { /* what one request did to one block */
    uint64_t began, ended, value;
    bool writes;
};

struct history {
    struct entry entries[THREADS * STEPS * BLOCKS_MAX];
    unsigned count;
};

struct player {
    pthread_t thread;
    struct image *image;
    enum ring_kind kind;
    uint64_t state, number;
    struct queue queue;
    struct history *histories; /* one a block; the player's own */
    uint64_t bytes[DEPTH][BLOCKS_MAX * BLOCK / 8];
    struct entry running[DEPTH];
};

static _Atomic uint64_t now;

static void start(struct player *player, struct queue_slot *slot) {
    static const enum request_kind kinds[] = {REQUEST_WRITE, REQUEST_WRITE, REQUEST_READ,   REQUEST_READ,
                                              REQUEST_READ,  REQUEST_ZERO,  REQUEST_DISCARD};
    const uint64_t index = (uint64_t) (slot - player->queue.slots);
    const enum request_kind kind = kinds[unit_below(&player->state, 7)];
    uint64_t count = 1 + unit_below(&player->state, BLOCKS_MAX), first = unit_below(&player->state, BLOCKS - count + 1);
    if (kind == REQUEST_DISCARD) {
        count = BLOCKS_MAX;
        first = round_down_u64(first, BLOCKS_MAX);
    }
    const uint64_t value = kind == REQUEST_WRITE ? ++player->number * THREADS * 1000000 + (uint64_t) (player->state % 1000000) : 0;
    if (kind == REQUEST_WRITE) {
        for (uint64_t i = 0; i < count * BLOCK / 8; i++) player->bytes[index][i] = value;
    }
    request_start(&slot->request, player->image, kind, first * BLOCK, count * BLOCK, player->bytes[index]);
    slot->request.may_unmap = player->state % 2 == 0;
    player->running[index] = (struct entry){.began = atomic_fetch_add(&now, 1), .value = value, .writes = kind != REQUEST_READ};
    queue_start(slot);
}

/* A block's words are all of one write. */
static uint64_t value_of(const uint64_t *words) {
    for (unsigned i = 1; i < BLOCK / 8; i++) CHECK(words[i] == words[0]);
    return words[0];
}

static void collect(struct player *player) {
    struct queue_slot *slot;
    while ((slot = queue_take_done(&player->queue)) != NULL) {
        const uint64_t index = (uint64_t) (slot - player->queue.slots);
        struct entry entry = player->running[index];
        entry.ended = atomic_fetch_add(&now, 1);
        if (slot->request.error.code < 0) fprintf(stderr, "%s\n", slot->request.error.text);
        CHECK(slot->request.error.code == 0);
        for (uint64_t i = 0; i < slot->request.length / BLOCK; i++) {
            struct history *history = &player->histories[slot->request.guest_offset / BLOCK + i];
            if (!entry.writes) entry.value = value_of(player->bytes[index] + i * BLOCK / 8);
            history->entries[history->count++] = entry;
        }
        queue_slot_give(slot);
    }
}

static void *play(void *argument) {
    struct player *player = argument;
    struct error error = {.code = 0};
    struct ring *ring = NULL;
    CHECK(ring_open(player->kind, DEPTH * MOVES_MAX, &ring, &error) == 0);
    CHECK(queue_init(&player->queue, player->image, ring, DEPTH) == 0);
    for (unsigned left = STEPS; left > 0 || player->queue.busy > 0;) {
        struct queue_slot *slot;
        while (left > 0 && (slot = queue_slot_take(&player->queue)) != NULL) {
            start(player, slot);
            left--;
        }
        queue_poll(&player->queue, true);
        collect(player);
    }
    collect(player);
    queue_destroy(&player->queue);
    ring_close(ring);
    return NULL;
}

/* Whether `read` may have seen `write`: it began before the read had ended, and nothing replaced it for certain before the read began. */
static bool may_see(const struct history *history, const struct entry *read, const struct entry *write) {
    if (write->began > read->ended) return false;
    for (unsigned i = 0; i < history->count; i++) {
        const struct entry *between = &history->entries[i];
        if (between->writes && write->ended < between->began && between->ended < read->began) return false;
    }
    return true;
}

static bool is_explained(const struct history *history, const struct entry *read) {
    const struct entry first = {.began = 0, .ended = 0, .value = 0, .writes = true}; /* the new image's zeroes */
    if (read->value == 0 && may_see(history, read, &first)) return true;
    for (unsigned i = 0; i < history->count; i++) {
        const struct entry *write = &history->entries[i];
        if (write->writes && write->value == read->value && may_see(history, read, write)) return true;
    }
    return false;
}

/* The one write of a value that is not zero. */
static const struct entry *write_of(const struct history *history, uint64_t value) {
    for (unsigned i = 0; value != 0 && i < history->count; i++) {
        if (history->entries[i].writes && history->entries[i].value == value) return &history->entries[i];
    }
    return NULL;
}

/* A later read never sees a write that came before what an earlier one saw. */
static void check_order(const struct history *history, const struct entry *early) {
    const struct entry *seen = write_of(history, early->value);
    for (unsigned i = 0; seen != NULL && i < history->count; i++) {
        const struct entry *late = &history->entries[i];
        if (late->writes || late->began < early->ended) continue;
        const struct entry *other = write_of(history, late->value);
        CHECK(other == NULL || other->ended >= seen->began);
    }
}

static void check_history(const struct history *history) {
    for (unsigned i = 0; i < history->count; i++) {
        const struct entry *read = &history->entries[i];
        if (read->writes) continue;
        CHECK(is_explained(history, read));
        check_order(history, read);
    }
}

static void merge(struct history *whole, const struct player *players, unsigned block) {
    whole->count = 0;
    for (unsigned i = 0; i < THREADS; i++) {
        const struct history *part = &players[i].histories[block];
        memcpy(whole->entries + whole->count, part->entries, part->count * sizeof *part->entries);
        whole->count += part->count;
    }
}

/* What is there when all is over is a read that came last. */
static void add_last_read(struct history *whole, struct image *image, unsigned block) {
    uint64_t words[BLOCK / 8];
    struct request request;
    request_start(&request, image, REQUEST_READ, block * BLOCK, BLOCK, words);
    CHECK(request_run(&request) == 0);
    const uint64_t began = atomic_fetch_add(&now, 2);
    whole->entries[whole->count++] = (struct entry){.began = began, .ended = began + 1, .value = value_of(words), .writes = false};
}

static void one_history(enum ring_kind kind, uint64_t seed) {
    static struct player players[THREADS];
    static struct history whole;
    struct error error = {.code = 0};
    struct file *file = NULL;
    CHECK(file_memory_new("history", &file) == 0);
    struct image *image = open_image(file, BLOCKS * BLOCK, CLUSTER_BITS);
    atomic_store(&now, 1);
    for (unsigned i = 0; i < THREADS; i++) {
        players[i] = (struct player){.image = image, .kind = kind, .state = seed * THREADS + i, .number = i};
        players[i].histories = calloc(BLOCKS, sizeof *players[i].histories);
        CHECK(players[i].histories != NULL);
        CHECK(pthread_create(&players[i].thread, NULL, play, &players[i]) == 0);
    }
    for (unsigned i = 0; i < THREADS; i++) CHECK(pthread_join(players[i].thread, NULL) == 0);
    for (unsigned block = 0; block < BLOCKS; block++) {
        merge(&whole, players, block);
        add_last_read(&whole, image, block);
        check_history(&whole);
    }
    for (unsigned i = 0; i < THREADS; i++) free(players[i].histories);
    CHECK(image_close(image, &error) == 0);
    file_release(file);
}

/* ---- jobs ---- */

#define WORKERS 32u
#define MiB (UINT64_C(1) << 20)

/* The first half: blocks of 4 KiB, interleaved over the first half of the image; the second: clusters, each job in its part of the rest. */
static struct job_options options_of(unsigned number, uint64_t seconds) {
    const uint64_t half = WORKERS / 2, size = 64 * MiB;
    struct job_options options = {.iodepth = 16, .runtime = seconds * 1000000000u, .fsync = 500, .verify = true};
    options.pattern = (struct pattern_options){.reads = 4, .writes = 4, .trims = 2, .random = true, .seed = unit_seed * WORKERS + number};
    options.pattern.bs = number < half ? 4096 : 65536;
    options.pattern.stride = number < half ? half * 4096 : 65536;
    options.pattern.offset = number < half ? number * 4096 : size + (number - half) * 4 * MiB;
    options.pattern.size = number < half ? size - number * 4096 : 4 * MiB;
    return options;
}

static void run_jobs(uint64_t seconds, const char *path) {
    struct bench_job jobs[WORKERS];
    struct bench *bench = NULL;
    struct error error = {.code = 0};
    struct file *file = NULL;
    if (path == NULL) CHECK(file_memory_new("jobs", &file) == 0);
    else CHECK(file_posix_open(path, FILE_POSIX_WRITE | FILE_POSIX_CREATE, &file, &error) == 0);
    struct image *image = open_image(file, 128 * MiB, 16);
    for (unsigned i = 0; i < WORKERS; i++) jobs[i] = (struct bench_job){.image = image, .options = options_of(i, seconds)};
    CHECK(bench_new(jobs, WORKERS, RING_AUTO, NULL, &bench, &error) == 0);
    CHECK(bench_start(bench, &error) == 0);
    CHECK(bench_wait(bench, RING_FOREVER));
    struct job_result *sum = malloc(sizeof *sum);
    struct bench_cpu cpu;
    CHECK(sum != NULL && bench_result(bench, 0, WORKERS, sum, &cpu) == 0);
    if (sum->error.code < 0) fprintf(stderr, "%s\n", sum->error.text);
    CHECK(sum->error.code == 0 && sum->verified > 0);
    printf("jobs: %llu reads, %llu writes, %llu discards, %llu flushes, %llu blocks verified\n",
           (unsigned long long) sum->directions[JOB_READ].operations, (unsigned long long) sum->directions[JOB_WRITE].operations,
           (unsigned long long) sum->directions[JOB_TRIM].operations, (unsigned long long) sum->directions[JOB_SYNC].operations,
           (unsigned long long) sum->verified);
    job_result_clear(sum);
    free(sum);
    bench_free(bench);
    CHECK(image_close(image, &error) == 0);
    file_release(file);
}

int main(int count, char **arguments) {
    unit_start();
    for (unsigned i = 0; i < 4; i++) {
        one_history(RING_THREADS, unit_seed + i);
        one_history(RING_SYNC, unit_seed + i);
    }
    run_jobs(count > 1 ? strtoull(arguments[1], NULL, 10) : 1, count > 2 ? arguments[2] : NULL);
    return unit_end("jobs");
}
