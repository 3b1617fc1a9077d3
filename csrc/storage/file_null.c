/* SPDX-License-Identifier: MIT
 *
 * A file that forgets everything but its length.
 *
 * It measures what the engine itself costs, so it does as little as the contract of file.h allows: no lock, no memory
 * beyond its struct. Invariant: every byte reads as zero. It is of no use below an image that has to keep its
 * metadata; put it in the place of an external data file, or read a null image.
 */
#include "storage/file_null.h"

#include "base/memory.h"
#include "storage/vector.h"

struct file_null {
    struct file file;
    _Atomic uint64_t length;
};

static void grow(struct file *file, uint64_t end) {
    struct file_null *null = (struct file_null *) file;
    uint64_t length = atomic_load_explicit(&null->length, memory_order_relaxed);
    while (length < end && !atomic_compare_exchange_weak(&null->length, &length, end)) {
    }
}

static int null_readv(struct file *file, uint64_t offset, const struct iovec *vector, int count) {
    (void) file, (void) offset;
    struct vector_cursor cursor = vector_start(vector, count);
    vector_clear(&cursor);
    return 0;
}

static int null_writev(struct file *file, uint64_t offset, const struct iovec *vector, int count) {
    uint64_t length;
    if (!vector_total(vector, count, &length)) return -EINVAL;
    grow(file, offset + length);
    return 0;
}

static int null_zero(struct file *file, uint64_t offset, uint64_t length, unsigned mode) {
    (void) mode;
    grow(file, offset + length);
    return 0;
}

static int null_discard(struct file *file, uint64_t offset, uint64_t length) {
    (void) file, (void) offset, (void) length;
    return 0;
}

static int null_allocate(struct file *file, uint64_t offset, uint64_t length) {
    grow(file, offset + length);
    return 0;
}

static int null_truncate(struct file *file, uint64_t length) {
    atomic_store(&((struct file_null *) file)->length, length);
    return 0;
}

static int null_sync(struct file *file) {
    (void) file;
    return 0;
}

static int null_length(struct file *file, uint64_t *length) {
    *length = atomic_load(&((struct file_null *) file)->length);
    return 0;
}

static void null_destroy(struct file *file) { memory_free(file); }

static const struct file_ops null_ops = {
    .kind = "null",
    .readv = null_readv,
    .writev = null_writev,
    .zero = null_zero,
    .discard = null_discard,
    .allocate = null_allocate,
    .truncate = null_truncate,
    .sync = null_sync,
    .length = null_length,
    .destroy = null_destroy,
};

int file_null_new(const char *name, uint64_t length, struct file **file) {
    struct file_null *null = memory_zeroed(sizeof *null);
    if (!null || file_init(&null->file, &null_ops, name) < 0) {
        memory_free(null);
        return -ENOMEM;
    }
    atomic_init(&null->length, length);
    null->file.zero_after_discard = true;
    *file = &null->file;
    return 0;
}
