/* SPDX-License-Identifier: MIT
 *
 * L2 entries, bits ↔ sum type. Decoding judges each entry once, so that nobody above has to: what contradicts the format
 * becomes CLUSTER_INVALID here and is never followed. Encoding is the inverse for what is valid; it refuses to
 * write, by assertion, what decoding would call invalid.
 *
 * Standard entry, neither version 2 nor extended L2, by host offset and flag:
 *
 *                     zero flag clear   zero flag set
 *   no host offset    UNALLOCATED       ZERO
 *   host offset       NORMAL            ZERO_ALLOC
 *
 * COPIED without a host offset is invalid. (In an external data file host offset 0 is a place like any other;
 * whoever reads such images knows them by type INVALID, host_offset 0 and COPIED.)
 */
#include "format/cluster.h"

#include <assert.h>

#include "base/bytes.h"
#include "format/format.h"

#define SECTOR_SIZE 512u
#define STANDARD_RESERVED UINT64_C(0x3f000000000001fe) /* bits 1–8 and 56–61 */
#define BITMAP_ALLOCATED UINT64_C(0x00000000ffffffff)  /* extended L2: one bit a subcluster */

_Static_assert((STANDARD_RESERVED | FORMAT_ENTRY_OFFSET | FORMAT_ENTRY_COPIED | FORMAT_ENTRY_COMPRESSED | FORMAT_ENTRY_ZERO) == UINT64_MAX,
               "the L2 masks cover an entry");

/* Bits of a compressed entry that hold the host byte offset: x in the specification. */
static unsigned compressed_offset_bits(const struct geometry *geometry) { return 62 - (geometry->cluster_bits - 8); }

static uint64_t low_bits(unsigned count) { return (UINT64_C(1) << count) - 1; }

static void decode_compressed(const struct geometry *geometry, uint64_t entry, struct cluster *cluster) {
    const unsigned offset_bits = compressed_offset_bits(geometry);
    const uint64_t further_sectors = (entry >> offset_bits) & low_bits(geometry->cluster_bits - 8);
    cluster->host_offset = entry & low_bits(offset_bits);
    cluster->byte_length = (further_sectors + 1) * SECTOR_SIZE - cluster->host_offset % SECTOR_SIZE;
    const bool valid = cluster->host_offset >> FORMAT_HOST_OFFSET_BITS == 0 && cluster->bitmap == 0;
    cluster->type = valid ? CLUSTER_COMPRESSED : CLUSTER_INVALID;
}

static bool standard_is_valid(const struct geometry *geometry, uint64_t entry, const struct cluster *cluster) {
    const uint64_t subclusters_allocated = cluster->bitmap & BITMAP_ALLOCATED;
    if ((entry & STANDARD_RESERVED) != 0 || geometry_in_cluster(geometry, cluster->host_offset) != 0) return false;
    if ((entry & FORMAT_ENTRY_ZERO) != 0 && (geometry->version < 3 || geometry->extended_l2)) return false;
    if (cluster->host_offset == 0 && (cluster->copied || subclusters_allocated != 0)) return false;
    return (cluster->bitmap >> 32 & subclusters_allocated) == 0;
}

static void decode_standard(const struct geometry *geometry, uint64_t entry, struct cluster *cluster) {
    cluster->host_offset = entry & FORMAT_ENTRY_OFFSET;
    const bool zero = (entry & FORMAT_ENTRY_ZERO) != 0;
    if (!standard_is_valid(geometry, entry, cluster)) cluster->type = CLUSTER_INVALID;
    else if (cluster->host_offset == 0) cluster->type = zero ? CLUSTER_ZERO : CLUSTER_UNALLOCATED;
    else cluster->type = zero ? CLUSTER_ZERO_ALLOC : CLUSTER_NORMAL;
}

struct cluster cluster_decode(const struct geometry *geometry, const uint8_t *bytes) {
    const uint64_t entry = load_be64(bytes);
    if (entry == 0 && !geometry->extended_l2) return (struct cluster){.type = CLUSTER_UNALLOCATED};
    struct cluster cluster = {
        .copied = (entry & FORMAT_ENTRY_COPIED) != 0,
        .bitmap = geometry->extended_l2 ? load_be64(bytes + 8) : 0,
    };
    if ((entry & FORMAT_ENTRY_COMPRESSED) != 0) decode_compressed(geometry, entry, &cluster);
    else decode_standard(geometry, entry, &cluster);
    return cluster;
}

static uint64_t encode_compressed(const struct geometry *geometry, const struct cluster *cluster) {
    assert(cluster->byte_length > 0 && cluster->host_offset >> FORMAT_HOST_OFFSET_BITS == 0);
    const uint64_t last_byte = cluster->host_offset + cluster->byte_length - 1;
    const uint64_t further_sectors = last_byte / SECTOR_SIZE - cluster->host_offset / SECTOR_SIZE;
    assert(further_sectors <= low_bits(geometry->cluster_bits - 8));
    return FORMAT_ENTRY_COMPRESSED | further_sectors << compressed_offset_bits(geometry) | cluster->host_offset;
}

static uint64_t encode_standard(const struct cluster *cluster) {
    const bool zero = cluster->type == CLUSTER_ZERO || cluster->type == CLUSTER_ZERO_ALLOC;
    const bool allocated = cluster->type == CLUSTER_NORMAL || cluster->type == CLUSTER_ZERO_ALLOC;
    uint64_t entry = zero ? FORMAT_ENTRY_ZERO : 0;
    if (allocated) entry |= cluster->host_offset | (cluster->copied ? FORMAT_ENTRY_COPIED : 0);
    return entry;
}

void cluster_encode(const struct geometry *geometry, const struct cluster *cluster, uint8_t *bytes) {
    const bool compressed = cluster->type == CLUSTER_COMPRESSED;
    store_be64(bytes, compressed ? encode_compressed(geometry, cluster) : encode_standard(cluster));
    if (geometry->extended_l2) store_be64(bytes + 8, compressed ? 0 : cluster->bitmap);
    assert(cluster_decode(geometry, bytes).type == cluster->type);
}

uint32_t cluster_count_alike(const struct geometry *geometry, const uint8_t *bytes, uint32_t limit) {
    const uint64_t first = load_be64(bytes), flags = first & ~FORMAT_ENTRY_OFFSET;
    const uint64_t step = (first & FORMAT_ENTRY_OFFSET) != 0 ? geometry->cluster_size : 0;
    const uint64_t bitmap = geometry->extended_l2 ? load_be64(bytes + 8) : 0;
    if ((first & FORMAT_ENTRY_COMPRESSED) != 0) return 1;
    uint64_t expected = first;
    for (uint32_t count = 1; count < limit; count++) {
        expected += step;
        bytes += geometry->l2_entry_size;
        if (load_be64(bytes) != expected || (expected & ~FORMAT_ENTRY_OFFSET) != flags) return count;
        if (geometry->extended_l2 && load_be64(bytes + 8) != bitmap) return count;
    }
    return limit;
}

const char *cluster_type_name(enum cluster_type type) {
    switch (type) {
        case CLUSTER_UNALLOCATED: return "unallocated";
        case CLUSTER_NORMAL: return "normal";
        case CLUSTER_ZERO: return "zero";
        case CLUSTER_ZERO_ALLOC: return "preallocated zero";
        case CLUSTER_COMPRESSED: return "compressed";
        case CLUSTER_INVALID: break;
    }
    return "invalid";
}
