/* SPDX-License-Identifier: MIT
 *
 * One entry after the other; each is checked against the file's length before memory is taken for it.
 *
 * On disk an entry is: L1 offset u64, L1 entries u32, id length u16, name length u16, seconds u32, nanoseconds u32, guest clock u64, VM
 * state size u32, extra data size u32 (40 bytes), extra data (VM state size u64, disk size u64, icount u64, more), id, name; padded to 8.
 * Called by snapshot and open.
 */
#include "image/snapshot_table.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/memory.h"
#include "format/format.h"

#define FIXED 40u
#define EXTRA_KNOWN 24u
#define EXTRA_DISK_SIZE 16u            /* extra data up to here has the disk's size */
#define EXTRA_MAX 1024u                /* bytes of extra data, as the reference caps it */
#define TABLE_MAX (UINT64_C(64) << 20) /* bytes of the whole table, likewise */

/* ---- reading ---- */

static void read_fixed(struct snapshot *snapshot, const uint8_t *bytes) {
    snapshot->l1_offset = load_be64(bytes);
    snapshot->l1_entries = load_be32(bytes + 8);
    snapshot->seconds = load_be32(bytes + 16);
    snapshot->nanoseconds = load_be32(bytes + 20);
    snapshot->guest_clock = load_be64(bytes + 24);
    snapshot->vm_state_size = load_be32(bytes + 32);
    snapshot->extra_recorded = load_be32(bytes + 36);
}

static int read_extra(struct snapshot *snapshot, const uint8_t *bytes, const struct header *header) {
    const uint32_t length = snapshot->extra_recorded;
    snapshot->disk_size = header->size;
    snapshot->icount = UINT64_MAX;
    if (length >= 8) snapshot->vm_state_size = load_be64(bytes);
    if (length >= EXTRA_DISK_SIZE) snapshot->disk_size = load_be64(bytes + 8);
    if (length >= EXTRA_KNOWN) snapshot->icount = load_be64(bytes + 16);
    snapshot->extra_length = length > EXTRA_KNOWN ? length - EXTRA_KNOWN : 0;
    if (snapshot->extra_length == 0) return 0;
    snapshot->extra = memory_zeroed(snapshot->extra_length);
    if (snapshot->extra == NULL) return -ENOMEM;
    memcpy(snapshot->extra, bytes + EXTRA_KNOWN, snapshot->extra_length);
    return 0;
}

static int read_variable(struct snapshot *snapshot, const uint8_t *bytes, uint32_t id_length, uint32_t name_length,
                         const struct header *header) {
    const int result = read_extra(snapshot, bytes, header);
    bytes += snapshot->extra_recorded;
    snapshot->id = memory_text((const char *) bytes, id_length);
    snapshot->name = memory_text((const char *) bytes + id_length, name_length);
    return snapshot->id == NULL || snapshot->name == NULL ? -ENOMEM : result;
}

static int refuse(uint32_t index, uint64_t offset, const char *why, struct error *error) {
    return error_set(error, ERROR_CORRUPT, "snapshot table entry %" PRIu32 " at offset %" PRIu64 " %s", index, offset, why);
}

/* Reads the entry at *offset, and moves that behind it. */
static int read_entry(struct snapshot_table *table, struct file *file, const struct header *header, uint64_t file_length, uint64_t *offset,
                      struct error *error) {
    uint8_t fixed[FIXED];
    struct snapshot *snapshot = &table->items[table->count];
    if (!within_u64(*offset, FIXED, file_length)) return refuse(table->count, *offset, "lies outside the file", error);
    int result = file_read(file, *offset, fixed, FIXED, error);
    if (result < 0) return result;
    read_fixed(snapshot, fixed);
    const uint32_t id_length = load_be16(fixed + 12), name_length = load_be16(fixed + 14);
    const uint64_t length = (uint64_t) snapshot->extra_recorded + id_length + name_length;
    if (snapshot->extra_recorded > EXTRA_MAX) return refuse(table->count, *offset, "has more than 1024 bytes of extra data", error);
    if (*offset - header->snapshots_offset > TABLE_MAX) return refuse(table->count, *offset, "lies past 64 MiB of snapshot table", error);
    if (!within_u64(*offset + FIXED, length, file_length)) return refuse(table->count, *offset, "passes the file's end", error);
    uint8_t *bytes = memory_zeroed(length + 1);
    if (bytes == NULL) return error_set(error, -ENOMEM, "no memory for the snapshot table");
    result = file_read(file, *offset + FIXED, bytes, length, error);
    table->count++; /* from here on it is cleared with the table */
    if (result == 0) result = read_variable(snapshot, bytes, id_length, name_length, header);
    memory_free(bytes);
    if (result < 0) return error_set(error, result, "no memory for the snapshot table");
    *offset = round_up_u64(*offset + FIXED + length, 8);
    return 0;
}

int snapshot_table_read(struct snapshot_table *table, struct file *file, const struct header *header, uint64_t file_length,
                        struct error *error) {
    uint64_t offset = header->snapshots_offset;
    int result = 0;
    *table = (struct snapshot_table){.items = NULL};
    if (header->nb_snapshots == 0) return 0;
    if (header->nb_snapshots > FORMAT_SNAPSHOTS_MAX) return error_set(error, ERROR_CORRUPT, "there are more than 65536 snapshots");
    table->items = memory_array(header->nb_snapshots, sizeof *table->items);
    if (table->items == NULL) return error_set(error, -ENOMEM, "no memory for the snapshot table");
    for (uint32_t i = 0; result == 0 && i < header->nb_snapshots; i++)
        result = read_entry(table, file, header, file_length, &offset, error);
    table->bytes = offset - header->snapshots_offset;
    if (result < 0) snapshot_table_clear(table);
    return result;
}

/* ---- writing ---- */

static uint32_t extra_to_write(const struct snapshot *snapshot) { return EXTRA_KNOWN + snapshot->extra_length; }

static uint64_t entry_length(const struct snapshot *snapshot) {
    return round_up_u64(FIXED + extra_to_write(snapshot) + strlen(snapshot->id) + strlen(snapshot->name), 8);
}

static void write_entry(const struct snapshot *snapshot, uint8_t *bytes) {
    const size_t id_length = strlen(snapshot->id), name_length = strlen(snapshot->name);
    uint8_t *extra = bytes + FIXED;
    store_be64(bytes, snapshot->l1_offset);
    store_be32(bytes + 8, snapshot->l1_entries);
    store_be16(bytes + 12, (uint16_t) id_length);
    store_be16(bytes + 14, (uint16_t) name_length);
    store_be32(bytes + 16, snapshot->seconds);
    store_be32(bytes + 20, snapshot->nanoseconds);
    store_be64(bytes + 24, snapshot->guest_clock);
    store_be32(bytes + 32, snapshot->vm_state_size > UINT32_MAX ? 0 : (uint32_t) snapshot->vm_state_size);
    store_be32(bytes + 36, extra_to_write(snapshot));
    store_be64(extra, snapshot->vm_state_size);
    store_be64(extra + 8, snapshot->disk_size);
    store_be64(extra + 16, snapshot->icount);
    if (snapshot->extra_length > 0) memcpy(extra + EXTRA_KNOWN, snapshot->extra, snapshot->extra_length);
    extra += extra_to_write(snapshot);
    memcpy(extra, snapshot->id, id_length);
    memcpy(extra + id_length, snapshot->name, name_length);
}

uint8_t *snapshot_table_bytes(const struct snapshot_table *table, uint64_t *length) {
    *length = 0;
    for (uint32_t i = 0; i < table->count; i++) *length += entry_length(&table->items[i]);
    uint8_t *bytes = memory_zeroed(max_u64(*length, 8));
    uint64_t at = 0;
    for (uint32_t i = 0; bytes != NULL && i < table->count; i++) {
        write_entry(&table->items[i], bytes + at);
        at += entry_length(&table->items[i]);
    }
    return bytes;
}

/* ---- the list ---- */

struct snapshot *snapshot_table_find(const struct snapshot_table *table, const char *id_or_name) {
    for (uint32_t i = 0; i < table->count; i++) {
        if (strcmp(table->items[i].id, id_or_name) == 0) return &table->items[i];
    }
    for (uint32_t i = 0; i < table->count; i++) {
        if (strcmp(table->items[i].name, id_or_name) == 0) return &table->items[i];
    }
    return NULL;
}

static char *new_id(const struct snapshot_table *table) {
    char text[24];
    unsigned long long highest = 0;
    for (uint32_t i = 0; i < table->count; i++) {
        const unsigned long long id = strtoull(table->items[i].id, NULL, 10);
        if (id > highest && id < UINT64_MAX) highest = id;
    }
    snprintf(text, sizeof text, "%llu", highest + 1);
    return memory_text(text, strlen(text));
}

static void clear_snapshot(struct snapshot *snapshot) {
    memory_free(snapshot->id);
    memory_free(snapshot->name);
    memory_free(snapshot->extra);
}

struct snapshot *snapshot_table_add(struct snapshot_table *table, const char *name) {
    struct snapshot *items = memory_array((size_t) table->count + 1, sizeof *items);
    if (items == NULL) return NULL;
    struct snapshot *snapshot = &items[table->count];
    *snapshot = (struct snapshot){.id = new_id(table), .name = memory_text(name, strlen(name)), .icount = UINT64_MAX};
    if (snapshot->id == NULL || snapshot->name == NULL) {
        clear_snapshot(snapshot);
        memory_free(items);
        return NULL;
    }
    if (table->count > 0) memcpy(items, table->items, table->count * sizeof *items);
    memory_free(table->items);
    table->items = items;
    table->count++;
    return snapshot;
}

void snapshot_table_remove(struct snapshot_table *table, struct snapshot *snapshot) {
    const size_t behind = (size_t) (table->items + table->count - (snapshot + 1));
    clear_snapshot(snapshot);
    memmove(snapshot, snapshot + 1, behind * sizeof *snapshot);
    table->count--;
}

void snapshot_table_clear(struct snapshot_table *table) {
    for (uint32_t i = 0; i < table->count; i++) clear_snapshot(&table->items[i]);
    memory_free(table->items);
    *table = (struct snapshot_table){.items = NULL};
}
