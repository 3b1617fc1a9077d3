/* SPDX-License-Identifier: MIT
 *
 * Opening one level of an image, and closing an image with its chain (chain.h opens whole chains).
 *
 * Opening reads header, L1 table and refcount table, checks that they can be true of a file this long, and takes memory only for what the
 * file really holds. Closing flushes, gives back what the file was grown ahead, and frees; it always frees.
 */
#ifndef QCOW2_IMAGE_OPEN_H
#define QCOW2_IMAGE_OPEN_H

#include "guest/request.h"
#include "image/checkup.h"

enum image_open_format {
    IMAGE_OPEN_PROBE,
    IMAGE_OPEN_RAW,
    IMAGE_OPEN_QCOW2
};

struct image_options {
    enum image_open_format format;
    bool read_only, write_through;
    bool direct, no_sync; /* how the files are opened: O_DIRECT; cache=unsafe */
    bool discard_ignored, detect_zeroes, detected_unmap;
    bool open_backing, force_share;
    bool open_data_file;   /* false: guest bytes that lie in an external data file cannot be read */
    const char *data_file; /* its path; NULL: as the image says */
    const char *snapshot;  /* id or name: show that and not the disk, for reading only; NULL: the disk */
    bool repair;           /* check and repair it first, whatever it is marked as */
    enum image_cow cow;
    enum ring_kind aio;            /* for queues and benchmark jobs */
    unsigned overlap_check;        /* bits of overlap_kind */
    uint64_t l2_cache_size;        /* bytes; 0 = what covers the whole image, at most 32 MiB */
    uint64_t l2_cache_entry_size;  /* bytes, a power of two; 0 = 4 KiB, at most a cluster */
    uint64_t refcount_cache_size;  /* bytes; 0 = the least that works, 256 KiB with 64 KiB clusters */
    uint64_t cache_clean_interval; /* seconds; 0 = never */
};

/* Writable, write-back, whole chain, cow=skip, overlap check "cached". */
struct image_options image_options_default(void);

/* How the options open files: bits for file_posix_open. */
unsigned image_file_flags(const struct image_options *options);

/* Opens the image in `file` (shared, not taken), without what lies below it. */
int image_open_level(struct file *file, const struct image_options *options, struct image **image, struct error *error);

/* All that is in memory goes to the file, clusters that were given up become free, and the file loses what it was grown ahead. */
int image_settle(struct image *image, struct error *error);

/* Reads the tables anew from a file that has changed below a settled image. A failure leaves it lost: good for closing alone. */
int image_reload(struct image *image, struct error *error);

/* Checks an open image, which no request may be using, and repairs it if asked for; what is in memory goes to the file before, and is
 * read anew after. `checkup` has to be ended. */
int image_checkup(struct image *image, const struct checkup_options *options, struct checkup *checkup, struct error *error);

/* Flushes, trims, unlocks and frees the image and its chain. Returns the flush's result; NULL is ignored. */
int image_close(struct image *image, struct error *error);

#endif
