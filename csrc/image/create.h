/* SPDX-License-Identifier: MIT
 *
 * Making an image. All options are checked before the file is touched; a file that could not be finished is removed
 * when it was made here.
 */
#ifndef QCOW2_IMAGE_CREATE_H
#define QCOW2_IMAGE_CREATE_H

#include "guest/image.h"

enum preallocation {
    PREALLOCATION_OFF,      /* nothing */
    PREALLOCATION_METADATA, /* every cluster mapped, the file sparse */
    PREALLOCATION_FALLOC,   /* the same, and space reserved */
    PREALLOCATION_FULL,     /* the same, and zeroes written */
};

struct create_options {
    enum image_format format;
    uint64_t size; /* bytes; with size_from_backing: unset */
    bool size_from_backing;
    uint32_t version, cluster_bits, refcount_order;
    enum preallocation preallocation;
    uint8_t compression_type; /* enum codec */
    bool lazy_refcounts, extended_l2;
    const char *data_file; /* NULL: none; made anew, and named so in the header */
    bool data_file_raw;
    const char *backing_file, *backing_format; /* NULL: none */
    uint64_t extent_size_hint;                 /* bytes, for the file that guest bytes lie in; 0: none */
    bool direct, no_sync;
};

/* Writes a new image into `file`, which loses what it held. */
int image_create(struct file *file, const struct create_options *options, struct error *error);

/* The same in the file at `path`, which is made when it is missing. */
int image_create_path(const char *path, const struct create_options *options, struct error *error);

#endif
