/* SPDX-License-Identifier: MIT
 *
 * Walking through the bytes of an iovec array without copying or changing it.
 * A cursor never rests on a finished entry: while bytes are left, next[0] has some at `skip`.
 */
#ifndef QCOW2_STORAGE_VECTOR_H
#define QCOW2_STORAGE_VECTOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/uio.h>

struct vector_cursor {
    const struct iovec *next; /* the entry that holds the next byte */
    int count;                /* entries left, this one too; 0 = at the end */
    size_t skip;              /* bytes of it that are behind us */
};

/* Goes `length` bytes on. */
static inline void vector_skip(struct vector_cursor *cursor, size_t length) {
    cursor->skip += length;
    while (cursor->count > 0 && cursor->skip >= cursor->next->iov_len) {
        cursor->skip -= cursor->next->iov_len;
        cursor->next++;
        cursor->count--;
    }
}

/* A cursor before the first byte. */
static inline struct vector_cursor vector_start(const struct iovec *vector, int count) {
    struct vector_cursor cursor = {vector, count, 0};
    vector_skip(&cursor, 0);
    return cursor;
}

/* What is left of the cursor's entry. */
static inline struct iovec vector_piece(const struct vector_cursor *cursor) {
    return (struct iovec){(uint8_t *) cursor->next->iov_base + cursor->skip, cursor->next->iov_len - cursor->skip};
}

/* Copies the next `length` bytes of the vector to `bytes`. The vector has that many. */
static inline void vector_gather(struct vector_cursor *cursor, void *bytes, size_t length) {
    for (uint8_t *to = bytes; length > 0;) {
        const struct iovec piece = vector_piece(cursor);
        const size_t step = piece.iov_len < length ? piece.iov_len : length;
        memcpy(to, piece.iov_base, step);
        vector_skip(cursor, step);
        to += step;
        length -= step;
    }
}

/* Copies `bytes` to the next `length` bytes of the vector. The vector has that many. */
static inline void vector_scatter(struct vector_cursor *cursor, const void *bytes, size_t length) {
    for (const uint8_t *from = bytes; length > 0;) {
        const struct iovec piece = vector_piece(cursor);
        const size_t step = piece.iov_len < length ? piece.iov_len : length;
        memcpy(piece.iov_base, from, step);
        vector_skip(cursor, step);
        from += step;
        length -= step;
    }
}

/* Zeroes everything that is left of the vector. */
static inline void vector_clear(struct vector_cursor *cursor) {
    while (cursor->count > 0) {
        const struct iovec piece = vector_piece(cursor);
        memset(piece.iov_base, 0, piece.iov_len);
        vector_skip(cursor, piece.iov_len);
    }
}

/* The sum of all lengths; false when it does not fit. */
static inline bool vector_total(const struct iovec *vector, int count, uint64_t *total) {
    *total = 0;
    for (int i = 0; i < count; i++)
        if (__builtin_add_overflow(*total, vector[i].iov_len, total)) return false;
    return true;
}

#endif
