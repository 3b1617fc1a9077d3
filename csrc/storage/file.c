/* SPDX-License-Identifier: MIT
 *
 * What all files have in common: owners, bounds, counters and sentences.
 *
 * Each wrapper does the same four steps: bounds (a range ends at INT64_MAX or before it; changes need a writable file), count,
 * call the implementation, explain. So implementations see only ranges that are sane and not empty, and never
 * write a sentence themselves (lock excepted). Counters count what went down, failed or not.
 * Called by everyone who does I/O; never retries, never aligns, and holds no lock
 * during I/O (only one of its own while the use of a file changes).
 */
#include "storage/file.h"

#include <string.h>

#include "base/bytes.h"
#include "base/memory.h"
#include "storage/vector.h"

#define COUNT(file, counter, number) atomic_fetch_add_explicit(&(file)->counters.counter, (uint64_t) (number), memory_order_relaxed)

int file_init(struct file *file, const struct file_ops *ops, const char *name) {
    file->name = memory_text(name, strlen(name));
    if (!file->name) return -ENOMEM;
    file->ops = ops;
    atomic_init(&file->owners, 1);
    pthread_mutex_init(&file->use_lock, NULL);
    file->alignment = 1;
    file->grows_as_zeroes = true;
    return 0;
}

struct file *file_share(struct file *file) {
    atomic_fetch_add_explicit(&file->owners, 1, memory_order_relaxed);
    return file;
}

void file_release(struct file *file) {
    if (!file || atomic_fetch_sub_explicit(&file->owners, 1, memory_order_acq_rel) > 1) return;
    char *name = file->name;
    pthread_mutex_destroy(&file->use_lock);
    file->ops->destroy(file);
    memory_free(name);
}

/* ---- the steps ---- */

int file_check(const struct file *file, enum file_operation operation, uint64_t offset, uint64_t length) {
    if (operation == FILE_SYNC) return 0;
    if (operation != FILE_READ && file->read_only) return -EROFS;
    return within_u64(offset, length, INT64_MAX) ? 0 : -EFBIG;
}

void file_count(struct file *file, enum file_operation operation, uint64_t length) {
    switch (operation) {
        case FILE_READ: COUNT(file, reads, 1), COUNT(file, read_bytes, length); break;
        case FILE_WRITE: COUNT(file, writes, 1), COUNT(file, written_bytes, length); break;
        case FILE_ZERO: COUNT(file, zeroes, 1), COUNT(file, zeroed_bytes, length); break;
        case FILE_DISCARD: COUNT(file, discards, 1), COUNT(file, discarded_bytes, length); break;
        case FILE_ALLOCATE: COUNT(file, allocates, 1); break;
        case FILE_TRUNCATE: COUNT(file, truncates, 1); break;
        case FILE_SYNC: COUNT(file, syncs, 1); break;
    }
}

int file_explain(const struct file *file, enum file_operation operation, uint64_t offset, uint64_t length, int code, struct error *error) {
    static const char *const names[] = {
        [FILE_READ] = "read", [FILE_WRITE] = "write", [FILE_ZERO] = "zeroing", [FILE_DISCARD] = "discard", [FILE_ALLOCATE] = "allocation",
    };
    if (code == 0) return 0;
    if (operation == FILE_SYNC) return error_set(error, code, "sync of '%s': %s", file->name, strerror(-code));
    if (operation == FILE_TRUNCATE)
        return error_set(error, code, "truncation of '%s' to %llu bytes: %s", file->name, (unsigned long long) length, strerror(-code));
    return error_set(error, code, "%s of %llu bytes at offset %llu of '%s': %s", names[operation], (unsigned long long) length,
                     (unsigned long long) offset, file->name, strerror(-code));
}

/* Checks and, when there is anything to do, counts. Returns 0 or a negative errno. */
static int begin(struct file *file, enum file_operation operation, uint64_t offset, uint64_t length) {
    const int result = file_check(file, operation, offset, length);
    if (result == 0 && length > 0) file_count(file, operation, length);
    return result;
}

/* ---- the operations ---- */

int file_readv(struct file *file, uint64_t offset, const struct iovec *vector, int count, struct error *error) {
    uint64_t length;
    int result = vector_total(vector, count, &length) ? begin(file, FILE_READ, offset, length) : -EINVAL;
    if (result == 0 && length > 0) result = file->ops->readv(file, offset, vector, count);
    return file_explain(file, FILE_READ, offset, length, result, error);
}

int file_writev(struct file *file, uint64_t offset, const struct iovec *vector, int count, struct error *error) {
    uint64_t length;
    int result = vector_total(vector, count, &length) ? begin(file, FILE_WRITE, offset, length) : -EINVAL;
    if (result == 0 && length > 0) result = file->ops->writev(file, offset, vector, count);
    return file_explain(file, FILE_WRITE, offset, length, result, error);
}

int file_read(struct file *file, uint64_t offset, void *bytes, uint64_t length, struct error *error) {
    return file_readv(file, offset, &(struct iovec){bytes, length}, 1, error);
}

int file_write(struct file *file, uint64_t offset, const void *bytes, uint64_t length, struct error *error) {
    union {
        const void *given;
        void *base;
    } view = {.given = bytes}; /* iovec has no const; writev never stores through it */
    return file_writev(file, offset, &(struct iovec){view.base, length}, 1, error);
}

int file_zero(struct file *file, uint64_t offset, uint64_t length, unsigned mode, struct error *error) {
    int result = begin(file, FILE_ZERO, offset, length);
    if (result == 0 && length > 0) result = file->ops->zero(file, offset, length, mode);
    return file_explain(file, FILE_ZERO, offset, length, result, error);
}

int file_discard(struct file *file, uint64_t offset, uint64_t length, struct error *error) {
    int result = begin(file, FILE_DISCARD, offset, length);
    if (result == 0 && length > 0) result = file->ops->discard(file, offset, length);
    return file_explain(file, FILE_DISCARD, offset, length, result, error);
}

int file_allocate(struct file *file, uint64_t offset, uint64_t length, struct error *error) {
    int result = begin(file, FILE_ALLOCATE, offset, length);
    if (result == 0 && length > 0) result = file->ops->allocate(file, offset, length);
    return file_explain(file, FILE_ALLOCATE, offset, length, result, error);
}

int file_truncate(struct file *file, uint64_t length, struct error *error) {
    int result = file_check(file, FILE_TRUNCATE, 0, length);
    if (result == 0) {
        file_count(file, FILE_TRUNCATE, length);
        result = file->ops->truncate(file, length);
    }
    return file_explain(file, FILE_TRUNCATE, 0, length, result, error);
}

int file_sync(struct file *file, struct error *error) {
    if (file->no_sync) return 0;
    file_count(file, FILE_SYNC, 0);
    return file_explain(file, FILE_SYNC, 0, 0, file->ops->sync(file), error);
}

int file_length(struct file *file, uint64_t *length, struct error *error) {
    const int result = file->ops->length(file, length);
    return result == 0 ? 0 : error_set(error, result, "length of '%s': %s", file->name, strerror(-result));
}

/* ---- uses ---- */

static enum file_use strongest_use(const struct file *file) {
    enum file_use use = FILE_USE_WRITE;
    while (use < FILE_USE_NOTHING && file->users[use] == 0) use++;
    return use;
}

static int change_use(struct file *file, enum file_use from, enum file_use to, struct error *error) {
    const enum file_use before = strongest_use(file);
    if (to == FILE_USE_WRITE && from != to && file->users[to] > 0) return error_set(error, -EBUSY, "it is open for writing already");
    if (from != FILE_USE_NOTHING) file->users[from]--;
    file->users[to]++;
    const enum file_use after = strongest_use(file);
    const int result = before != after && file->ops->lock ? file->ops->lock(file, before, after, error) : 0;
    if (result < 0) {
        file->users[to]--;
        file->users[from]++;
    }
    return result == 0 ? 0 : error_set(error, result, "lock of '%s': %s", file->name, strerror(-result));
}

int file_change_use(struct file *file, enum file_use from, enum file_use to, struct error *error) {
    pthread_mutex_lock(&file->use_lock);
    const int result = change_use(file, from, to, error);
    pthread_mutex_unlock(&file->use_lock);
    return result;
}

struct file_stats file_stats_of(const struct file *file) {
#define LOAD(counter) .counter = atomic_load_explicit(&file->counters.counter, memory_order_relaxed)
    return (struct file_stats){
        LOAD(reads),    LOAD(read_bytes),      LOAD(writes),    LOAD(written_bytes), LOAD(zeroes), LOAD(zeroed_bytes),
        LOAD(discards), LOAD(discarded_bytes), LOAD(allocates), LOAD(truncates),     LOAD(syncs),
    };
#undef LOAD
}
