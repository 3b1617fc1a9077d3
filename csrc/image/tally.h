/* SPDX-License-Identifier: MIT
 *
 * How often each host cluster is referenced, and beside it the refcount that is stored for it.
 *
 * Counts are kept in pages of 2048 clusters that are made when first needed, so memory follows what is referenced and not
 * what the file's length or its tables claim; and it has a limit, past which adding fails.
 */
#ifndef QCOW2_IMAGE_TALLY_H
#define QCOW2_IMAGE_TALLY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/numbers.h"

#define TALLY_PAGE_BITS 11u
#define TALLY_PAGE (UINT64_C(1) << TALLY_PAGE_BITS)

struct tally_page {
    uint64_t first; /* host cluster */
    uint16_t references[TALLY_PAGE], stored[TALLY_PAGE];
    uint8_t copied[TALLY_PAGE / 8], uncopied[TALLY_PAGE / 8]; /* an active entry names the cluster with, or without, COPIED */
};

struct tally {
    struct tally_page **pages;      /* in the order they were made, or sorted */
    struct numbers places;          /* page number → index into pages, while they are not sorted anew */
    struct numbers many;            /* host cluster → references, where there are too many for 16 bits */
    uint64_t page_count, page_most; /* pages; the limit */
    uint64_t page_capacity;
    struct tally_page *last; /* the page last used */
};

/* All counts are 0; at most about `memory_limit` bytes will be taken. */
void tally_init(struct tally *tally, uint64_t memory_limit);

void tally_destroy(struct tally *tally);

/* The page of a cluster; made when it is missing. NULL: no memory, or the limit is reached. */
struct tally_page *tally_page(struct tally *tally, uint64_t host_cluster);

/* The page of a cluster if there is one: without one all its counts are 0. */
struct tally_page *tally_find(struct tally *tally, uint64_t host_cluster);

static inline uint64_t tally_in_page(uint64_t host_cluster) { return host_cluster & (TALLY_PAGE - 1); }

/* The cluster has `count` references more. Returns 0 or -ENOMEM. */
int tally_add(struct tally *tally, uint64_t host_cluster, uint64_t count);

/* The references of a cluster. */
uint64_t tally_get(struct tally *tally, uint64_t host_cluster);

/* Sets them; the page must be there. Returns 0 or -ENOMEM. */
int tally_set(struct tally *tally, uint64_t host_cluster, uint64_t references);

/* Puts the pages in the order of their clusters. */
void tally_sort(struct tally *tally);

#endif
