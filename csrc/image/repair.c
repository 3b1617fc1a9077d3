/* SPDX-License-Identifier: MIT
 *
 * Entries of L1 and L2 tables are mended where they are, and only the sectors that change are written. Clearing COPIED is always safe: it
 * only makes the next write copy. Setting it is done only where the census could follow everything, since a reference that was not
 * counted would see the write. Called by checkup, after the counts are durable.
 */
#include "image/repair.h"

#include "base/bytes.h"
#include "base/ranges.h"
#include "image/check.h"

#define SECTOR 512u

/* Writes the sectors of `bytes` that hold [start, end). */
static int write_part(struct census *census, uint64_t host_offset, const uint8_t *bytes, uint64_t start, uint64_t end, uint64_t length,
                      struct error *error) {
    if (start >= end) return 0;
    start = round_down_u64(start, SECTOR);
    end = min_u64(round_up_u64(end, SECTOR), length);
    return file_write(census->file, host_offset + start, bytes + start, end - start, error);
}

/* Changes the entry at `bytes`; whether it did. */
typedef bool mend_function(struct census *census, uint8_t *bytes);

static int mend_table(struct census *census, const struct census_table *table, mend_function *mend, struct error *error) {
    const struct geometry *geometry = &census->geometry;
    struct range changed = {0, 0};
    uint64_t count = 0;
    int result = file_read(census->file, table->host_offset, census->buffer, geometry->cluster_size, error);
    if (result < 0) return result;
    for (uint64_t at = 0; at < geometry->cluster_size; at += geometry->l2_entry_size) {
        if (!mend(census, census->buffer + at)) continue;
        range_widen(&changed, at, at + geometry->l2_entry_size);
        count++;
    }
    result = write_part(census, table->host_offset, census->buffer, changed.start, changed.end, geometry->cluster_size, error);
    if (result == 0) census->findings.corruptions_fixed += count;
    return result;
}

static void mark_repaired(struct census *census, enum finding_kind kind, const char *structure) {
    for (uint64_t i = 0; i < census->findings.count; i++) {
        struct finding *finding = &census->findings.items[i];
        if (finding->kind == kind && (structure == NULL || finding->structure == structure)) finding->repaired = true;
    }
}

/* ---- zero clusters ---- */

static bool mend_zero(struct census *census, uint8_t *bytes) {
    const struct geometry *geometry = &census->geometry;
    const uint64_t entry = load_be64(bytes), bitmap = geometry->extended_l2 ? load_be64(bytes + 8) : 0;
    const bool zero = geometry->extended_l2 ? (bitmap & UINT32_MAX) == 0 : (entry & FORMAT_ENTRY_ZERO) != 0;
    if ((entry & FORMAT_ENTRY_COMPRESSED) != 0 || !zero || geometry_in_cluster(geometry, entry & FORMAT_ENTRY_OFFSET) == 0) return false;
    store_be64(bytes, geometry->extended_l2 ? 0 : FORMAT_ENTRY_ZERO);
    return true;
}

int repair_zeroes(struct census *census, struct error *error) {
    int result = 0;
    for (uint64_t i = 0; result == 0 && i < census->table_count; i++) result = mend_table(census, &census->tables[i], mend_zero, error);
    if (result == 0) result = file_sync(census->file, error);
    if (result == 0) mark_repaired(census, FINDING_UNALIGNED, CENSUS_PREALLOCATED);
    return result;
}

/* ---- COPIED ---- */

static bool mend_copied(struct census *census, uint8_t *bytes) {
    const uint64_t entry = load_be64(bytes);
    if (!check_entry_copied_wrong(census, entry)) return false;
    if ((entry & FORMAT_ENTRY_COPIED) == 0 && census->untraced) return false;
    store_be64(bytes, entry ^ FORMAT_ENTRY_COPIED);
    return true;
}

static int mend_l1(struct census *census, struct error *error) {
    const struct header *header = &census->header;
    for (uint64_t i = 0; i < header->l1_size; i++) {
        uint8_t bytes[8];
        const uint64_t entry = census->l1[i] & ~FORMAT_ENTRY_COMPRESSED, host_offset = entry & FORMAT_ENTRY_OFFSET;
        const bool copied = (entry & FORMAT_ENTRY_COPIED) != 0;
        if (host_offset == 0 || check_is_single(census, host_offset) == copied || (!copied && census->untraced)) continue;
        store_be64(bytes, census->l1[i] ^ FORMAT_ENTRY_COPIED);
        const int result = file_write(census->file, header->l1_table_offset + 8 * i, bytes, sizeof bytes, error);
        if (result < 0) return result;
        census->l1[i] ^= FORMAT_ENTRY_COPIED;
        census->findings.corruptions_fixed++;
    }
    return 0;
}

int repair_copied(struct census *census, struct error *error) {
    int result = mend_l1(census, error);
    for (uint64_t i = 0; result == 0 && i < census->table_count; i++) {
        if (census->tables[i].active > 0) result = mend_table(census, &census->tables[i], mend_copied, error);
    }
    if (result == 0) result = file_sync(census->file, error);
    if (result == 0 && !census->untraced) mark_repaired(census, FINDING_COPIED, NULL);
    return result;
}
