/* SPDX-License-Identifier: MIT
 *
 * Many threads on one image: each owns every THREADSth stripe of a few hundred bytes, so that clusters, L2 slices and refcount blocks are
 * fought over while each byte has one owner, who knows what it must be. Random writes, zero writes, reads and flushes, with
 * caches of the least size. Afterwards, closed and opened again, every byte is compared. Run under ThreadSanitizer.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "../unit/unit.h"
#include "base/bytes.h"
#include "image/chain.h"
#include "image/create.h"
#include "storage/file_memory.h"

#define THREADS 8
#define STRIPE 768u
#define STRIPES 4000u
#define STEPS 1500
#define SIZE ((uint64_t) STRIPE * STRIPES)

static uint8_t wanted[STRIPES][STRIPE];

struct worker {
    pthread_t thread;
    struct image *image;
    unsigned number;
    uint64_t state;
    char failure[ERROR_TEXT_SIZE];
};

static uint64_t next(struct worker *worker) { return unit_random(&worker->state); }

static int run(struct worker *worker, enum request_kind kind, uint64_t offset, uint64_t length, uint8_t *bytes, bool unmap) {
    struct request request;
    request_start(&request, worker->image, kind, offset, length, bytes);
    request.may_unmap = unmap;
    if (request_run(&request) < 0) memcpy(worker->failure, request.error.text, sizeof worker->failure);
    return request.error.code;
}

static int step(struct worker *worker) {
    const uint64_t stripe = next(worker) % (STRIPES / THREADS) * THREADS + worker->number;
    const uint64_t start = next(worker) % STRIPE, length = 1 + next(worker) % (STRIPE - start);
    const uint64_t offset = stripe * STRIPE + start;
    uint8_t bytes[STRIPE];
    switch (next(worker) % 16) {
        case 0: return run(worker, REQUEST_FLUSH, 0, 0, NULL, false);
        case 1:
        case 2: memset(wanted[stripe] + start, 0, length); return run(worker, REQUEST_ZERO, offset, length, NULL, next(worker) % 2 == 0);
        case 3:
        case 4:
        case 5:
        case 6:
            if (run(worker, REQUEST_READ, offset, length, bytes, false) < 0) return -1;
            if (memcmp(bytes, wanted[stripe] + start, length) == 0) return 0;
            snprintf(worker->failure, sizeof worker->failure, "bytes at %llu differ", (unsigned long long) offset);
            return -1;
        default:
            memset(wanted[stripe] + start, (int) (next(worker) % 255 + 1), length);
            return run(worker, REQUEST_WRITE, offset, length, wanted[stripe] + start, false);
    }
}

static void *work(void *argument) {
    struct worker *worker = argument;
    for (int i = 0; i < STEPS && worker->failure[0] == '\0'; i++) step(worker);
    return NULL;
}

static void run_workers(struct image *image, uint64_t seed) {
    static struct worker workers[THREADS];
    for (unsigned i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){.image = image, .number = i, .state = seed * THREADS + i};
        CHECK(pthread_create(&workers[i].thread, NULL, work, &workers[i]) == 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        CHECK(pthread_join(workers[i].thread, NULL) == 0);
        if (workers[i].failure[0] != '\0') fprintf(stderr, "worker %u: %s\n", i, workers[i].failure);
        CHECK(workers[i].failure[0] == '\0');
    }
}

static void compare(struct image *image) {
    static uint8_t bytes[STRIPES][STRIPE];
    struct request request;
    request_start(&request, image, REQUEST_READ, 0, SIZE, &bytes[0][0]);
    CHECK(request_run(&request) == 0);
    CHECK(memcmp(bytes, wanted, SIZE) == 0);
}

static void one_round(uint32_t cluster_bits, uint32_t refcount_order, uint64_t seed) {
    struct error error = {.code = 0};
    struct file *file = NULL;
    struct image *image = NULL;
    const struct create_options create = {
        .format = IMAGE_QCOW2, .size = SIZE, .version = 3, .cluster_bits = cluster_bits, .refcount_order = refcount_order};
    struct image_options options = image_options_default();
    options.format = IMAGE_OPEN_QCOW2;
    options.l2_cache_size = 512 * (THREADS + 2);
    options.l2_cache_entry_size = 512;
    options.refcount_cache_size = 512;
    options.overlap_check = OVERLAP_ALL;
    memset(wanted, 0, sizeof wanted);
    CHECK(file_memory_new("threads", &file) == 0);
    CHECK(image_create(file, &create, &error) == 0);
    CHECK(image_open(file, &options, &image, &error) == 0);
    run_workers(image, seed);
    compare(image);
    CHECK(image_close(image, &error) == 0);
    CHECK(image_open(file, &options, &image, &error) == 0);
    compare(image);
    CHECK(image_close(image, &error) == 0);
    file_release(file);
}

int main(void) {
    unit_start();
    const uint64_t seed = unit_seed;
    one_round(9, 4, seed);
    one_round(9, 6, seed + 1);
    one_round(12, 0, seed + 2);
    one_round(16, 4, seed + 3);
    return unit_end("requests");
}
