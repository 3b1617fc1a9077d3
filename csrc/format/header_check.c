/* SPDX-License-Identifier: MIT
 *
 * What a header says about the rest of the file, and whether this program may open it: tables lie inside the file, within the
 * limits and apart from each other; features are known. Separate from reading, because a repair must read
 * headers that these checks refuse. Pure; called by open.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "format/format.h"
#include "format/header.h"

#define L1_ENTRY_SIZE 8u
#define SNAPSHOT_ENTRY_SIZE_MIN 40u
#define COMPRESSION_TYPE_MAX 1u

/* ---- tables ---- */

/* Host bytes that hold one table, and the header field that says where. */
struct area {
    const char *table, *field;
    unsigned field_offset;
    uint64_t offset, bytes;
};

static int check_l1_size(const struct header *header, struct error *error) {
    const struct geometry geometry = header_geometry(header);
    const uint64_t l1_entries = geometry_l1_entries(&geometry, header->size);
    if (header->l1_size > FORMAT_L1_BYTES_MAX / L1_ENTRY_SIZE) {
        return error_set(error, ERROR_CORRUPT, "l1_size at offset 36 is %" PRIu32 "; at most %" PRIu64 " (32 MiB of entries) is allowed",
                         header->l1_size, FORMAT_L1_BYTES_MAX / L1_ENTRY_SIZE);
    }
    if (header->l1_size >= l1_entries) return 0;
    return error_set(error, ERROR_CORRUPT,
                     "l1_size at offset 36 is %" PRIu32 "; the virtual size of %" PRIu64 " bytes at offset 24 takes %" PRIu64,
                     header->l1_size, header->size, l1_entries);
}

static int check_sizes(const struct header *header, struct error *error) {
    const uint64_t table_clusters_max = FORMAT_REFCOUNT_TABLE_BYTES_MAX >> header->cluster_bits;
    const int r = check_l1_size(header, error);
    if (r < 0) return r;
    if (header->refcount_table_clusters == 0 || header->refcount_table_clusters > table_clusters_max) {
        return error_set(error, ERROR_CORRUPT, "refcount_table_clusters at offset 56 is %" PRIu32 "; 1 to %" PRIu64 " (8 MiB) are allowed",
                         header->refcount_table_clusters, table_clusters_max);
    }
    if (header->nb_snapshots <= FORMAT_SNAPSHOTS_MAX) return 0;
    return error_set(error, ERROR_CORRUPT, "nb_snapshots at offset 60 is %" PRIu32 "; at most %u is allowed", header->nb_snapshots,
                     FORMAT_SNAPSHOTS_MAX);
}

static int check_area(const struct area *area, uint64_t cluster_size, uint64_t file_length, struct error *error) {
    if (area->offset % cluster_size != 0) {
        return error_set(error, ERROR_CORRUPT, "%s at offset %u is 0x%" PRIx64 ", not a multiple of the cluster size %" PRIu64, area->field,
                         area->field_offset, area->offset, cluster_size);
    }
    if (area->bytes == 0) return 0;
    if (area->offset == 0)
        return error_set(error, ERROR_CORRUPT, "%s at offset %u is 0, where the header is", area->field, area->field_offset);
    if (within_u64(area->offset, area->bytes, file_length)) return 0;
    return error_set(error, ERROR_CORRUPT,
                     "%s at offset %u is 0x%" PRIx64 ", but %s of %" PRIu64 " bytes there passes the file's end at %" PRIu64, area->field,
                     area->field_offset, area->offset, area->table, area->bytes, file_length);
}

static struct area l1_area(const struct header *header) {
    return (struct area){"an L1 table", "l1_table_offset", 40, header->l1_table_offset, (uint64_t) header->l1_size * L1_ENTRY_SIZE};
}

int header_check_l1(const struct header *header, uint64_t file_length, struct error *error) {
    const struct area area = l1_area(header);
    const int r = check_l1_size(header, error);
    return r < 0 ? r : check_area(&area, UINT64_C(1) << header->cluster_bits, file_length, error);
}

static bool overlap(const struct area *a, const struct area *b) {
    return a->offset < b->offset + b->bytes && b->offset < a->offset + a->bytes;
}

int header_check_tables(const struct header *header, uint64_t file_length, struct error *error) {
    int r = check_sizes(header, error);
    if (r < 0) return r;
    const uint64_t cluster_size = UINT64_C(1) << header->cluster_bits;
    const struct area areas[] = {
        l1_area(header),
        {"a refcount table", "refcount_table_offset", 48, header->refcount_table_offset, header->refcount_table_clusters * cluster_size},
        {"a snapshot table", "snapshots_offset", 64, header->snapshots_offset, (uint64_t) header->nb_snapshots * SNAPSHOT_ENTRY_SIZE_MIN},
    };
    for (size_t i = 0; i < sizeof areas / sizeof *areas; i++) {
        r = check_area(&areas[i], cluster_size, file_length, error);
        if (r < 0) return r;
        for (size_t j = 0; j < i; j++) {
            if (areas[i].bytes == 0 || areas[j].bytes == 0 || !overlap(&areas[i], &areas[j])) continue;
            return error_set(error, ERROR_CORRUPT, "%s at offset %u is 0x%" PRIx64 ", but %s of %" PRIu64 " bytes lies at 0x%" PRIx64,
                             areas[i].field, areas[i].field_offset, areas[i].offset, areas[j].table, areas[j].bytes, areas[j].offset);
        }
    }
    return 0;
}

/* ---- features ---- */

static void list_features(const struct header *header, uint64_t bits, char text[static ERROR_TEXT_SIZE]) {
    size_t used = 0;
    text[0] = '\0';
    for (unsigned bit = 0; bit < 64 && used < ERROR_TEXT_SIZE; bit++) {
        if ((bits >> bit & 1) == 0) continue;
        char name[47];
        header_feature_name(header, 0, bit, name);
        const bool named = name[0] != '\0';
        used += (size_t) snprintf(text + used, ERROR_TEXT_SIZE - used, "%s%u%s%s%s", used > 0 ? ", " : "", bit, named ? " (" : "", name,
                                  named ? ")" : "");
    }
}

int header_check_features(const struct header *header, struct error *error) {
    const uint64_t unknown = header->incompatible_features & ~FORMAT_INCOMPATIBLE_KNOWN;
    if (unknown != 0) {
        char bits[ERROR_TEXT_SIZE];
        list_features(header, unknown, bits);
        return error_set(error, -ENOTSUP, "incompatible_features at offset 72 has bits set that are not supported: %s", bits);
    }
    if (header->compression_type <= COMPRESSION_TYPE_MAX) return 0;
    return error_set(error, -ENOTSUP, "compression_type at offset 104 is %u; 0 (deflate) and 1 (zstd) are supported",
                     header->compression_type);
}
