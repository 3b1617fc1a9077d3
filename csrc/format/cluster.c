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
 * COPIED without a host offset is invalid; in an external data file host offset 0 is a place like any other, and COPIED tells. With
 * extended L2 the entry says only whether there is a host cluster; the bitmap says what each of 32 subclusters is, in the same four
 * ways.
 */
#include "format/cluster.h"

#include <assert.h>

#include "base/bytes.h"
#include "format/format.h"

#define SECTOR_SIZE 512u
#define STANDARD_RESERVED UINT64_C(0x3f000000000001fe) /* bits 1–8 and 56–61 */
#define BITMAP_ALL UINT64_C(0x00000000ffffffff)        /* extended L2: one bit a subcluster; allocated below, zero above */
#define ZERO_SHIFT 32

_Static_assert((STANDARD_RESERVED | FORMAT_ENTRY_OFFSET | FORMAT_ENTRY_COPIED | FORMAT_ENTRY_COMPRESSED | FORMAT_ENTRY_ZERO) == UINT64_MAX,
               "the L2 masks cover an entry");

/* Bits of a compressed entry that hold the host byte offset: x in the specification. */
static unsigned compressed_offset_bits(const struct geometry *geometry) { return 62 - (geometry->cluster_bits - 8); }

uint64_t cluster_compressed_end(const struct geometry *geometry) {
    const unsigned bits = compressed_offset_bits(geometry);
    return UINT64_C(1) << (bits < FORMAT_HOST_OFFSET_BITS ? bits : FORMAT_HOST_OFFSET_BITS);
}

static uint64_t low_bits(unsigned count) { return (UINT64_C(1) << count) - 1; }

static void decode_compressed(const struct geometry *geometry, uint64_t entry, struct cluster *cluster) {
    const unsigned offset_bits = compressed_offset_bits(geometry);
    const uint64_t further_sectors = (entry >> offset_bits) & low_bits(geometry->cluster_bits - 8);
    cluster->host_offset = entry & low_bits(offset_bits);
    cluster->byte_length = (further_sectors + 1) * SECTOR_SIZE - cluster->host_offset % SECTOR_SIZE;
    const bool valid = cluster->host_offset >> FORMAT_HOST_OFFSET_BITS == 0 && cluster->bitmap == 0 && !geometry->data_file;
    cluster->type = valid ? CLUSTER_COMPRESSED : CLUSTER_INVALID;
}

static bool has_place(const struct geometry *geometry, const struct cluster *cluster) {
    return cluster->host_offset != 0 || (geometry->data_file && cluster->copied);
}

static bool standard_is_valid(const struct geometry *geometry, uint64_t entry, const struct cluster *cluster) {
    const uint64_t subclusters_allocated = cluster->bitmap & BITMAP_ALL;
    if ((entry & STANDARD_RESERVED) != 0 || geometry_in_cluster(geometry, cluster->host_offset) != 0) return false;
    if ((entry & FORMAT_ENTRY_ZERO) != 0 && (geometry->version < 3 || geometry->extended_l2)) return false;
    if (!has_place(geometry, cluster) && (cluster->copied || subclusters_allocated != 0)) return false;
    return (cluster->bitmap >> ZERO_SHIFT & subclusters_allocated) == 0;
}

static void decode_standard(const struct geometry *geometry, uint64_t entry, struct cluster *cluster) {
    cluster->host_offset = entry & FORMAT_ENTRY_OFFSET;
    const bool zero = (entry & FORMAT_ENTRY_ZERO) != 0;
    if (!standard_is_valid(geometry, entry, cluster)) cluster->type = CLUSTER_INVALID;
    else if (!has_place(geometry, cluster)) cluster->type = zero ? CLUSTER_ZERO : CLUSTER_UNALLOCATED;
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

/* ---- subclusters ---- */

bool cluster_is_placed(const struct cluster *cluster) { return cluster->type == CLUSTER_NORMAL || cluster->type == CLUSTER_ZERO_ALLOC; }

static bool has_subclusters(const struct geometry *geometry, const struct cluster *cluster) {
    return geometry->extended_l2 && (cluster->type == CLUSTER_NORMAL || cluster->type == CLUSTER_UNALLOCATED);
}

enum cluster_type cluster_type_at(const struct geometry *geometry, const struct cluster *cluster, uint32_t in_cluster) {
    if (!has_subclusters(geometry, cluster)) return cluster->type;
    const uint64_t bits = cluster->bitmap >> in_cluster / geometry->subcluster_size;
    if ((bits & 1) != 0) return CLUSTER_NORMAL;
    if ((bits >> ZERO_SHIFT & 1) == 0) return CLUSTER_UNALLOCATED;
    return cluster_is_placed(cluster) ? CLUSTER_ZERO_ALLOC : CLUSTER_ZERO;
}

uint32_t cluster_alike_end(const struct geometry *geometry, const struct cluster *cluster, uint32_t in_cluster) {
    const enum cluster_type type = cluster_type_at(geometry, cluster, in_cluster);
    uint32_t end = in_cluster - in_cluster % geometry->subcluster_size;
    while (end < geometry->cluster_size && cluster_type_at(geometry, cluster, end) == type) end += geometry->subcluster_size;
    return end;
}

enum cluster_type cluster_whole_type(const struct geometry *geometry, const struct cluster *cluster) {
    if (!has_subclusters(geometry, cluster)) return cluster->type;
    if (cluster->bitmap == BITMAP_ALL << ZERO_SHIFT) return cluster_type_at(geometry, cluster, 0);
    return cluster->bitmap == 0 ? cluster->type : CLUSTER_NORMAL;
}

uint64_t cluster_subclusters(const struct geometry *geometry, uint32_t start, uint32_t end) {
    const uint64_t first = start / geometry->subcluster_size, last = ceil_div_u64(end, geometry->subcluster_size);
    return low_bits((unsigned) last) & ~low_bits((unsigned) first);
}

void cluster_mark_allocated(struct cluster *cluster, uint64_t subclusters) {
    cluster->bitmap = (cluster->bitmap | subclusters) & ~(subclusters << ZERO_SHIFT);
}

void cluster_mark_zero(struct cluster *cluster, uint64_t subclusters) {
    cluster->bitmap = (cluster->bitmap | subclusters << ZERO_SHIFT) & ~subclusters;
}

struct cluster cluster_of_zeroes(const struct geometry *geometry, const struct cluster *kept) {
    struct cluster zeroes = {.type = CLUSTER_ZERO};
    if (kept != NULL) zeroes = (struct cluster){.type = CLUSTER_ZERO_ALLOC, .copied = kept->copied, .host_offset = kept->host_offset};
    if (!geometry->extended_l2) return zeroes;
    zeroes.type = kept != NULL ? CLUSTER_NORMAL : CLUSTER_UNALLOCATED;
    cluster_mark_zero(&zeroes, BITMAP_ALL);
    return zeroes;
}

struct cluster cluster_at(const struct geometry *geometry, uint64_t host_offset) {
    return (struct cluster){
        .type = CLUSTER_NORMAL, .copied = true, .host_offset = host_offset, .bitmap = geometry->extended_l2 ? BITMAP_ALL : 0};
}

uint32_t cluster_count_alike(const struct geometry *geometry, const uint8_t *bytes, uint32_t limit) {
    const uint64_t first = load_be64(bytes), flags = first & ~FORMAT_ENTRY_OFFSET;
    const bool placed = (first & FORMAT_ENTRY_OFFSET) != 0 || (geometry->data_file && (first & FORMAT_ENTRY_COPIED) != 0);
    const uint64_t step = placed ? geometry->cluster_size : 0;
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
