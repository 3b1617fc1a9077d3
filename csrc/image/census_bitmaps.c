/* SPDX-License-Identifier: MIT
 *
 * The bitmap directory, the bitmap tables and the clusters that they name. Without the autoclear bit somebody changed the image who does
 * not keep bitmaps: what the extension names counts for nothing then. The directory has no list of its own in memory: it is
 * walked once, a fixed part and a piece of a table at a time. Called by census.
 *
 * On disk a directory entry is: table offset u64, table entries u32, flags u32, type u8, granularity_bits u8, name
 * length u16, extra data size u32 (24 bytes), then extra data and name, padded to 8.
 */
#include <inttypes.h>

#include "base/bytes.h"
#include "base/memory.h"
#include "image/census.h"

#define EXTENSION_LENGTH 24u
#define ENTRY_FIXED 24u
#define TABLE_RESERVED UINT64_C(0xff000000000001fe)
#define TABLE_ENTRIES_MAX UINT64_C(0x8000000)
#define PIECE_ENTRIES 4096u

struct bitmap { /* one entry of the directory */
    uint32_t index;
    uint64_t offset; /* of the entry in the file */
    uint64_t table_offset, table_entries;
};

static void note(struct census *census, const struct bitmap *bitmap, enum finding_kind kind, const char *why) {
    census->untraced = true;
    findings_add(&census->findings,
                 (struct finding){.kind = kind,
                                  .weight = WEIGHT_CORRUPTION,
                                  .structure = "bitmap directory",
                                  .host_offset = bitmap->offset,
                                  .guest_offset = UINT64_MAX},
                 "ERROR bitmap directory entry %" PRIu32 " at offset 0x%" PRIx64 ": %s", bitmap->index, bitmap->offset, why);
}

static int count_table_entry(struct census *census, const struct bitmap *bitmap, uint64_t entry) {
    const struct census_place place = {"bitmap", UINT64_MAX, 1};
    const uint64_t offset = entry & FORMAT_ENTRY_OFFSET;
    if ((entry & TABLE_RESERVED) != 0 || (offset != 0 && (entry & 1) != 0)) {
        note(census, bitmap, FINDING_RESERVED, "a bitmap table entry has reserved bits set");
    }
    if (offset == 0) return 0;
    if (geometry_in_cluster(&census->geometry, offset) != 0) {
        note(census, bitmap, FINDING_UNALIGNED, "a bitmap table entry is not cluster aligned");
    }
    return census_add(census, offset, census->geometry.cluster_size, &place);
}

static int count_table(struct census *census, const struct bitmap *bitmap) {
    const struct census_place place = {"bitmap table", UINT64_MAX, 1};
    uint8_t *bytes = memory_aligned(8 * PIECE_ENTRIES);
    if (bytes == NULL) return -ENOMEM;
    int result = census_add(census, bitmap->table_offset, 8 * bitmap->table_entries, &place);
    const bool inside = census_inside(census, bitmap->table_offset, 8 * bitmap->table_entries);
    for (uint64_t i = 0; result == 0 && inside && i < bitmap->table_entries; i += PIECE_ENTRIES) {
        const uint64_t count = min_u64(PIECE_ENTRIES, bitmap->table_entries - i);
        if (!census_read(census, bitmap->table_offset + 8 * i, bytes, 8 * count, "bitmap table")) break;
        for (uint64_t j = 0; result == 0 && j < count; j++) result = count_table_entry(census, bitmap, load_be64(bytes + 8 * j));
    }
    memory_free(bytes);
    return result;
}

static int count_bitmap(struct census *census, const struct bitmap *bitmap) {
    if (bitmap->table_entries > TABLE_ENTRIES_MAX) {
        note(census, bitmap, FINDING_TOO_LARGE, "the bitmap table is too large");
        return 0;
    }
    if (geometry_in_cluster(&census->geometry, bitmap->table_offset) != 0) {
        note(census, bitmap, FINDING_UNALIGNED, "the bitmap table is not cluster aligned");
        return 0;
    }
    return count_table(census, bitmap);
}

/* Walks the entries in [offset, end). */
static int walk_directory(struct census *census, uint64_t offset, uint64_t end, uint32_t count) {
    struct bitmap bitmap = {.offset = offset};
    int result = 0;
    for (; result == 0 && bitmap.index < count; bitmap.index++) {
        uint8_t bytes[ENTRY_FIXED];
        if (!within_u64(bitmap.offset, ENTRY_FIXED, end)) {
            note(census, &bitmap, FINDING_INCOMPLETE, "the directory ends before it");
            return 0;
        }
        if (!census_read(census, bitmap.offset, bytes, sizeof bytes, "bitmap directory")) return 0;
        bitmap.table_offset = load_be64(bytes);
        bitmap.table_entries = load_be32(bytes + 8);
        result = count_bitmap(census, &bitmap);
        bitmap.offset = round_up_u64(bitmap.offset + ENTRY_FIXED + load_be32(bytes + 20) + load_be16(bytes + 18), 8);
    }
    if (result == 0 && bitmap.offset != end)
        note(census, &bitmap, FINDING_INCOMPLETE, "the directory does not end where the last entry does");
    return result;
}

int census_bitmaps(struct census *census) {
    const struct header_extension *extension = header_find_extension(&census->header, FORMAT_EXTENSION_BITMAPS);
    const struct census_place place = {"bitmap directory", UINT64_MAX, 1};
    if (extension == NULL || (census->header.autoclear_features & FORMAT_AUTOCLEAR_BITMAPS) == 0) return 0;
    if (extension->length < EXTENSION_LENGTH) return 0;
    const uint32_t count = load_be32(extension->data);
    const uint64_t length = load_be64(extension->data + 8), offset = load_be64(extension->data + 16);
    const int result = census_add(census, offset, length, &place);
    if (result < 0 || !census_inside(census, offset, length)) return result;
    return walk_directory(census, offset, offset + length, count);
}
