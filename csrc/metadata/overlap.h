/* SPDX-License-Identifier: MIT
 *
 * Which host clusters hold metadata, and of which kind: one hash from host cluster number to a set of kinds, kept in memory, so that
 * asking costs the same whatever is asked for and never reads the disk. Rooms say here what they take and give up;
 * the data path asks before each write. It is used under the metadata lock alone.
 */
#ifndef QCOW2_METADATA_OVERLAP_H
#define QCOW2_METADATA_OVERLAP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

enum overlap_kind { /* bits, in the order that the option overlap_check uses */
    OVERLAP_MAIN_HEADER = 1,
    OVERLAP_ACTIVE_L1 = 2,
    OVERLAP_ACTIVE_L2 = 4,
    OVERLAP_REFCOUNT_TABLE = 8,
    OVERLAP_REFCOUNT_BLOCK = 16,
    OVERLAP_SNAPSHOT_TABLE = 32,
    OVERLAP_INACTIVE_L1 = 64,
    OVERLAP_INACTIVE_L2 = 128,
    OVERLAP_BITMAP_DIRECTORY = 256,
    OVERLAP_ALL = 511,
};

struct overlap {
    unsigned checked;        /* bits of overlap_kind that writes are checked against */
    uint64_t *entries;       /* host cluster << 16 | kinds; 0 = free place (a kept cluster always has kinds) */
    uint64_t capacity, used; /* places; used: taken, by clusters that are gone as well */
};

void overlap_init(struct overlap *overlap, unsigned checked);

void overlap_destroy(struct overlap *overlap);

/* Notes that `count` host clusters hold metadata of `kind`. Only kinds that are checked are kept. Returns 0 or -ENOMEM. */
int overlap_add(struct overlap *overlap, enum overlap_kind kind, uint64_t host_cluster, uint64_t count);

/* They no longer do. */
void overlap_remove(struct overlap *overlap, enum overlap_kind kind, uint64_t host_cluster, uint64_t count);

/* The kinds of metadata in those clusters, of those that are checked; *at is the first such cluster. 0: none, the write may go on. */
unsigned overlap_find(const struct overlap *overlap, uint64_t host_cluster, uint64_t count, uint64_t *at);

/* Refuses clusters that are said to be free but hold metadata (of the kinds that are checked), or the header, whatever is checked.
 * `cluster_bits` is for the sentence. Returns 0 or ERROR_CORRUPT. */
int overlap_refuse_free(const struct overlap *overlap, uint64_t host_cluster, uint64_t count, unsigned cluster_bits, struct error *error);

/* Makes room for `count` more clusters, so that as many overlap_add cannot fail. Returns 0 or -ENOMEM. */
int overlap_reserve(struct overlap *overlap, uint64_t count);

/* The name of the lowest kind in `kinds` in the specification's words: "active L2 table". */
const char *overlap_kind_name(unsigned kinds);

#endif
