/* SPDX-License-Identifier: MIT
 *
 * An open image: its rooms by value, and the one metadata lock that guards them. Rooms below take their own struct;
 * only the storeys from here up see the building. Everything not said to be constant is read and changed under `lock`.
 */
#ifndef QCOW2_GUEST_IMAGE_H
#define QCOW2_GUEST_IMAGE_H

#include <pthread.h>

#include "format/header.h"
#include "guest/inflight.h"
#include "metadata/flush.h"
#include "storage/ring.h"

enum image_format {
    IMAGE_RAW, /* guest offset = host offset; the rooms are not used */
    IMAGE_QCOW2,
};

enum image_cow {     /* what surrounds guest bytes in a new cluster, where it must read as zeroes */
    IMAGE_COW_WRITE, /* zeroes are written with the guest bytes */
    IMAGE_COW_ZERO,  /* the file is told to zero the range (fallocate) */
    IMAGE_COW_SKIP,  /* nothing, where the file reads as zeroes already; else as cheap as it can be */
};

struct image_stats { /* guest requests and what they caused; bytes and operations */
    uint64_t reads, read_bytes, writes, written_bytes, zero_writes, zero_write_bytes, discards, discarded_bytes, flushes;
    uint64_t cow_read_bytes, cow_written_bytes;   /* copy-on-write: bytes around the guest's own */
    uint64_t compressed_writes, compressed_bytes; /* clusters that were written compressed; what they take */
    uint64_t clusters_allocated, tables_allocated;
};

struct unpacked {                   /* the last compressed cluster that was read in part */
    uint8_t *bytes;                 /* all of it; NULL: none */
    uint64_t host_offset, given_up; /* where it lies packed; how often compressed clusters were given up */
};

struct packing {        /* where the next compressed cluster goes */
    uint64_t next, end; /* host bytes that are free in the cluster that is being filled; both 0: none is */
};

struct image {
    enum image_format format; /* constant, like the next seven */
    struct file *file;
    struct file *data;     /* where guest bytes lie: `file`, or the external data file */
    struct image *backing; /* NULL: unallocated clusters read as zeroes; owned */
    enum image_cow cow;
    enum ring_kind aio; /* what its queues and jobs use */
    bool read_only, write_through, discard_ignored;
    bool data_is_raw;                   /* the external data file alone is the whole disk: zeroes are really written there */
    bool detect_zeroes, detected_unmap; /* writes of nothing but zeroes become zero writes (that may unmap) */
    bool probed;                        /* the format was found by looking, so a raw image must not come to look like another */
    enum file_use use;                  /* what it does with its file */

    pthread_mutex_t lock;
    uint64_t size; /* virtual size in bytes */
    struct header header;
    struct geometry geometry;
    struct overlap overlap;
    struct refcount refcount;
    struct map map;
    struct alloc alloc;
    struct flush flush;
    struct inflight inflight;
    struct unpacked unpacked;
    struct packing packing;
    uint64_t clean_interval; /* seconds; constant; 0 = never */
    uint64_t cleaned_at;     /* on the monotonic clock, in seconds */
    bool corrupt;            /* contradictions were met: no more writes */
    bool lost;               /* its tables could not be read anew: nothing works but closing */
    bool corrupt_noted;      /* and the header says so, as far as it can */
    struct image_stats stats;
};

/* Compressed clusters of the image were given up: what is kept of them may be another's soon. Under the lock. */
void unpacked_forget(struct image *image);

#endif
