/* SPDX-License-Identifier: MIT
 *
 * A move: one run of bytes to carry between memory and a file. Plans end as lists of moves, so that anything can
 * carry them out: the caller's thread, a ring, a simulated disk. A list is carried out in order wherever `after` says so;
 * moves without it may go at the same time as those before them.
 */
#ifndef QCOW2_STORAGE_MOVE_H
#define QCOW2_STORAGE_MOVE_H

#include "storage/file.h"

enum move_kind {
    MOVE_READ,     /* file → vector */
    MOVE_WRITE,    /* vector → file */
    MOVE_ZERO,     /* the range reads as zeroes afterwards */
    MOVE_DISCARD,  /* the range's space may be given back; its bytes no longer matter */
    MOVE_TRUNCATE, /* the file becomes `offset` bytes long */
    MOVE_ALLOCATE, /* space is reserved for the range */
    MOVE_SYNC,     /* all before it becomes durable */
};

#define MOVE_VECTOR_MAX 3 /* head, data, tail */
#define MOVES_MAX 16

struct move {
    enum move_kind kind;
    bool after;         /* starts when every move before it in the list has ended */
    unsigned zero_mode; /* MOVE_ZERO: bits of file_zero_mode */
    struct file *file;
    uint64_t offset, length; /* bytes */
    struct iovec vector[MOVE_VECTOR_MAX];
    int vector_count;
};

struct moves {
    unsigned count;
    struct move items[MOVES_MAX];
};

/* Adds an empty move; the list must have room. */
struct move *moves_add(struct moves *moves, enum move_kind kind, struct file *file, uint64_t offset, uint64_t length);

/* The same with one run of memory. */
struct move *moves_add_bytes(struct moves *moves, enum move_kind kind, struct file *file, uint64_t offset, void *bytes, uint64_t length);

/* Appends memory to the move's vector and to its length. */
void move_append(struct move *move, const void *bytes, uint64_t length);

/* Carries out one move. Returns 0 or a negative errno with a sentence. */
int move_carry_out(const struct move *move, struct error *error);

/* Carries out the list in order, in the caller's thread; stops at the first failure. */
int moves_carry_out(const struct moves *moves, struct error *error);

#endif
