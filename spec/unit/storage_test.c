/* SPDX-License-Identifier: MIT
 *
 * Storey 1: every file against a plain array or against the memory file; faults, crashes, locks, threads.
 *
 * The files lie in argv[1], else $TMPDIR, else /tmp. Where that filesystem has no O_DIRECT, or there is no qemu-io, the
 * checks that need it say so and are passed over.
 */
#define _GNU_SOURCE 1

#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/memory.h"
#include "storage/file_fault.h"
#include "storage/file_memory.h"
#include "storage/file_null.h"
#include "storage/file_posix.h"
#include "unit.h"

static char path[PATH_MAX];
static bool have_direct;

static struct error error; /* of the main thread; each use clears it first */

static struct error *fresh(void) {
    error_clear(&error);
    return &error;
}

/* For a file with one user: it does `to` from now on. */
static int use_for(struct file *file, enum file_use to) {
    enum file_use from = FILE_USE_WRITE;
    while (from < FILE_USE_NOTHING && file->users[from] == 0) from++;
    return file_change_use(file, from, to, fresh());
}

#define OK(call) CHECK((call) == 0)

static struct file *open_file(unsigned flags) {
    struct file *file = NULL;
    OK(file_posix_open(path, flags, &file, fresh()));
    return file;
}

static struct file *new_file(unsigned flags) {
    unlink(path);
    return open_file(flags | FILE_POSIX_WRITE | FILE_POSIX_CREATE);
}

static struct file *new_memory(void) {
    struct file *file = NULL;
    OK(file_memory_new("memory", &file));
    return file;
}

static uint64_t length_of(struct file *file) {
    uint64_t length = 0;
    OK(file_length(file, &length, fresh()));
    return length;
}

/* ---- wrappers ---- */

static bool says(const char *text) {
    if (strcmp(error.text, text) == 0) return true;
    fprintf(stderr, "it says: %s\n", error.text);
    return false;
}

static void test_sentences(void) {
    struct file *below = new_memory(), *file = NULL;
    uint8_t bytes[4096] = {0};
    OK(file_fault_new(below, false, &file));
    file_fault_set(file, &(struct file_fault_rule){FILE_FAULT_ANY, 1, 0, -ENOSPC, false});
    CHECK(file_write(file, 65536, bytes, 4096, fresh()) == -ENOSPC);
    CHECK(says("write of 4096 bytes at offset 65536 of 'memory': No space left on device"));
    CHECK(file_read(file, 1, bytes, 2, fresh()) == -ENOSPC);
    CHECK(says("read of 2 bytes at offset 1 of 'memory': No space left on device"));
    CHECK(file_truncate(file, 9, fresh()) == -ENOSPC && says("truncation of 'memory' to 9 bytes: No space left on device"));
    CHECK(file_sync(file, fresh()) == -ENOSPC && says("sync of 'memory': No space left on device"));
    CHECK(file_sync(file, &(struct error){.code = -EIO, .text = "first"}) == -ENOSPC);
    file_release(file);
    file_release(below);
}

static void test_bounds(void) {
    struct file *file = new_memory();
    uint8_t byte = 1;
    const struct iovec overflowing[2] = {{&byte, SIZE_MAX}, {&byte, 2}};
    CHECK(file_write(file, INT64_MAX, &byte, 1, fresh()) == -EFBIG);
    CHECK(file_zero(file, UINT64_MAX, 2, 0, fresh()) == -EFBIG);
    CHECK(file_truncate(file, UINT64_MAX, fresh()) == -EFBIG);
    CHECK(file_readv(file, 0, overflowing, 2, fresh()) == -EINVAL);
    OK(file_write(file, 10, &byte, 0, fresh()));
    CHECK(length_of(file) == 0);
    file->read_only = true;
    CHECK(file_write(file, 0, &byte, 1, fresh()) == -EROFS && file_truncate(file, 1, fresh()) == -EROFS);
    CHECK(file_discard(file, 0, 1, fresh()) == -EROFS && use_for(file, FILE_USE_WRITE) == 0);
    file_release(file);
}

static void test_counters(void) {
    struct file *file = new_memory();
    uint8_t bytes[10] = {0};
    OK(file_write(file, 0, bytes, 10, fresh()));
    OK(file_write(file, 5, bytes, 3, fresh()));
    OK(file_read(file, 0, bytes, 7, fresh()));
    OK(file_zero(file, 0, 100, 0, fresh()));
    OK(file_discard(file, 0, 50, fresh()));
    OK(file_allocate(file, 0, 200, fresh()));
    OK(file_truncate(file, 20, fresh()));
    OK(file_sync(file, fresh()));
    file->no_sync = true;
    OK(file_sync(file, fresh()));
    const struct file_stats stats = file_stats_of(file);
    CHECK(stats.writes == 2 && stats.written_bytes == 13 && stats.reads == 1 && stats.read_bytes == 7);
    CHECK(stats.zeroes == 1 && stats.zeroed_bytes == 100 && stats.discards == 1 && stats.discarded_bytes == 50);
    CHECK(stats.allocates == 1 && stats.truncates == 1 && stats.syncs == 1);
    CHECK(file_share(file) == file);
    file_release(file);
    CHECK(length_of(file) == 20);
    file_release(file);
    file_release(NULL);
}

static void test_null(void) {
    struct file *file = NULL;
    uint8_t bytes[100];
    memset(bytes, 1, sizeof bytes);
    OK(file_null_new("null", 1000, &file));
    OK(file_write(file, 950, bytes, 100, fresh()));
    OK(file_read(file, 950, bytes, 100, fresh()));
    CHECK(memcmp(bytes, memory_zeroes(), 100) == 0 && length_of(file) == 1050);
    OK(file_truncate(file, 5, fresh()));
    CHECK(length_of(file) == 5);
    file_release(file);
}

/* ---- two files, the same operations ---- */

enum {
    VECTOR_MAX = 5
};

/* Cuts `bytes` into random entries, some of them empty. */
static int random_vector(uint64_t *state, uint8_t *bytes, uint64_t length, struct iovec *vector) {
    const int count = (int) unit_below(state, VECTOR_MAX);
    for (int i = 0; i < count; i++) {
        const uint64_t step = unit_below(state, length + 1);
        vector[i] = (struct iovec){bytes, step};
        bytes += step;
        length -= step;
    }
    vector[count] = (struct iovec){bytes, length};
    return count + 1;
}

struct pair {
    struct file *one, *other;
    uint64_t size; /* where operations fall */
    uint64_t state;
    uint8_t *mine, *theirs; /* `size` bytes and a page more */
};

/* An offset and a length, sometimes aligned to a sector or a page, sometimes beyond all. */
static void random_range(struct pair *pair, uint64_t *offset, uint64_t *length) {
    static const uint64_t units[] = {1, 1, 512, 4096};
    const uint64_t unit = units[unit_below(&pair->state, 4)], longest = unit_below(&pair->state, 8) ? 9000 : pair->size;
    *offset = round_down_u64(unit_below(&pair->state, pair->size), unit);
    *length = min_u64(round_up_u64(1 + unit_below(&pair->state, longest), unit), pair->size - *offset);
}

static void compare(struct pair *pair, uint64_t offset, uint64_t length) {
    struct iovec vector[VECTOR_MAX];
    uint8_t *into = pair->mine + unit_below(&pair->state, 2) * 512;
    memset(into, 0xee, length);
    const int count = random_vector(&pair->state, into, length, vector);
    OK(file_readv(pair->one, offset, vector, count, fresh()));
    OK(file_read(pair->other, offset, pair->theirs, length, fresh()));
    CHECK(memcmp(into, pair->theirs, length) == 0);
}

static void random_write(struct pair *pair, uint64_t offset, uint64_t length) {
    struct iovec vector[VECTOR_MAX];
    uint8_t *from = pair->mine + unit_below(&pair->state, 2) * 512 + (unit_below(&pair->state, 4) == 0);
    for (uint64_t i = 0; i < length; i++) from[i] = (uint8_t) unit_random(&pair->state);
    if (unit_below(&pair->state, 8) == 0) memset(from, 0, length);
    const int count = random_vector(&pair->state, from, length, vector);
    OK(file_writev(pair->one, offset, vector, count, fresh()));
    OK(file_write(pair->other, offset, from, length, fresh()));
}

/* One random operation on both. Returns true when it was a sync. */
static bool random_step(struct pair *pair) {
    uint64_t offset, length;
    random_range(pair, &offset, &length);
    const uint64_t what = unit_below(&pair->state, 24);
    const unsigned mode = (unsigned) unit_below(&pair->state, 2);
    if (what < 10) {
        random_write(pair, offset, length);
    } else if (what < 16) {
        compare(pair, offset, length);
    } else if (what < 19) {
        OK(file_zero(pair->one, offset, length, mode, fresh()));
        OK(file_zero(pair->other, offset, length, mode, fresh()));
    } else if (what < 20) {
        const int result = file_discard(pair->one, offset, length, fresh());
        CHECK(result == 0 || result == -ENOTSUP);
        if (result == 0) OK(file_discard(pair->other, offset, length, fresh()));
    } else if (what < 21) {
        const int result = file_allocate(pair->one, offset, length, fresh());
        CHECK(result == 0 || result == -ENOTSUP);
        if (result == 0) OK(file_allocate(pair->other, offset, length, fresh()));
    } else if (what < 23) {
        OK(file_truncate(pair->one, offset, fresh()));
        OK(file_truncate(pair->other, offset, fresh()));
    } else {
        OK(file_sync(pair->one, fresh()));
    }
    CHECK(length_of(pair->one) == length_of(pair->other));
    return what == 23;
}

static struct pair pair_new(struct file *one, struct file *other, uint64_t size) {
    struct pair pair = {one, other, size, unit_seed, memory_aligned(size + 4096), memory_aligned(size + 4096)};
    CHECK(pair.mine && pair.theirs);
    return pair;
}

static void pair_end(struct pair *pair) {
    memory_free(pair->mine);
    memory_free(pair->theirs);
}

static void compare_files(struct file *one, struct file *other, uint64_t size) {
    struct pair pair = pair_new(one, other, size);
    CHECK(length_of(one) == length_of(other));
    compare(&pair, 0, size);
    pair_end(&pair);
}

static void drive(struct file *one, struct file *other, uint64_t size, unsigned rounds) {
    struct pair pair = pair_new(one, other, size);
    for (unsigned i = 0; i < rounds; i++) random_step(&pair);
    compare(&pair, 0, size);
    pair_end(&pair);
}

/* ---- the memory file ---- */

/* A file that is a plain array: the model of the model. */
struct flat {
    struct file file;
    uint64_t length;
    uint8_t bytes[300000];
};

static int flat_readv(struct file *file, uint64_t offset, const struct iovec *vector, int count) {
    const struct flat *flat = (const struct flat *) file;
    for (int i = 0; i < count; offset += vector[i++].iov_len) memcpy(vector[i].iov_base, flat->bytes + offset, vector[i].iov_len);
    return 0;
}
static int flat_writev(struct file *file, uint64_t offset, const struct iovec *vector, int count) {
    struct flat *flat = (struct flat *) file;
    for (int i = 0; i < count; offset += vector[i++].iov_len) memcpy(flat->bytes + offset, vector[i].iov_base, vector[i].iov_len);
    flat->length = max_u64(flat->length, offset);
    return 0;
}
static int flat_zero(struct file *file, uint64_t offset, uint64_t length, unsigned mode) {
    struct flat *flat = (struct flat *) file;
    (void) mode;
    memset(flat->bytes + offset, 0, length);
    flat->length = max_u64(flat->length, offset + length);
    return 0;
}
static int flat_discard(struct file *file, uint64_t offset, uint64_t length) {
    memset(((struct flat *) file)->bytes + offset, 0, length);
    return 0;
}
static int flat_allocate(struct file *file, uint64_t offset, uint64_t length) {
    struct flat *flat = (struct flat *) file;
    flat->length = max_u64(flat->length, offset + length);
    return 0;
}
static int flat_truncate(struct file *file, uint64_t length) {
    struct flat *flat = (struct flat *) file;
    memset(flat->bytes + length, 0, sizeof flat->bytes - length);
    flat->length = length;
    return 0;
}
static int flat_length(struct file *file, uint64_t *length) {
    *length = ((struct flat *) file)->length;
    return 0;
}
static void flat_destroy(struct file *file) { memory_free(file); }
static const struct file_ops flat_ops = {
    "flat", flat_readv, flat_writev, flat_zero, flat_discard, flat_allocate, flat_truncate, NULL, flat_length, NULL, flat_destroy,
};

static void test_memory_model(void) {
    struct flat *flat = memory_zeroed(sizeof *flat);
    struct file *file = new_memory();
    OK(file_init(&flat->file, &flat_ops, "flat"));
    drive(file, &flat->file, 300000, 4000);
    file_release(&flat->file);
    file_release(file);
}

static void test_memory_sparse(void) {
    const uint64_t held = memory_held(), far = UINT64_C(1) << 62;
    struct file *file = new_memory();
    const uint64_t empty = memory_held();
    uint64_t number = 7;
    OK(file_truncate(file, far, fresh()));
    OK(file_write(file, far / 2, memory_zeroes(), 1 << 20, fresh()));
    CHECK(memory_held() == empty && length_of(file) == far);
    for (uint64_t at = 1; at < far; at *= 2) OK(file_write(file, at * 3 / 2, &at, sizeof at, fresh()));
    for (uint64_t at = 1 << 20; at < far; at *= 2) {
        OK(file_read(file, at * 3 / 2, &number, sizeof number, fresh()));
        CHECK(number == at);
    }
    OK(file_zero(file, 1 << 20, far, 0, fresh()));
    OK(file_read(file, far / 4 * 3, &number, sizeof number, fresh()));
    CHECK(number == 0 && length_of(file) == far + (1 << 20));
    for (uint64_t i = 0; i < 1000; i++) OK(file_write(file, i << 16, &far, sizeof far, fresh()));
    CHECK(memory_held() == empty + 1000);
    OK(file_truncate(file, 1, fresh()));
    CHECK(memory_held() == empty + 1);
    file_release(file);
    CHECK(memory_held() == held);
}

/* Fails each allocation of a body in turn until it passes; returns how many there were. */
static uint64_t until_clean(int (*body)(void)) {
    for (uint64_t nth = 1;; nth++) {
        const uint64_t held = memory_held();
        memory_fail_at(nth);
        const int result = body();
        memory_fail_at(0);
        CHECK(memory_held() == held && nth < 1000);
        if (result == 0) return nth - 1;
        CHECK(result == -ENOMEM);
    }
}

static int memory_body(void) {
    struct file *file = NULL;
    int result = file_memory_new("memory", &file);
    for (uint64_t i = 0; i < 20 && result == 0; i++) result = file_write(file, i << 16, "xy", 2, fresh());
    if (file) {
        uint8_t bytes[4];
        CHECK(file_read(file, length_of(file), bytes, 4, fresh()) == 0 && load_be32(bytes) == 0);
        file_release(file);
    }
    return result;
}

static int null_body(void) {
    struct file *file = NULL;
    const int result = file_null_new("null", 1, &file);
    file_release(file);
    return result;
}

static int fault_body(void) {
    struct file *below = NULL, *file = NULL;
    int result = file_memory_new("memory", &below);
    if (result == 0) result = file_write(below, 0, "abc", 3, fresh());
    if (result == 0) result = file_fault_new(below, true, &file);
    for (uint64_t i = 0; i < 40 && result == 0; i++) result = file_write(file, i * 5000, "hello", 5, fresh());
    if (result == 0) result = file_truncate(file, 50000, fresh());
    if (result == 0) result = file_sync(file, fresh());
    file_release(file);
    file_release(below);
    return result;
}

static int posix_body(void) {
    struct file *file = NULL;
    const unsigned flags = FILE_POSIX_WRITE | FILE_POSIX_CREATE | (have_direct ? FILE_POSIX_DIRECT : 0);
    int result = file_posix_open(path, flags, &file, fresh());
    if (result == 0) result = file_write(file, 5, "hello", 5, fresh());
    if (result == 0) result = file_read(file, 5, (char[5]){0}, 5, fresh());
    file_release(file);
    return result;
}

static void test_injection(void) {
    CHECK(until_clean(memory_body) >= 20);
    CHECK(until_clean(null_body) == 2);
    CHECK(until_clean(fault_body) >= 40);
    CHECK(until_clean(posix_body) >= 2);
}

/* ---- the real file ---- */

static void test_posix_model(unsigned flags, unsigned rounds) {
    struct file *file = new_file(flags), *memory = new_memory();
    drive(file, memory, 300000, rounds);
    drive(file, memory, 3 << 20, rounds / 10);
    file_release(file);
    file_release(memory);
}

static void test_posix_many_entries(unsigned flags) {
    enum {
        COUNT = 2500
    };
    static struct iovec vector[COUNT];
    struct file *file = new_file(flags);
    uint8_t *bytes = memory_aligned(COUNT * 512), *again = memory_aligned(COUNT * 512);
    uint64_t state = unit_seed;
    for (size_t i = 0; i < (size_t) COUNT * 512; i++) bytes[i] = (uint8_t) unit_random(&state);
    for (size_t i = 0; i < COUNT; i++) vector[i] = (struct iovec){bytes + i * 512, 512};
    vector[1].iov_len = 0;
    vector[0].iov_len = 1024;
    OK(file_writev(file, 4096, vector, COUNT, fresh()));
    CHECK(length_of(file) == 4096 + COUNT * 512);
    for (size_t i = 0; i < COUNT; i++) vector[i] = (struct iovec){again + i * 512, 512};
    OK(file_readv(file, 4096, vector, COUNT, fresh()));
    CHECK(memcmp(bytes, again, COUNT * 512) == 0);
    memory_free(bytes);
    memory_free(again);
    file_release(file);
}

static void refuse(const char *name, unsigned flags, int code, const char *part) {
    struct file *file = NULL;
    CHECK(file_posix_open(name, flags, &file, fresh()) == code);
    CHECK(strstr(error.text, name) && strstr(error.text, part) && file == NULL);
}

static void test_posix_kinds(const char *directory) {
    unlink(path);
    refuse(path, FILE_POSIX_WRITE, -ENOENT, "No such file");
    refuse(directory, 0, -EISDIR, "a directory");
    refuse("/dev/null", FILE_POSIX_WRITE, -EINVAL, "a character device");
    OK(mkfifo(path, 0600));
    refuse(path, 0, -EINVAL, "a FIFO");
    OK(unlink(path));
    if (access("/proc/self/status", R_OK) == 0) refuse("/proc/self/status", FILE_POSIX_DIRECT, -EINVAL, "no direct I/O");
}

static void test_posix_read_only(void) {
    uint8_t byte = 3;
    struct file *file = new_file(0);
    OK(file_write(file, 0, &byte, 1, fresh()));
    file_release(file);
    file = open_file(0);
    CHECK(length_of(file) == 1 && file->read_only && file_write(file, 0, &byte, 1, fresh()) == -EROFS);
    OK(file_read(file, 0, &byte, 1, fresh()));
    CHECK(byte == 3);
    file_release(file);
    file = open_file(FILE_POSIX_WRITE | FILE_POSIX_CREATE);
    CHECK(length_of(file) == 1);
    file_release(file);
}

static uint64_t blocks_of(void) {
    struct stat status;
    OK(stat(path, &status));
    return (uint64_t) status.st_blocks;
}

/* Space: zeroes keep it or give it back, allocate takes it, discard and growing by zeroes do not. */
static void test_posix_space(unsigned flags) {
    const uint64_t size = 1 << 20;
    struct file *file = new_file(flags);
    if (file_allocate(file, 0, size, fresh()) == -ENOTSUP || file_discard(file, 0, size, fresh()) == -ENOTSUP) {
        printf("storage: no fallocate here; space is not checked\n");
        file_release(file);
        return;
    }
    CHECK(length_of(file) == size && blocks_of() == 0);
    OK(file_zero(file, 0, size, FILE_ZERO_WRITE, fresh()));
    CHECK(blocks_of() >= size / 512);
    OK(file_zero(file, 0, size, FILE_ZERO_UNMAP | FILE_ZERO_NO_FALLBACK, fresh()));
    CHECK(blocks_of() == 0 && length_of(file) == size);
    OK(file_zero(file, 2 * size, size, FILE_ZERO_UNMAP, fresh()));
    CHECK(blocks_of() == 0 && length_of(file) == 3 * size);
    OK(file_allocate(file, 0, 4 * size, fresh()));
    CHECK(blocks_of() >= 4 * size / 512 && length_of(file) == 4 * size);
    OK(file_discard(file, 0, 5 * size, fresh()));
    CHECK(blocks_of() == 0 && length_of(file) == 4 * size);
    file_release(file);
}

static void test_direct_tail(void) {
    struct file *file = new_file(FILE_POSIX_DIRECT);
    uint8_t bytes[10000];
    memset(bytes, 5, sizeof bytes);
    CHECK(file->alignment == 512 || file->alignment == 4096);
    OK(file_write(file, 100, bytes, 600, fresh()));
    CHECK(length_of(file) == 700);
    OK(file_write(file, 100, bytes, 50, fresh()));
    CHECK(length_of(file) == 700);
    OK(file_write(file, 5001, bytes, 1, fresh()));
    CHECK(length_of(file) == 5002);
    OK(file_read(file, 0, bytes, sizeof bytes, fresh()));
    for (unsigned i = 0; i < sizeof bytes; i++) CHECK(bytes[i] == ((i >= 100 && i < 700) || i == 5001 ? 5 : 0));
    file_release(file);
}

/* ---- threads ---- */

enum {
    THREADS = 4,
    PIECES = 200
};

struct neighbour {
    struct file *file;
    unsigned number;
    uint64_t size; /* of each piece; piece i belongs to thread i % THREADS */
};

static void *write_pieces(void *argument) {
    const struct neighbour *mine = argument;
    struct error own = {0};
    uint8_t bytes[1024] __attribute__((aligned(512)));
    for (unsigned i = 0; i < PIECES; i++) {
        const uint64_t offset = (i * THREADS + mine->number) * mine->size;
        memset(bytes, (int) (1 + (i + mine->number) % 250), sizeof bytes);
        if (i % 16 == 15) OK(file_zero(mine->file, offset, mine->size, i % 32 == 31 ? FILE_ZERO_UNMAP : 0, &own));
        OK(file_write(mine->file, offset, bytes, mine->size, &own));
        OK(file_read(mine->file, offset, bytes, mine->size, &own));
        for (uint64_t at = 0; at < mine->size; at++) CHECK(bytes[at] == 1 + (i + mine->number) % 250);
    }
    return NULL;
}

/* Pieces that share sectors, written at once by all threads while the file grows: none loses a byte. */
static void test_neighbours(struct file *file, uint64_t size) {
    pthread_t threads[THREADS];
    struct neighbour neighbours[THREADS];
    uint8_t bytes[1024];
    for (unsigned i = 0; i < THREADS; i++) {
        neighbours[i] = (struct neighbour){file, i, size};
        OK(pthread_create(&threads[i], NULL, write_pieces, &neighbours[i]));
    }
    for (unsigned i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    CHECK(length_of(file) == size * THREADS * PIECES);
    for (unsigned i = 0; i < THREADS * PIECES; i++) {
        OK(file_read(file, i * size, bytes, size, fresh()));
        for (uint64_t at = 0; at < size; at++) CHECK(bytes[at] == 1 + (i / THREADS + i % THREADS) % 250);
    }
    file_release(file);
}

static void test_threads(void) {
    struct file *below = new_memory(), *fault = NULL;
    test_neighbours(new_memory(), 100);
    OK(file_fault_new(below, true, &fault));
    test_neighbours(fault, 512);
    file_release(below);
    static const uint64_t sizes[] = {100, 512, 1000};
    for (unsigned i = 0; i < 3; i++) {
        test_neighbours(new_file(0), sizes[i]);
        if (have_direct) test_neighbours(new_file(FILE_POSIX_DIRECT), sizes[i]);
    }
}

/* ---- faults ---- */

static int operate(struct file *file, unsigned kind) {
    uint8_t bytes[1000] = {1};
    switch (kind) {
        case FILE_FAULT_READ: return file_read(file, 0, bytes, 1000, fresh());
        case FILE_FAULT_WRITE: return file_write(file, 0, bytes, 1000, fresh());
        case FILE_FAULT_ZERO: return file_zero(file, 0, 1000, 0, fresh());
        case FILE_FAULT_DISCARD: return file_discard(file, 0, 1000, fresh());
        case FILE_FAULT_ALLOCATE: return file_allocate(file, 0, 1000, fresh());
        case FILE_FAULT_TRUNCATE: return file_truncate(file, 1000, fresh());
        default: return file_sync(file, fresh());
    }
}

/* The nth of a kind fails, `times` times; the other kinds are neither counted nor hit. */
static void test_fault_kind(struct file *file, unsigned kind, uint64_t nth, uint64_t times) {
    uint64_t seen, failed;
    file_fault_set(file, &(struct file_fault_rule){kind, nth, times, -EIO, false});
    for (uint64_t i = 1; i <= 6; i++) {
        const bool hit = i >= nth && (times == 0 || i < nth + times);
        CHECK(operate(file, kind) == (hit ? -EIO : 0));
        OK(operate(file, kind == FILE_FAULT_SYNC ? FILE_FAULT_READ : FILE_FAULT_SYNC));
    }
    file_fault_counts(file, &seen, &failed);
    CHECK(seen == 6 && failed == (times == 0 ? 7 - nth : min_u64(times, 7 - nth)));
}

static void test_faults(bool crashes) {
    struct file *below = new_memory(), *file = NULL;
    uint64_t seen, failed;
    OK(file_fault_new(below, crashes, &file));
    for (unsigned kind = 1; kind <= FILE_FAULT_SYNC; kind *= 2)
        for (uint64_t nth = 1; nth <= 4; nth++)
            for (uint64_t times = 0; times <= 2; times++) test_fault_kind(file, kind, nth, times);
    file_fault_set(file, &(struct file_fault_rule){FILE_FAULT_READ | FILE_FAULT_SYNC, 3, 1, -ENOSPC, false});
    OK(operate(file, FILE_FAULT_READ));
    OK(operate(file, FILE_FAULT_SYNC));
    CHECK(operate(file, FILE_FAULT_READ) == -ENOSPC);
    file_fault_set(file, NULL);
    OK(operate(file, FILE_FAULT_READ));
    file_fault_counts(file, &seen, &failed);
    CHECK(seen == 0 && failed == 0);
    file_release(file);
    file_release(below);
}

static void test_partial(bool crashes) {
    struct file *below = new_memory(), *file = NULL, *target = new_memory();
    uint8_t bytes[1000];
    memset(bytes, 9, sizeof bytes);
    OK(file_fault_new(below, crashes, &file));
    file_fault_set(file, &(struct file_fault_rule){FILE_FAULT_WRITE, 2, 1, -EIO, true});
    OK(file_write(file, 0, bytes, 100, fresh()));
    CHECK(file_writev(file, 200, (struct iovec[]){{bytes, 300}, {bytes, 700}}, 2, fresh()) == -EIO);
    CHECK(length_of(file) == 700);
    OK(file_read(file, 0, bytes, 1000, fresh()));
    for (unsigned i = 0; i < 1000; i++) CHECK(bytes[i] == (i < 100 || (i >= 200 && i < 700) ? 9 : 0));
    if (crashes) {
        OK(file_fault_crash(file, target, 1, 100, fresh()));
        compare_files(target, below, 1000);
    } else {
        CHECK(file_fault_crash(file, target, 1, 100, fresh()) == -EINVAL);
    }
    file_release(target);
    file_release(file);
    file_release(below);
}

static void copy_into(struct file *from, struct file *to, uint64_t size) {
    uint8_t *bytes = memory_aligned(size);
    OK(file_read(from, 0, bytes, size, fresh()));
    OK(file_truncate(to, 0, fresh()));
    OK(file_write(to, 0, bytes, size, fresh()));
    OK(file_truncate(to, length_of(from), fresh()));
    memory_free(bytes);
}

/* Keep nothing = the state at the last sync; keep all = the state now; the same seed = the same crash. */
static void test_crash_ends(struct file *below) {
    enum {
        SIZE = 100000
    };
    struct file *file = NULL, *mirror = new_memory(), *synced = new_memory(), *target = new_memory(), *again = new_memory();
    OK(file_write(below, 1000, "before", 6, fresh()));
    OK(file_write(mirror, 1000, "before", 6, fresh()));
    OK(file_fault_new(below, true, &file));
    copy_into(mirror, synced, SIZE);
    struct pair pair = pair_new(file, mirror, SIZE);
    for (uint64_t round = 0; round < 600; round++) {
        if (random_step(&pair)) copy_into(mirror, synced, SIZE);
        if (round % 20 != 0) continue;
        OK(file_fault_crash(file, target, round, 0, fresh()));
        compare_files(target, synced, SIZE);
        OK(file_fault_crash(file, target, round, 100, fresh()));
        compare_files(target, below, SIZE);
        OK(file_fault_crash(file, target, round, 50, fresh()));
        OK(file_fault_crash(file, again, round, 50, fresh()));
        compare_files(target, again, SIZE);
    }
    pair_end(&pair);
    file_release(file), file_release(mirror), file_release(synced), file_release(target), file_release(again);
    file_release(below);
}

/* Each sector of an unsynced write is all old or all new, about half of them new. */
static void test_crash_sectors(void) {
    enum {
        SECTORS = 1000
    };
    struct file *below = new_memory(), *file = NULL, *target = new_memory();
    uint8_t *bytes = memory_aligned(SECTORS * 512 + 512);
    unsigned kept = 0;
    memset(bytes, 1, SECTORS * 512);
    OK(file_write(below, 0, bytes, SECTORS * 512, fresh()));
    OK(file_fault_new(below, true, &file));
    memset(bytes, 2, SECTORS * 512);
    OK(file_write(file, 0, bytes, SECTORS * 512, fresh()));
    file_fault_set(file, &(struct file_fault_rule){FILE_FAULT_SYNC, 1, 1, -EIO, false});
    CHECK(file_sync(file, fresh()) == -EIO);
    OK(file_fault_crash(file, target, unit_seed, 50, fresh()));
    OK(file_read(target, 0, bytes, SECTORS * 512, fresh()));
    for (unsigned i = 0; i < SECTORS; i++) {
        CHECK((bytes[i * 512] == 1 || bytes[i * 512] == 2) && memcmp(bytes + i * 512, bytes + i * 512 + 1, 511) == 0);
        kept += bytes[i * 512] == 2;
    }
    CHECK(kept > 400 && kept < 600);
    OK(file_sync(file, fresh()));
    OK(file_fault_crash(file, target, unit_seed, 0, fresh()));
    compare_files(target, below, SECTORS * 512);
    memory_free(bytes);
    file_release(file), file_release(below), file_release(target);
}

/* A write that finds no memory below is logged as what it left: keep all = the file below, still. */
static void test_crash_after_failure(void) {
    struct file *below = new_memory(), *file = NULL, *target = new_memory();
    const uint64_t size = 5 << 16;
    uint8_t *bytes = memory_aligned(size);
    OK(file_fault_new(below, true, &file));
    memset(bytes, 4, size);
    OK(file_write(file, 0, bytes, 10, fresh()));
    memory_fail_at(4);
    CHECK(file_write(file, 100, bytes, size, fresh()) == -ENOMEM);
    memory_fail_at(0);
    OK(file_fault_crash(file, target, 0, 100, fresh()));
    CHECK(length_of(below) > 10);
    compare_files(target, below, size);
    OK(file_sync(file, fresh()));
    OK(file_fault_crash(file, target, 0, 0, fresh()));
    compare_files(target, below, size);
    memory_free(bytes);
    file_release(file), file_release(below), file_release(target);
}

/* ---- locks ---- */

static void test_lock_pair(enum file_use one, enum file_use two, const char *permission) {
    struct file *first = open_file(FILE_POSIX_WRITE), *second = open_file(two == FILE_USE_WRITE ? FILE_POSIX_WRITE : 0);
    OK(use_for(first, one));
    CHECK(use_for(second, two) == (permission ? -EAGAIN : 0));
    if (permission) CHECK(strstr(error.text, permission) && strstr(error.text, path));
    if (permission) CHECK(strstr(error.text, "Is another process using the image '"));
    file_release(first);
    OK(use_for(second, two)); /* the first is gone */
    first = open_file(FILE_POSIX_WRITE);
    CHECK((use_for(first, one) == 0) == (permission == NULL));
    file_release(first);
    file_release(second);
}

static void test_locks(void) {
    file_release(new_file(0));
    test_lock_pair(FILE_USE_WRITE, FILE_USE_WRITE, "failed to get \"write\" lock");
    test_lock_pair(FILE_USE_WRITE, FILE_USE_READ, "failed to get shared \"write\" lock");
    test_lock_pair(FILE_USE_READ, FILE_USE_WRITE, "failed to get \"write\" lock");
    test_lock_pair(FILE_USE_READ, FILE_USE_READ, NULL);
    test_lock_pair(FILE_USE_WRITE, FILE_USE_READ_SHARED, NULL);
    test_lock_pair(FILE_USE_READ_SHARED, FILE_USE_WRITE, NULL);
    test_lock_pair(FILE_USE_NOTHING, FILE_USE_WRITE, NULL);
    test_lock_pair(FILE_USE_WRITE, FILE_USE_NOTHING, NULL);
}

/* The held bytes, as another open file sees them: bit 0–3 for 100–103, bit 4–7 for 200–203. */
static unsigned held_bytes(void) {
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    unsigned held = 0;
    for (unsigned bit = 0; bit < 8; bit++) {
        struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = bit < 4 ? 100 + bit : 196 + bit, .l_len = 1};
        CHECK(fcntl(fd, F_OFD_GETLK, &lock) == 0);
        CHECK(lock.l_type == F_UNLCK || lock.l_type == F_RDLCK);
        if (lock.l_type != F_UNLCK) held |= 1u << bit;
    }
    close(fd);
    return held;
}

static void test_lock_bytes(void) {
    struct file *first = open_file(FILE_POSIX_WRITE), *second = open_file(FILE_POSIX_WRITE);
    OK(use_for(first, FILE_USE_WRITE));
    CHECK(held_bytes() == 0xab);
    OK(use_for(first, FILE_USE_READ));
    CHECK(held_bytes() == 0xa1);
    OK(use_for(second, FILE_USE_READ_SHARED));
    CHECK(use_for(second, FILE_USE_WRITE) == -EAGAIN); /* and keeps only what it had */
    CHECK(held_bytes() == 0xa1);
    OK(use_for(first, FILE_USE_NOTHING));
    CHECK(held_bytes() == 0x01);
    OK(use_for(second, FILE_USE_WRITE));
    CHECK(use_for(first, FILE_USE_READ) == -EAGAIN && held_bytes() == 0xab);
    OK(use_for(second, FILE_USE_NOTHING));
    CHECK(held_bytes() == 0);
    file_release(first);
    file_release(second);
}

/* Runs a command of the reference's with the image's path behind it. */
static bool foreign(const char *start, const char *end) {
    char command[PATH_MAX + 100];
    snprintf(command, sizeof command, "%s '%s' %s >/dev/null 2>&1", start, path, end);
    return system(command) == 0;
}

static bool qemu_io(const char *start) { return foreign(start, "-c quit"); }

/* While we hold ours: what the reference may still do. */
static void test_ours_first(struct file *file) {
    OK(use_for(file, FILE_USE_WRITE));
    CHECK(!qemu_io("qemu-io -f qcow2 -r") && !qemu_io("qemu-io -f qcow2") && qemu_io("qemu-io -f qcow2 -r -U"));
    CHECK(!qemu_io("qemu-io -f raw") && !foreign("qemu-img check", "") && foreign("qemu-img check -U", ""));
    OK(use_for(file, FILE_USE_READ));
    CHECK(qemu_io("qemu-io -f qcow2 -r") && !qemu_io("qemu-io -f qcow2") && !qemu_io("qemu-io -f raw"));
    OK(use_for(file, FILE_USE_READ_SHARED));
    CHECK(qemu_io("qemu-io -f qcow2 -r") && qemu_io("qemu-io -f qcow2"));
    OK(use_for(file, FILE_USE_NOTHING));
}

/* While the reference holds `held`: what we may still do. It runs until its input ends. */
static void test_theirs_first(struct file *file, const char *options, unsigned held, int write, int read) {
    char command[PATH_MAX + 100];
    snprintf(command, sizeof command, "qemu-io -f qcow2 %s '%s' >/dev/null 2>&1", options, path);
    FILE *other = popen(command, "w");
    CHECK(other != NULL);
    for (unsigned i = 0; i < 500 && held_bytes() != held; i++) usleep(20000);
    CHECK(held_bytes() == held);
    CHECK(use_for(file, FILE_USE_WRITE) == write);
    OK(use_for(file, FILE_USE_NOTHING));
    CHECK(use_for(file, FILE_USE_READ) == read);
    OK(use_for(file, FILE_USE_READ_SHARED));
    CHECK(pclose(other) == 0);
    OK(use_for(file, FILE_USE_NOTHING));
}

static void test_locks_abroad(void) {
    if (!foreign("qemu-img create -f qcow2", "1M") || !qemu_io("qemu-io -f qcow2")) {
        printf("storage: no qemu-img and qemu-io here; their locks are not checked\n");
        return;
    }
    struct file *file = open_file(FILE_POSIX_WRITE);
    test_ours_first(file);
    test_theirs_first(file, "", 0xab, -EAGAIN, -EAGAIN);
    test_theirs_first(file, "-r", 0xa1, -EAGAIN, 0);
    test_theirs_first(file, "-r -U", 0x01, 0, 0);
    file_release(file);
}

static void find_path(const char *directory) {
    struct file *file = NULL;
    snprintf(path, sizeof path, "%s/qcow2-storage-test-%d", directory, (int) getpid());
    have_direct = file_posix_open(path, FILE_POSIX_WRITE | FILE_POSIX_CREATE | FILE_POSIX_DIRECT, &file, fresh()) == 0;
    if (!have_direct) printf("storage: %s\n", error.text);
    file_release(file);
}

int main(int count, char **arguments) {
    const char *directory = count > 1 ? arguments[1] : getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp";
    const uint64_t held = memory_held();
    unit_start();
    find_path(directory);
    test_sentences();
    test_bounds();
    test_counters();
    test_null();
    test_memory_model();
    test_memory_sparse();
    test_injection();
    test_posix_kinds(directory);
    test_posix_read_only();
    for (unsigned direct = 0; direct <= have_direct; direct++) {
        const unsigned flags = direct ? FILE_POSIX_DIRECT : 0;
        test_posix_model(flags, 2000);
        test_posix_many_entries(flags);
        test_posix_space(flags);
        test_crash_ends(new_file(flags));
    }
    if (have_direct) test_direct_tail();
    test_threads();
    test_faults(false);
    test_faults(true);
    test_partial(false);
    test_partial(true);
    test_crash_ends(new_memory());
    test_crash_sectors();
    test_crash_after_failure();
    test_locks();
    test_lock_bytes();
    test_locks_abroad();
    CHECK(memory_held() == held);
    unlink(path);
    return unit_end("storage");
}
