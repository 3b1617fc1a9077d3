/* SPDX-License-Identifier: MIT
 *
 * Lists of moves, and the plainest way to carry them out: one after the other in the caller's thread.
 * Knows files and memory, nothing of images. A ring does the same work for queues.
 */
#include "storage/move.h"

#include <assert.h>

struct move *moves_add(struct moves *moves, enum move_kind kind, struct file *file, uint64_t offset, uint64_t length) {
    assert(moves->count < MOVES_MAX);
    struct move *move = &moves->items[moves->count++];
    move->kind = kind;
    move->after = false;
    move->zero_mode = FILE_ZERO_WRITE;
    move->file = file;
    move->offset = offset;
    move->length = length;
    move->vector_count = 0;
    return move;
}

struct move *moves_add_bytes(struct moves *moves, enum move_kind kind, struct file *file, uint64_t offset, void *bytes, uint64_t length) {
    struct move *move = moves_add(moves, kind, file, offset, 0);
    move_append(move, bytes, length);
    return move;
}

void move_append(struct move *move, const void *bytes, uint64_t length) {
    assert(move->vector_count < MOVE_VECTOR_MAX);
    if (length == 0) return;
    struct iovec *part = &move->vector[move->vector_count++];
    part->iov_base = (void *) (uintptr_t) bytes;
    part->iov_len = length;
    move->length += length;
}

int move_carry_out(const struct move *move, struct error *error) {
    switch (move->kind) {
        case MOVE_READ: return file_readv(move->file, move->offset, move->vector, move->vector_count, error);
        case MOVE_WRITE: return file_writev(move->file, move->offset, move->vector, move->vector_count, error);
        case MOVE_ZERO: return file_zero(move->file, move->offset, move->length, move->zero_mode, error);
        case MOVE_DISCARD: return file_discard(move->file, move->offset, move->length, error);
        case MOVE_TRUNCATE: return file_truncate(move->file, move->offset, error);
        case MOVE_ALLOCATE: return file_allocate(move->file, move->offset, move->length, error);
        case MOVE_SYNC: return file_sync(move->file, error);
    }
    return error_set(error, -EINVAL, "unknown kind of move %d", (int) move->kind);
}

int moves_carry_out(const struct moves *moves, struct error *error) {
    for (unsigned i = 0; i < moves->count; i++) {
        const int result = move_carry_out(&moves->items[i], error);
        if (result < 0) return result;
    }
    return 0;
}
