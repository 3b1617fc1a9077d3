/* SPDX-License-Identifier: MIT
 *
 * The part of the geometry that is computed once. Everything follows from four numbers of the header; both tables are
 * one cluster long, so their entries are powers of two and each conversion in geometry.h is a shift.
 */
#include "format/geometry.h"

#include <assert.h>
#include <errno.h>

#include "base/bytes.h"

#define L1_ENTRIES_MAX (FORMAT_L1_BYTES_MAX / sizeof(uint64_t))

_Static_assert((L1_ENTRIES_MAX << (2 * FORMAT_CLUSTER_BITS_MAX - 3)) < INT64_MAX, "what the largest L1 table maps needs no saturation");

void geometry_set(struct geometry *geometry, unsigned version, unsigned cluster_bits, unsigned refcount_order, bool extended_l2) {
    assert(cluster_bits >= FORMAT_CLUSTER_BITS_MIN && cluster_bits <= FORMAT_CLUSTER_BITS_MAX);
    assert(refcount_order <= FORMAT_REFCOUNT_ORDER_MAX);
    const unsigned l2_entry_bits = extended_l2 ? 4 : 3;
    *geometry = (struct geometry){
        .cluster_bits = cluster_bits,
        .refcount_order = refcount_order,
        .l2_bits = cluster_bits - l2_entry_bits,
        .block_bits = cluster_bits + 3 - refcount_order,
        .version = version,
        .extended_l2 = extended_l2,
        .cluster_size = UINT32_C(1) << cluster_bits,
        .subcluster_size = UINT32_C(1) << (extended_l2 ? cluster_bits - FORMAT_SUBCLUSTER_BITS : cluster_bits),
        .l2_entry_size = UINT32_C(1) << l2_entry_bits,
        .refcount_max = bits_max(refcount_order),
    };
}

uint64_t geometry_size_max(const struct geometry *geometry) { return L1_ENTRIES_MAX * geometry_l2_span(geometry); }

int geometry_check_size(const struct geometry *geometry, uint64_t size, struct error *error) {
    if (size <= geometry_size_max(geometry)) return 0;
    return error_set(error, -EFBIG,
                     "size %llu is more than the %llu bytes that clusters of %u bytes can map (the L1 table is capped at 32 MiB)",
                     (unsigned long long) size, (unsigned long long) geometry_size_max(geometry), geometry->cluster_size);
}

uint64_t geometry_l1_entries(const struct geometry *geometry, uint64_t size) { return ceil_div_u64(size, geometry_l2_span(geometry)); }
