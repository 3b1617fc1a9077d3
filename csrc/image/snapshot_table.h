/* SPDX-License-Identifier: MIT
 *
 * The snapshot table as a list in memory, from its bytes and back. Extra data that is not known is kept as it is.
 */
#ifndef QCOW2_IMAGE_SNAPSHOT_TABLE_H
#define QCOW2_IMAGE_SNAPSHOT_TABLE_H

#include "format/header.h"
#include "storage/file.h"

struct snapshot {
    char *id, *name;
    uint64_t l1_offset; /* bytes */
    uint32_t l1_entries;
    uint32_t seconds, nanoseconds;         /* when it was taken, since 1970 */
    uint64_t guest_clock;                  /* nanoseconds the guest had run */
    uint64_t vm_state_size;                /* bytes; 0: none */
    uint64_t disk_size;                    /* bytes */
    uint64_t icount;                       /* instructions; UINT64_MAX: not recorded */
    uint8_t *extra;                        /* extra data behind these */
    uint32_t extra_length, extra_recorded; /* of `extra`; of all extra data as it was on disk */
};

struct snapshot_table {
    struct snapshot *items;
    uint32_t count;
    uint64_t bytes; /* the table's length on disk, as it was read */
};

/* Reads the table that the header names. On failure `table` is empty. ERROR_CORRUPT names the entry and its offset. */
int snapshot_table_read(struct snapshot_table *table, struct file *file, const struct header *header, uint64_t file_length,
                        struct error *error);

/* The bytes of the table (memory_*), *length of them, 8 at least. NULL: no memory. */
uint8_t *snapshot_table_bytes(const struct snapshot_table *table, uint64_t *length);

/* The snapshot with that id, else the first one of that name; NULL: there is none. */
struct snapshot *snapshot_table_find(const struct snapshot_table *table, const char *id_or_name);

/* Adds one with copies of the texts, and an id that no other has. NULL: no memory. */
struct snapshot *snapshot_table_add(struct snapshot_table *table, const char *name);

void snapshot_table_remove(struct snapshot_table *table, struct snapshot *snapshot);

void snapshot_table_clear(struct snapshot_table *table);

#endif
