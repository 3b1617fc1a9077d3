/* SPDX-License-Identifier: MIT
 *
 * An L2 entry, decoded once into a sum type and encoded back. Pure: bytes ↔ values, no I/O, no state.
 * Nothing above this file looks at an entry's bits.
 */
#ifndef QCOW2_FORMAT_CLUSTER_H
#define QCOW2_FORMAT_CLUSTER_H

#include <stdbool.h>
#include <stdint.h>

#include "format/geometry.h"

enum cluster_type {
    CLUSTER_UNALLOCATED, /* the backing file shows through; zeroes where there is none */
    CLUSTER_NORMAL,      /* host_offset holds the guest's bytes */
    CLUSTER_ZERO,        /* reads as zeroes, no host cluster */
    CLUSTER_ZERO_ALLOC,  /* reads as zeroes, with a host cluster kept for later */
    CLUSTER_COMPRESSED,  /* host_offset and byte_length of the compressed bytes */
    CLUSTER_INVALID,     /* contradicts the format: offset unaligned, reserved bits, zero flag in version 2 */
};

struct cluster {
    enum cluster_type type;
    bool copied;          /* COPIED: the host cluster's refcount is exactly 1 */
    uint64_t host_offset; /* NORMAL and ZERO_ALLOC: cluster-aligned; COMPRESSED: any byte; INVALID: as found */
    uint64_t byte_length; /* COMPRESSED: the most bytes that the data can take, up to the last sector's end */
    uint64_t bitmap;      /* extended L2: bits 0–31 allocated, 32–63 reads as zeroes */
};

/* Decodes the entry at `bytes` (geometry->l2_entry_size of them). Never fails: what is wrong is CLUSTER_INVALID.
 * Extended L2: NORMAL when a host cluster is there (the bitmap says which subclusters), else UNALLOCATED.
 * External data file: host offset 0 is a place when COPIED is set. */
struct cluster cluster_decode(const struct geometry *geometry, const uint8_t *bytes);

/* Encodes into `bytes`; the inverse for every valid cluster. */
void cluster_encode(const struct geometry *geometry, const struct cluster *cluster, uint8_t *bytes);

/* Compressed clusters lie below this host offset: their entries have fewer bits for it. */
uint64_t cluster_compressed_end(const struct geometry *geometry);

/* Subclusters: 32 a cluster with extended L2, else one, which is the cluster. Whether `cluster` has a host cluster of its own. */
bool cluster_is_placed(const struct cluster *cluster);

/* What the subcluster at `in_cluster` bytes of the cluster's start is, in the same words. */
enum cluster_type cluster_type_at(const struct geometry *geometry, const struct cluster *cluster, uint32_t in_cluster);

/* Where, in bytes from the cluster's start, the subclusters that are like the one at `in_cluster` end. */
uint32_t cluster_alike_end(const struct geometry *geometry, const struct cluster *cluster, uint32_t in_cluster);

/* What all of it is; NORMAL where its subclusters differ. */
enum cluster_type cluster_whole_type(const struct geometry *geometry, const struct cluster *cluster);

/* Extended L2: subclusters that [start, end) bytes of the cluster touch, as the lower half of a bitmap. */
uint64_t cluster_subclusters(const struct geometry *geometry, uint32_t start, uint32_t end);

/* Makes the subclusters in the mask allocated, zero, or neither, whatever they were. */
void cluster_mark_allocated(struct cluster *cluster, uint64_t subclusters);
void cluster_mark_zero(struct cluster *cluster, uint64_t subclusters);

/* A cluster that reads as zeroes, in the host cluster of `kept` (NULL: in none). Version 3. */
struct cluster cluster_of_zeroes(const struct geometry *geometry, const struct cluster *kept);

/* A cluster whose bytes all lie at host_offset, which is ours alone. */
struct cluster cluster_at(const struct geometry *geometry, uint64_t host_offset);

/* How many entries from `bytes` on, at most `limit` (1 or more), are of one type and flags with host clusters in a row.
 * Judges no entry: the first one's being valid makes all of them so. */
uint32_t cluster_count_alike(const struct geometry *geometry, const uint8_t *bytes, uint32_t limit);

/* The type's name in words: "unallocated", "normal", "zero", "preallocated zero", "compressed", "invalid". */
const char *cluster_type_name(enum cluster_type type);

#endif
