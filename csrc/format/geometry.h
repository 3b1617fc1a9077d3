/* SPDX-License-Identifier: MIT
 *
 * The shape of an image: how bytes, clusters, tables and entries convert into each other.
 * Conversions live here and nowhere else. Pure; a geometry is computed once and then only read.
 */
#ifndef QCOW2_FORMAT_GEOMETRY_H
#define QCOW2_FORMAT_GEOMETRY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "format/format.h"

struct geometry {
    unsigned cluster_bits;    /* 9–21 */
    unsigned refcount_order;  /* 0–6; refcount_bits = 1 << order */
    unsigned l2_bits;         /* log2 of the entries in an L2 table */
    unsigned block_bits;      /* log2 of the entries in a refcount block */
    unsigned version;         /* 2 or 3 */
    bool extended_l2;         /* L2 entries of 16 bytes, 32 subclusters a cluster */
    bool data_file;           /* guest bytes lie in an external data file, at their guest offsets */
    uint32_t cluster_size;    /* bytes */
    uint32_t subcluster_size; /* bytes; the cluster size without extended L2 */
    uint32_t l2_entry_size;   /* bytes: 8 or 16 */
    uint64_t refcount_max;    /* the largest refcount an entry holds */
};

/* Fills `geometry`; the arguments must be within the format's limits. */
void geometry_set(struct geometry *geometry, unsigned version, unsigned cluster_bits, unsigned refcount_order, bool extended_l2);

/* Guest bytes that one L2 table maps, and that the largest L1 table maps (saturated to INT64_MAX). */
static inline uint64_t geometry_l2_span(const struct geometry *g) { return UINT64_C(1) << (g->cluster_bits + g->l2_bits); }
uint64_t geometry_size_max(const struct geometry *geometry);

/* Whether an image can be this many bytes big: 0, or -EFBIG with a sentence that names the limit. */
int geometry_check_size(const struct geometry *geometry, uint64_t size, struct error *error);

/* L1 entries that an image of `size` bytes needs; 0 for an empty image. */
uint64_t geometry_l1_entries(const struct geometry *geometry, uint64_t size);

/* Guest offset → index into the L1 table, and into its L2 table. */
static inline uint64_t geometry_l1_index(const struct geometry *g, uint64_t guest_offset) {
    return guest_offset >> (g->cluster_bits + g->l2_bits);
}
static inline uint32_t geometry_l2_index(const struct geometry *g, uint64_t guest_offset) {
    return (uint32_t) ((guest_offset >> g->cluster_bits) & ((UINT64_C(1) << g->l2_bits) - 1));
}

/* Offset (guest or host) within its cluster; the cluster's start, the subcluster's start; the number of the cluster; back. */
static inline uint32_t geometry_in_cluster(const struct geometry *g, uint64_t offset) {
    return (uint32_t) (offset & (g->cluster_size - 1));
}
static inline uint64_t geometry_cluster_start(const struct geometry *g, uint64_t offset) {
    return offset & ~((uint64_t) g->cluster_size - 1);
}
static inline uint64_t geometry_subcluster_start(const struct geometry *g, uint64_t offset) {
    return offset & ~((uint64_t) g->subcluster_size - 1);
}
static inline uint64_t geometry_cluster(const struct geometry *g, uint64_t offset) { return offset >> g->cluster_bits; }
static inline uint64_t geometry_offset(const struct geometry *g, uint64_t cluster) { return cluster << g->cluster_bits; }

/* Clusters that hold `bytes` bytes from a cluster's start. */
static inline uint64_t geometry_clusters_for(const struct geometry *g, uint64_t bytes) {
    return (bytes >> g->cluster_bits) + ((bytes & (g->cluster_size - 1)) != 0);
}

/* Host cluster → index into the refcount table, and into its refcount block; clusters one block covers. */
static inline uint64_t geometry_block_index(const struct geometry *g, uint64_t host_cluster) { return host_cluster >> g->block_bits; }
static inline uint64_t geometry_in_block(const struct geometry *g, uint64_t host_cluster) {
    return host_cluster & ((UINT64_C(1) << g->block_bits) - 1);
}
static inline uint64_t geometry_block_entries(const struct geometry *g) { return UINT64_C(1) << g->block_bits; }

#endif
