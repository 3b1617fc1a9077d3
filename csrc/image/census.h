/* SPDX-License-Identifier: MIT
 *
 * The first of three rooms (census → check → repair): counts how often each host cluster is referenced, by everything in the
 * file: header, L1 tables and L2 tables with their data, snapshot table, bitmaps, encryption header, refcount table and blocks.
 *
 * It reads the file itself and needs no open image, so it works on images that do not open. It only reads.
 * What it cannot follow is a finding, and `untraced` says that some clusters may be in use that it has not counted.
 */
#ifndef QCOW2_IMAGE_CENSUS_H
#define QCOW2_IMAGE_CENSUS_H

#include "format/header.h"
#include "image/findings.h"
#include "image/tally.h"
#include "storage/file.h"

struct census_table { /* an L2 table, once for all L1 entries that name it */
    uint64_t host_offset;
    uint64_t guest_offset; /* bytes; where the first active L1 entry that names it maps it */
    uint64_t references;   /* L1 entries that name it */
    uint64_t active;       /* those of them in the active L1 table */
};

/* The structure that findings name which repair can mend by dropping the host offset. */
#define CENSUS_PREALLOCATED "preallocated cluster"

enum block_state { /* what a refcount table entry names */
    BLOCK_NONE,
    BLOCK_SOUND,    /* a refcount block that nothing else uses, as far as was counted when it was met */
    BLOCK_RESERVED, /* a block, but the entry has reserved bits set: what it holds is believed */
    BLOCK_SHARED,   /* a block where something else is too: likewise */
    BLOCK_OUTSIDE,  /* nothing: it lies past the file's end, and all its counts are 0 */
    BLOCK_UNKNOWN,  /* nothing that can be read: unaligned */
};

struct census {
    struct file *file;
    struct header header;
    struct geometry geometry;
    uint64_t file_length, clusters; /* bytes; host clusters, the last one perhaps in part */
    struct tally tally;
    struct findings findings;
    uint64_t allocated, fragmented, compressed; /* guest clusters of the active image */
    uint64_t end;                               /* host cluster: nothing in use lies at or after it (set by check) */

    uint64_t *l1; /* the active L1 table, as on disk but in host byte order */
    struct census_table *tables;
    uint64_t table_count, table_capacity, table_most;
    struct numbers table_places; /* host offset → index into tables */
    uint64_t *refcount_table;    /* likewise; NULL: it cannot be read where the header says it is */
    uint64_t refcount_entries;
    uint8_t *block_states; /* enum block_state for each entry */

    bool data_file;            /* guest bytes lie in an external data file and are not counted */
    bool copied_outside;       /* an active entry that names a cluster past the file's end has COPIED */
    bool counts_lost;          /* a cluster that is referenced has refcount 0 (set by check) */
    bool uncopied_data;        /* an active entry into the data file lacks COPIED */
    bool untraced;             /* something could not be followed: clusters without references may be in use after all */
    bool structure_damaged;    /* of the refcounts: counts cannot be mended where they are */
    uint64_t zeroes_unaligned; /* preallocated zero clusters whose host offset makes no sense and can be dropped */
    uint8_t *buffer;           /* one cluster */
};

/* Counts all of the image in `file`. Returns 0, or a negative errno when there is nothing that can be counted (no header, no
 * L1 table), no memory or the limit of `memory_limit` bytes is reached. To be ended with census_end in any case. */
int census_take(struct census *census, struct file *file, uint64_t max_findings, uint64_t memory_limit, struct error *error);

void census_end(struct census *census);

/* The offset of the refcount block that table entry `index` names, without reserved bits. */
static inline uint64_t census_block_offset(const struct census *census, uint64_t index) {
    return census->refcount_table[index] & ~FORMAT_REFCOUNT_TABLE_RESERVED;
}

/* ---- for the parts of the census ---- */

/* Whose reference it is. */
struct census_place {
    const char *structure;
    uint64_t guest_offset; /* bytes; UINT64_MAX: none */
    uint64_t times;        /* how many references of this kind there are */
};

/* Counts the clusters that hold `length` bytes at host `offset`. What passes the file's end is a finding, and counts[…] nothing.
 * Returns 0 or -ENOMEM. */
int census_add(struct census *census, uint64_t offset, uint64_t length, const struct census_place *place);

/* Whether the range lies inside the file, so that it was counted. */
bool census_inside(const struct census *census, uint64_t offset, uint64_t length);

/* Reads; a failure is a finding. Returns whether the bytes are there. */
bool census_read(struct census *census, uint64_t offset, void *bytes, uint64_t length, const char *structure);

/* The L1 entry at `index` of some L1 table, `times` of which say the same; guest_offset UINT64_MAX: not the active one. */
int census_l1_entry(struct census *census, uint64_t entry, uint64_t guest_offset, uint64_t times);

/* census_l2.c: all L2 tables that were noted. census_snapshots.c: the snapshot table and what it names. census_bitmaps.c: likewise. */
int census_l2_tables(struct census *census);
int census_snapshots(struct census *census);
int census_bitmaps(struct census *census);

#endif
