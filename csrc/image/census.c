/* SPDX-License-Identifier: MIT
 *
 * The order of the count: header, active L1, snapshots' L1 tables, all L2 tables, snapshot table, encryption header,
 * bitmaps, refcount table and blocks. Each distinct L2 table is read once however many L1 entries name it, so thousands of snapshots that
 * share tables, or an L1 table that names one table four million times, cost no more than the tables that are there.
 * Invariant: a cluster's references are counted whether or not what is there makes sense, so that nothing
 * takes it for free. Called by check.
 */
#include "image/census.h"

#include <inttypes.h>
#include <string.h>

#include "base/bytes.h"
#include "base/memory.h"
#include "image/head.h"

/* ---- counting ---- */

bool census_inside(const struct census *census, uint64_t offset, uint64_t length) {
    uint64_t end = 0;
    if (!add_u64(offset, length, &end)) return false;
    return end <= census->file_length || end - census->file_length < census->geometry.cluster_size;
}

static void note_outside(struct census *census, uint64_t offset, uint64_t length, const struct census_place *place) {
    census->untraced = true;
    findings_add(&census->findings,
                 (struct finding){.kind = FINDING_OUTSIDE,
                                  .weight = WEIGHT_CORRUPTION,
                                  .structure = place->structure,
                                  .host_offset = offset,
                                  .guest_offset = place->guest_offset,
                                  .times = place->times},
                 "ERROR: counting reference for region exceeding the end of the file by one cluster or more: offset 0x%" PRIx64
                 " size 0x%" PRIx64,
                 offset, length);
}

static int add_cluster(struct census *census, uint64_t cluster, const struct census_place *place) {
    const uint64_t most = census->geometry.refcount_max, before = tally_get(&census->tally, cluster);
    const uint64_t times = min_u64(place->times, most - before);
    if (times < place->times) {
        findings_add(&census->findings,
                     (struct finding){.kind = FINDING_REFCOUNT_FULL,
                                      .weight = WEIGHT_CORRUPTION,
                                      .structure = place->structure,
                                      .host_offset = geometry_offset(&census->geometry, cluster),
                                      .guest_offset = place->guest_offset,
                                      .times = place->times - times},
                     "ERROR: overflow cluster offset=0x%" PRIx64, geometry_offset(&census->geometry, cluster));
    }
    return tally_add(&census->tally, cluster, times);
}

int census_add(struct census *census, uint64_t offset, uint64_t length, const struct census_place *place) {
    if (length == 0) return 0;
    if (!census_inside(census, offset, length)) {
        note_outside(census, offset, length, place);
        return 0;
    }
    const uint64_t last = geometry_cluster(&census->geometry, offset + length - 1);
    for (uint64_t cluster = geometry_cluster(&census->geometry, offset); cluster <= last; cluster++) {
        const int result = add_cluster(census, cluster, place);
        if (result < 0) return result;
    }
    return 0;
}

bool census_read(struct census *census, uint64_t offset, void *bytes, uint64_t length, const char *structure) {
    struct error error = {.code = 0};
    if (file_read(census->file, offset, bytes, length, &error) == 0) return true;
    census->untraced = true;
    findings_add(&census->findings,
                 (struct finding){.kind = FINDING_UNREADABLE,
                                  .weight = WEIGHT_CHECK_ERROR,
                                  .structure = structure,
                                  .host_offset = offset,
                                  .guest_offset = UINT64_MAX},
                 "ERROR: reading the %s at offset 0x%" PRIx64 ": %s", structure, offset, error_name(error.code));
    return false;
}

/* ---- L1 ---- */

static struct census_table *put_table(struct census *census, uint64_t host_offset) {
    uint64_t *place = numbers_put(&census->table_places, host_offset);
    if (place == NULL) return NULL;
    if (*place > 0) return &census->tables[*place - 1];
    if (census->table_count == census->table_capacity) {
        const uint64_t capacity = min_u64(max_u64(2 * census->table_capacity, 64), census->table_most);
        struct census_table *tables = capacity == census->table_capacity ? NULL : memory_resize(census->tables, capacity * sizeof *tables);
        if (tables == NULL) return NULL;
        census->tables = tables;
        census->table_capacity = capacity;
    }
    struct census_table *table = &census->tables[census->table_count++];
    *place = census->table_count;
    *table = (struct census_table){.host_offset = host_offset, .guest_offset = UINT64_MAX};
    return table;
}

static void judge_l1_entry(struct census *census, uint64_t entry, uint64_t guest_offset, uint64_t times) {
    const uint64_t table = entry & FORMAT_ENTRY_OFFSET;
    struct finding finding = {
        .weight = WEIGHT_CORRUPTION, .structure = "L1 table", .host_offset = table, .guest_offset = guest_offset, .times = times};
    if ((entry & FORMAT_L1_RESERVED) != 0) {
        finding.kind = FINDING_RESERVED;
        findings_add(&census->findings, finding, "ERROR found L1 entry with reserved bits set: %" PRIx64, entry);
    }
    if (geometry_in_cluster(&census->geometry, table) == 0) return;
    census->untraced = true;
    finding.kind = FINDING_UNALIGNED;
    findings_add(&census->findings, finding, "ERROR l2_offset=%" PRIx64 ": Table is not cluster aligned; L1 entry corrupted", table);
}

int census_l1_entry(struct census *census, uint64_t entry, uint64_t guest_offset, uint64_t times) {
    const struct census_place place = {.structure = "L2 table", .guest_offset = guest_offset, .times = times};
    const uint64_t host_offset = entry & FORMAT_ENTRY_OFFSET;
    if (entry == 0) return 0;
    judge_l1_entry(census, entry, guest_offset, times);
    if (host_offset == 0) return 0;
    const int result = census_add(census, host_offset, census->geometry.cluster_size, &place);
    if (result < 0 || !census_inside(census, host_offset, census->geometry.cluster_size)) return result;
    struct census_table *table = put_table(census, host_offset);
    if (table == NULL) return -ENOMEM;
    table->references += times;
    if (guest_offset == UINT64_MAX) return 0;
    table->active += times;
    if (table->guest_offset == UINT64_MAX) table->guest_offset = guest_offset;
    return 0;
}

static int count_active_l1(struct census *census) {
    const struct census_place place = {.structure = "L1 table", .guest_offset = UINT64_MAX, .times = 1};
    const uint64_t entries = census->header.l1_size;
    int result = census_add(census, census->header.l1_table_offset, entries * 8, &place);
    for (uint64_t i = 0; result == 0 && i < entries; i++) {
        result = census_l1_entry(census, census->l1[i], i * geometry_l2_span(&census->geometry), 1);
    }
    return result;
}

/* ---- the refcount structure ---- */

static int count_block(struct census *census, uint64_t index) {
    const struct census_place place = {.structure = "refcount block", .guest_offset = UINT64_MAX, .times = 1};
    const uint64_t entry = census->refcount_table[index], offset = census_block_offset(census, index);
    struct finding finding = {
        .weight = WEIGHT_CORRUPTION, .structure = "refcount table", .host_offset = offset, .guest_offset = UINT64_MAX};
    uint8_t *state = &census->block_states[index];
    *state = BLOCK_SOUND;
    if (entry != offset) {
        finding.kind = FINDING_RESERVED;
        findings_add(&census->findings, finding, "ERROR refcount table entry %" PRIu64 " has reserved bits set", index);
        *state = BLOCK_RESERVED;
    }
    if (geometry_in_cluster(&census->geometry, offset) != 0) {
        if (*state == BLOCK_SOUND) {
            finding.kind = FINDING_UNALIGNED;
            findings_add(&census->findings, finding,
                         "ERROR refcount block %" PRIu64 " is not cluster aligned; refcount table entry corrupted", index);
        }
        *state = BLOCK_UNKNOWN;
        return 0;
    }
    if (geometry_cluster(&census->geometry, offset) >= census->clusters) {
        if (*state == BLOCK_SOUND) {
            finding.kind = FINDING_OUTSIDE;
            findings_add(&census->findings, finding, "ERROR refcount block %" PRIu64 " is outside image", index);
        }
        *state = BLOCK_OUTSIDE;
        return 0;
    }
    if (*state == BLOCK_RESERVED) return 0;
    const int result = census_add(census, offset, census->geometry.cluster_size, &place);
    const uint64_t references = tally_get(&census->tally, geometry_cluster(&census->geometry, offset));
    if (result < 0 || references == 1) return result;
    finding.kind = FINDING_OVERLAP;
    findings_add(&census->findings, finding, "ERROR refcount block %" PRIu64 " refcount=%" PRIu64, index, references);
    *state = BLOCK_SHARED;
    return 0;
}

/* A table that cannot be read is as good as none: check finds every count 0, and repair makes a new one. */
static void refuse_refcount_table(struct census *census, enum finding_kind kind, const char *why) {
    census->structure_damaged = true;
    findings_add(&census->findings,
                 (struct finding){.kind = kind,
                                  .weight = WEIGHT_CORRUPTION,
                                  .structure = "refcount table",
                                  .host_offset = census->header.refcount_table_offset,
                                  .guest_offset = UINT64_MAX},
                 "ERROR refcount table of %" PRIu32 " clusters at offset 0x%" PRIx64 " %s", census->header.refcount_table_clusters,
                 census->header.refcount_table_offset, why);
}

static int read_refcount_table(struct census *census) {
    const struct header *header = &census->header;
    const uint64_t offset = header->refcount_table_offset;
    const uint64_t bytes = (uint64_t) header->refcount_table_clusters << census->geometry.cluster_bits;
    if (bytes == 0 || bytes > FORMAT_REFCOUNT_TABLE_BYTES_MAX) {
        refuse_refcount_table(census, FINDING_TOO_LARGE, "has an impossible size");
    } else if (geometry_in_cluster(&census->geometry, offset) != 0) {
        refuse_refcount_table(census, FINDING_UNALIGNED, "is not cluster aligned");
    } else if (offset == 0 || !within_u64(offset, bytes, census->file_length)) {
        refuse_refcount_table(census, FINDING_OUTSIDE, "is outside image");
    } else {
        uint64_t *table = memory_aligned(bytes);
        if (table == NULL) return -ENOMEM;
        if (!census_read(census, offset, table, bytes, "refcount table")) {
            memory_free(table);
            census->structure_damaged = true;
            return 0;
        }
        for (uint64_t i = 0; i < bytes / 8; i++) table[i] = load_be64(&table[i]);
        census->refcount_table = table;
        census->refcount_entries = bytes / 8;
        census->block_states = memory_zeroed(bytes / 8);
        if (census->block_states == NULL) return -ENOMEM;
    }
    return 0;
}

static int count_refcounts(struct census *census) {
    const struct census_place place = {.structure = "refcount table", .guest_offset = UINT64_MAX, .times = 1};
    int result = read_refcount_table(census);
    if (result < 0 || census->refcount_table == NULL) return result;
    result = census_add(census, census->header.refcount_table_offset, census->refcount_entries * 8, &place);
    for (uint64_t i = 0; result == 0 && i < census->refcount_entries; i++) {
        if (census->refcount_table[i] != 0) result = count_block(census, i);
        if (census->block_states[i] > BLOCK_SOUND) census->structure_damaged = true;
    }
    return result;
}

/* ---- all of it ---- */

static int count_encryption(struct census *census) {
    const struct header_extension *extension = header_find_extension(&census->header, FORMAT_EXTENSION_ENCRYPTION);
    const struct census_place place = {.structure = "encryption header", .guest_offset = UINT64_MAX, .times = 1};
    if (extension == NULL || extension->length < 16) return 0;
    return census_add(census, load_be64(extension->data), load_be64(extension->data + 8), &place);
}

static int count_all(struct census *census) {
    const struct census_place header = {.structure = "header", .guest_offset = UINT64_MAX, .times = 1};
    int result = census_add(census, 0, census->geometry.cluster_size, &header);
    if (result == 0) result = count_active_l1(census);
    if (result == 0) result = census_snapshots(census);
    if (result == 0) result = census_l2_tables(census);
    if (result == 0) result = count_encryption(census);
    if (result == 0) result = census_bitmaps(census);
    if (result == 0) result = count_refcounts(census);
    tally_sort(&census->tally);
    return result;
}

static int read_l1(struct census *census, struct error *error) {
    const uint64_t entries = census->header.l1_size;
    census->l1 = memory_aligned(max_u64(entries, 1) * 8);
    census->buffer = memory_aligned(census->geometry.cluster_size);
    if (census->l1 == NULL || census->buffer == NULL) return error_set(error, -ENOMEM, "no memory to check the image");
    const int result = file_read(census->file, census->header.l1_table_offset, census->l1, entries * 8, error);
    for (uint64_t i = 0; result == 0 && i < entries; i++) census->l1[i] = load_be64(&census->l1[i]);
    return result;
}

int census_take(struct census *census, struct file *file, uint64_t max_findings, uint64_t memory_limit, struct error *error) {
    *census = (struct census){.file = file_share(file), .findings = {.most = max_findings}};
    int result = file_length(file, &census->file_length, error);
    if (result == 0) result = head_read(file, census->file_length, &census->header, error);
    if (result == 0) result = header_check_l1(&census->header, census->file_length, error);
    if (result < 0) return result;
    census->geometry = header_geometry(&census->header);
    census->clusters = geometry_clusters_for(&census->geometry, census->file_length);
    census->data_file = (census->header.incompatible_features & FORMAT_INCOMPATIBLE_DATA_FILE) != 0;
    census->table_most = memory_limit / 2 / (sizeof(struct census_table) + 4 * sizeof(struct number_pair));
    tally_init(&census->tally, memory_limit / 2);
    result = read_l1(census, error);
    if (result == 0) result = count_all(census);
    if (result == -ENOMEM)
        error_set(error, result, "checking this image takes more than the %" PRIu64 " bytes of memory it may", memory_limit);
    return result;
}

void census_end(struct census *census) {
    tally_destroy(&census->tally);
    findings_clear(&census->findings);
    numbers_clear(&census->table_places);
    memory_free(census->l1);
    memory_free(census->tables);
    memory_free(census->refcount_table);
    memory_free(census->block_states);
    memory_free(census->buffer);
    header_clear(&census->header);
    file_release(census->file);
    memset(census, 0, sizeof *census);
}
