/* SPDX-License-Identifier: MIT
 *
 * Walks the snapshot table once, at open, with bounded memory: one entry's fixed part and one piece of an L1 table at a
 * time. On disk an entry is: L1 offset u64, L1 entries u32, id length u16, name length u16, 16 bytes of times, VM
 * state size u32, extra data size u32 (40 bytes), then extra data, id and name, padded to 8. Called by open.
 */
#include "image/inactive.h"

#include "base/bytes.h"
#include "base/memory.h"

#define ENTRY_FIXED 40u
#define PIECE_ENTRIES 4096u
#define EXTRA_MAX 1024u                /* bytes of extra data, as the reference caps it */
#define TABLE_MAX (UINT64_C(64) << 20) /* bytes of the whole table, likewise */

struct snapshot_place { /* where one snapshot's L1 table lies, and where the next entry begins */
    uint64_t l1_offset, l1_entries, next_offset;
};

static int read_entry(struct image *image, uint32_t index, uint64_t offset, uint64_t file_length, struct snapshot_place *place,
                      struct error *error) {
    uint8_t bytes[ENTRY_FIXED];
    if (!within_u64(offset, ENTRY_FIXED, file_length)) {
        return error_set(error, ERROR_CORRUPT, "snapshot table entry %u at offset %llu lies outside the file", index,
                         (unsigned long long) offset);
    }
    const int result = file_read(image->file, offset, bytes, ENTRY_FIXED, error);
    if (result < 0) return result;
    const uint64_t variable = (uint64_t) load_be32(bytes + 36) + load_be16(bytes + 12) + load_be16(bytes + 14);
    if (load_be32(bytes + 36) > EXTRA_MAX || offset - image->header.snapshots_offset > TABLE_MAX) {
        return error_set(error, ERROR_CORRUPT, "snapshot table entry %u at offset %llu: %u bytes of extra data, or a table over 64 MiB",
                         index, (unsigned long long) offset, load_be32(bytes + 36));
    }
    place->l1_offset = load_be64(bytes);
    place->l1_entries = load_be32(bytes + 8);
    place->next_offset = round_up_u64(offset + ENTRY_FIXED + variable, 8);
    if (place->l1_entries * 8 > FORMAT_L1_BYTES_MAX || !within_u64(place->l1_offset, place->l1_entries * 8, file_length) ||
        geometry_in_cluster(&image->geometry, place->l1_offset) != 0) {
        return error_set(
            error, ERROR_CORRUPT,
            "snapshot table entry %u at offset %llu: L1 table of %llu entries at offset %llu is not aligned or lies outside the file",
            index, (unsigned long long) offset, (unsigned long long) place->l1_entries, (unsigned long long) place->l1_offset);
    }
    return 0;
}

static int note_l2_tables(struct image *image, const struct snapshot_place *place, uint8_t *bytes, struct error *error) {
    for (uint64_t i = 0; i < place->l1_entries; i += PIECE_ENTRIES) {
        const uint64_t count = min_u64(PIECE_ENTRIES, place->l1_entries - i);
        int result = file_read(image->file, place->l1_offset + 8 * i, bytes, 8 * count, error);
        for (uint64_t j = 0; result == 0 && j < count; j++) {
            const uint64_t table = load_be64(bytes + 8 * j) & FORMAT_ENTRY_OFFSET;
            if (table != 0) result = overlap_add(&image->overlap, OVERLAP_INACTIVE_L2, geometry_cluster(&image->geometry, table), 1);
        }
        if (result < 0) return error_set(error, result, "no memory for the overlap check");
    }
    return 0;
}

static int note_snapshot(struct image *image, const struct snapshot_place *place, struct error *error) {
    const uint64_t clusters = geometry_clusters_for(&image->geometry, place->l1_entries * 8);
    uint64_t at = 0;
    const uint64_t first = geometry_cluster(&image->geometry, place->l1_offset);
    if ((overlap_find(&image->overlap, first, 1, &at) & OVERLAP_INACTIVE_L1) != 0) return 0; /* noted already */
    int result = overlap_add(&image->overlap, OVERLAP_INACTIVE_L1, geometry_cluster(&image->geometry, place->l1_offset), clusters);
    if (result < 0) return error_set(error, result, "no memory for the overlap check");
    if ((image->overlap.checked & OVERLAP_INACTIVE_L2) == 0 || place->l1_entries == 0) return 0;
    uint8_t *bytes = memory_aligned(8 * PIECE_ENTRIES);
    if (bytes == NULL) return error_set(error, -ENOMEM, "no memory for the overlap check");
    result = note_l2_tables(image, place, bytes, error);
    memory_free(bytes);
    return result;
}

int inactive_note(struct image *image, uint64_t file_length, struct error *error) {
    const unsigned asked = OVERLAP_SNAPSHOT_TABLE | OVERLAP_INACTIVE_L1 | OVERLAP_INACTIVE_L2;
    const uint64_t start = image->header.snapshots_offset;
    uint64_t offset = start;
    if (image->header.nb_snapshots == 0 || (image->overlap.checked & asked) == 0) return 0;
    for (uint32_t i = 0; i < image->header.nb_snapshots; i++) {
        struct snapshot_place place = {.next_offset = 0};
        int result = read_entry(image, i, offset, file_length, &place, error);
        if (result == 0) result = note_snapshot(image, &place, error);
        if (result < 0) return result;
        offset = place.next_offset;
    }
    const uint64_t clusters = geometry_clusters_for(&image->geometry, offset - start);
    const int result = overlap_add(&image->overlap, OVERLAP_SNAPSHOT_TABLE, geometry_cluster(&image->geometry, start), clusters);
    return result < 0 ? error_set(error, result, "no memory for the overlap check") : 0;
}
