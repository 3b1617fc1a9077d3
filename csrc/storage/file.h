/* SPDX-License-Identifier: MIT
 *
 * A file is what everything below the engine looks like: a small table of functions.
 *
 * Behind it stand a real file (file_posix), memory (file_memory), nothing (file_null), and another file
 * with faults put in (file_fault). Offsets and lengths are host bytes. Any thread may call any of the I/O functions
 * at any time; open and release belong to one owner. The file_* functions here check, count and
 * explain; an implementation only returns 0 or a negative errno.
 */
#ifndef QCOW2_STORAGE_FILE_H
#define QCOW2_STORAGE_FILE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "base/error.h"

struct file;

enum file_zero_mode {
    FILE_ZERO_WRITE = 0,       /* must read as zeroes afterwards: by fallocate, else by writing; space stays allocated */
    FILE_ZERO_UNMAP = 1,       /* the same, and the space may be given back */
    FILE_ZERO_NO_FALLBACK = 2, /* -ENOTSUP rather than writing bytes */
};

enum file_use {           /* what an image does with its file, the strongest first; decides the byte locks (FORMAT: locks) */
    FILE_USE_WRITE,       /* we write: others may read only with force_share */
    FILE_USE_READ,        /* we read: nobody may write */
    FILE_USE_READ_SHARED, /* we read, whatever others do */
    FILE_USE_NOTHING,     /* no locks */
    FILE_USES,
};

enum file_operation { /* what is checked, counted and explained */
    FILE_READ,
    FILE_WRITE,
    FILE_ZERO,
    FILE_DISCARD,
    FILE_ALLOCATE,
    FILE_TRUNCATE, /* its length is the file's new one */
    FILE_SYNC,
};

struct file_ops {
    const char *kind; /* "posix", "memory", … */
    /* Reads all bytes of the vector; what lies past the file's end reads as zeroes. */
    int (*readv)(struct file *file, uint64_t offset, const struct iovec *vector, int count);
    /* Writes all bytes of the vector, growing the file where it ends inside or before the range. */
    int (*writev)(struct file *file, uint64_t offset, const struct iovec *vector, int count);
    /* Makes the range read as zeroes (mode: bits of file_zero_mode); grows the file like a write. */
    int (*zero)(struct file *file, uint64_t offset, uint64_t length, unsigned mode);
    /* Gives the range's space back; it reads as zeroes afterwards where the file says zero_after_discard. */
    int (*discard)(struct file *file, uint64_t offset, uint64_t length);
    /* Reserves space for the range (fallocate), growing the file; contents stay. -ENOTSUP where it cannot. */
    int (*allocate)(struct file *file, uint64_t offset, uint64_t length);
    /* Sets the length; what is new reads as zeroes. */
    int (*truncate)(struct file *file, uint64_t length);
    /* Makes everything that was written durable (fdatasync). */
    int (*sync)(struct file *file);
    int (*length)(struct file *file, uint64_t *length);
    /* Changes the byte locks, or the use of what lies below; writes a sentence on conflict. NULL: nothing to lock. */
    int (*lock)(struct file *file, enum file_use from, enum file_use to, struct error *error);
    /* Called by the last file_release; frees the implementation's struct, not the name. */
    void (*destroy)(struct file *file);
};

struct file_stats { /* operations and bytes that went down, by kind; read with file_stats_of */
    uint64_t reads, read_bytes, writes, written_bytes, zeroes, zeroed_bytes, discards, discarded_bytes, allocates, truncates, syncs;
};

struct file_counters { /* the same, while they run; relaxed atomics */
    _Atomic uint64_t reads, read_bytes, writes, written_bytes, zeroes, zeroed_bytes, discards, discarded_bytes, allocates, truncates, syncs;
};

struct file { /* the first member of each implementation's own struct */
    const struct file_ops *ops;
    char *name; /* as the user gave it, for sentences; owned */
    _Atomic int owners;
    uint32_t alignment; /* offsets and lengths that are multiples of this go down as they are; 1, 512 or 4096 */
    bool read_only;
    bool grows_as_zeroes; /* what lies past the end reads as zeroes once the file grows (false for block devices) */
    bool zero_after_discard;
    bool no_sync;              /* cache=unsafe: file_sync does nothing */
    pthread_mutex_t use_lock;  /* of the next member, and held while the locks change */
    unsigned users[FILE_USES]; /* images that use it so; the locks are those of the strongest use */
    struct file_counters counters;
};

/* Fills the common part, with one owner. `name` is copied. Returns 0 or -ENOMEM. For implementations. */
int file_init(struct file *file, const struct file_ops *ops, const char *name);

/* One more owner; returns `file`. */
struct file *file_share(struct file *file);

/* One owner less; the last one closes. NULL is ignored. */
void file_release(struct file *file);

/* Each of these returns 0 or a negative errno and writes a sentence that names operation, offset and file. An empty range does
 * nothing; one that ends past INT64_MAX is -EFBIG; a change of a read-only file is -EROFS. Whoever goes on after a
 * failure (-ENOTSUP) gives the next call an error that holds nothing, for the first sentence stays. */
int file_read(struct file *file, uint64_t offset, void *bytes, uint64_t length, struct error *error);
int file_write(struct file *file, uint64_t offset, const void *bytes, uint64_t length, struct error *error);
int file_readv(struct file *file, uint64_t offset, const struct iovec *vector, int count, struct error *error);
int file_writev(struct file *file, uint64_t offset, const struct iovec *vector, int count, struct error *error);
int file_zero(struct file *file, uint64_t offset, uint64_t length, unsigned mode, struct error *error);
int file_discard(struct file *file, uint64_t offset, uint64_t length, struct error *error);
int file_allocate(struct file *file, uint64_t offset, uint64_t length, struct error *error);
int file_truncate(struct file *file, uint64_t length, struct error *error);
int file_sync(struct file *file, struct error *error);
int file_length(struct file *file, uint64_t *length, struct error *error);
/* One user of the file changes what it does with it; FILE_USE_NOTHING is before it begins, and after its end. There is one writer at a time:
 * -EBUSY; another process's locks may forbid it: -EAGAIN. Then the old use stays. Giving up never fails. */
int file_change_use(struct file *file, enum file_use from, enum file_use to, struct error *error);

/* What the functions above do before and after the operation itself, for a ring, which carries it out in another way.
 * Check: 0, or why it may not be done. Count: once, when it goes down. Explain: writes the sentence unless `code` is 0; returns `code`. */
int file_check(const struct file *file, enum file_operation operation, uint64_t offset, uint64_t length);
void file_count(struct file *file, enum file_operation operation, uint64_t length);
int file_explain(const struct file *file, enum file_operation operation, uint64_t offset, uint64_t length, int code, struct error *error);

/* A copy of the counters. */
struct file_stats file_stats_of(const struct file *file);

#endif
