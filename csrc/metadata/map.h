/* SPDX-License-Identifier: MIT
 *
 * The mapping: guest offset → L1 (whole in memory) → L2 slice (through a cache) → where the bytes are. It answers with runs:
 * clusters in a row that are of one type and, where they have host clusters, lie in a row too.
 * It changes entries; which clusters go in is decided above. It is used under the metadata lock alone.
 */
#ifndef QCOW2_METADATA_MAP_H
#define QCOW2_METADATA_MAP_H

#include "base/ranges.h"
#include "format/cluster.h"
#include "metadata/cache.h"
#include "metadata/overlap.h"

struct map {
    const struct geometry *geometry;
    struct overlap *overlap;
    uint64_t *l1; /* L1 entries as on disk, host byte order */
    uint64_t l1_entries;
    uint64_t l1_offset; /* bytes; where the table lies (or will, once flush has written the header) */
    struct range dirty; /* L1 entries newer than on disk */
    uint64_t host_end;  /* bytes: the file's length at open, and what was put behind it since; an L2 table that starts beyond is damage */
    struct cache l2;
};

enum map_state {
    MAP_READY,    /* *slot holds the entry */
    MAP_NO_TABLE, /* the L1 entry is 0: nothing is mapped in this L2 table's span */
    MAP_WANT,     /* see `want` */
    MAP_FAILED,   /* see `error` */
};

struct run {
    enum cluster_type type;
    bool copied;
    uint64_t guest_offset, length; /* bytes; need not begin or end at a cluster's edge */
    uint64_t host_offset;          /* NORMAL, ZERO_ALLOC: of the run's first byte; COMPRESSED: of the data */
    uint64_t compressed_length;    /* COMPRESSED: the most bytes the data can take */
};

/* Takes over `l1` (memory_*, l1_entries in host byte order). On failure the caller keeps it. `entry_size`: bytes of an L2 slice. */
int map_init(struct map *map, const struct geometry *geometry, struct overlap *overlap, uint64_t *l1, uint64_t l1_entries,
             uint64_t l1_offset, uint32_t entry_size, uint64_t cache_bytes);

void map_destroy(struct map *map);

/* Asks for the L2 slice that maps guest_offset. */
enum map_state map_slice(struct map *map, uint64_t guest_offset, struct slot **slot, struct want *want, struct error *error);

/* Whether the L2 table that maps guest_offset is there and ours alone, so that it may be changed in place. */
bool map_table_is_ours(const struct map *map, uint64_t guest_offset);

/* The longest run from guest_offset, at most `length` bytes, within the slice. An entry that contradicts the format: ERROR_CORRUPT. */
int map_run(const struct map *map, const struct slot *slot, uint64_t guest_offset, uint64_t length, struct run *run, struct error *error);

/* The run in a span without an L2 table: unallocated, to the table's end at most. */
void map_run_without_table(const struct map *map, uint64_t guest_offset, uint64_t length, struct run *run);

/* Guest bytes from guest_offset to the end of the slice that maps it. */
uint64_t map_left_in_slice(const struct map *map, uint64_t guest_offset);

/* The entry of guest_offset's cluster. */
struct cluster map_get(const struct map *map, const struct slot *slot, uint64_t guest_offset);

/* Sets it. */
void map_set(struct map *map, struct slot *slot, uint64_t guest_offset, const struct cluster *cluster);

/* The L2 table that maps guest_offset, as the L1 entry names it; 0 = none. */
uint64_t map_table_offset(const struct map *map, uint64_t guest_offset);

/* Makes the L1 entry name a table that is ours alone and already as it should be on disk. Returns 0 or -ENOMEM (nothing changed then). */
int map_put_table(struct map *map, uint64_t guest_offset, uint64_t table_offset);

/* Replaces the L1 table by a longer one at l1_offset, all of it to be written at the next flush; takes `l1` over. */
void map_replace_l1(struct map *map, uint64_t *l1, uint64_t l1_entries, uint64_t l1_offset);

/* Clusters that the L1 table takes. */
uint64_t map_l1_clusters(const struct map *map);

#endif
