/* SPDX-License-Identifier: MIT
 *
 * The on-disk structures of qcow2 and their masks, beside the specification's own words.
 *
 * Numbers are big-endian. Offsets are in bytes from the start of the structure.
 *
 * Header
 *   bytes    field                     rules
 *   0–3      magic                     'Q' 'F' 'I' 0xfb
 *   4–7      version                   2 or 3
 *   8–15     backing_file_offset       0 = none; the name lies in the first cluster, after the extensions
 *   16–19    backing_file_size         at most 1023
 *   20–23    cluster_bits              9–21
 *   24–31    size                      virtual size in bytes
 *   32–35    crypt_method              0 none, 1 AES, 2 LUKS
 *   36–39    l1_size                   entries of the active L1 table
 *   40–47    l1_table_offset           cluster-aligned
 *   48–55    refcount_table_offset     cluster-aligned
 *   56–59    refcount_table_clusters
 *   60–63    nb_snapshots
 *   64–71    snapshots_offset          cluster-aligned
 *   version 2 ends here
 *   72–79    incompatible_features     bit 0 dirty, 1 corrupt, 2 external data file, 3 compression type, 4 extended L2
 *   80–87    compatible_features       bit 0 lazy refcounts
 *   88–95    autoclear_features        bit 0 bitmaps, 1 raw external data
 *   96–99    refcount_order            0–6
 *   100–103  header_length             at least 104, multiple of 8
 *   104      compression_type          0 deflate, 1 zstd
 *
 * L1 entry             bits 9–55 offset of an L2 table, bit 63 COPIED
 * L2 entry, standard   bit 0 reads as zeroes, bits 9–55 host offset, bit 62 clear, bit 63 COPIED
 * L2 entry, compressed bit 62 set; x = 62 − (cluster_bits − 8): bits 0..x−1 host offset, x..61 further sectors
 * Refcount table entry bits 9–63 offset of a refcount block
 */
#ifndef QCOW2_FORMAT_FORMAT_H
#define QCOW2_FORMAT_FORMAT_H

#include <stdint.h>

#define FORMAT_MAGIC UINT32_C(0x514649fb)

#define FORMAT_CLUSTER_BITS_MIN 9u
#define FORMAT_CLUSTER_BITS_MAX 21u
#define FORMAT_CLUSTER_BITS_DEFAULT 16u
#define FORMAT_EXTENDED_L2_CLUSTER_BITS_MIN 14u
#define FORMAT_SUBCLUSTER_BITS 5u /* extended L2: 32 subclusters a cluster */
#define FORMAT_REFCOUNT_ORDER_MAX 6u
#define FORMAT_REFCOUNT_ORDER_DEFAULT 4u
#define FORMAT_BACKING_NAME_MAX 1023u

/* Limits of the reference implementation, which images must stay below to be read everywhere. */
#define FORMAT_L1_BYTES_MAX (UINT64_C(32) << 20)
#define FORMAT_REFCOUNT_TABLE_BYTES_MAX (UINT64_C(8) << 20)
#define FORMAT_SNAPSHOTS_MAX 65536u
#define FORMAT_HOST_OFFSET_BITS 56u /* host offsets in L1 and L2 entries end below 2^56 */

enum {
    FORMAT_INCOMPATIBLE_OFFSET = 72,
    FORMAT_AUTOCLEAR_OFFSET = 88,
    FORMAT_HEADER_V2_LENGTH = 72,
    FORMAT_HEADER_V3_LENGTH = 104, /* the least that version 3 allows */
    FORMAT_HEADER_LENGTH = 112,    /* what we write: with compression type and padding */
};

#define FORMAT_INCOMPATIBLE_DIRTY (UINT64_C(1) << 0)
#define FORMAT_INCOMPATIBLE_CORRUPT (UINT64_C(1) << 1)
#define FORMAT_INCOMPATIBLE_DATA_FILE (UINT64_C(1) << 2)
#define FORMAT_INCOMPATIBLE_COMPRESSION (UINT64_C(1) << 3)
#define FORMAT_INCOMPATIBLE_EXTENDED_L2 (UINT64_C(1) << 4)
#define FORMAT_INCOMPATIBLE_KNOWN UINT64_C(0x1f)

#define FORMAT_COMPATIBLE_LAZY_REFCOUNTS (UINT64_C(1) << 0)

#define FORMAT_AUTOCLEAR_BITMAPS (UINT64_C(1) << 0)
#define FORMAT_AUTOCLEAR_RAW_DATA (UINT64_C(1) << 1)
#define FORMAT_AUTOCLEAR_KNOWN UINT64_C(0x3)

#define FORMAT_ENTRY_OFFSET UINT64_C(0x00fffffffffffe00) /* bits 9–55 of an L1 or L2 entry */
#define FORMAT_ENTRY_COPIED (UINT64_C(1) << 63)
#define FORMAT_ENTRY_COMPRESSED (UINT64_C(1) << 62)
#define FORMAT_ENTRY_ZERO UINT64_C(1)
#define FORMAT_L1_RESERVED UINT64_C(0x7f000000000001ff)
#define FORMAT_REFCOUNT_TABLE_RESERVED UINT64_C(0x1ff)

#define FORMAT_EXTENSION_END UINT32_C(0)
#define FORMAT_EXTENSION_BACKING_FORMAT UINT32_C(0xe2792aca)
#define FORMAT_EXTENSION_FEATURE_NAMES UINT32_C(0x6803f857)
#define FORMAT_EXTENSION_BITMAPS UINT32_C(0x23852875)
#define FORMAT_EXTENSION_ENCRYPTION UINT32_C(0x0537be77)
#define FORMAT_EXTENSION_DATA_FILE UINT32_C(0x44415441)

_Static_assert((FORMAT_ENTRY_OFFSET | FORMAT_L1_RESERVED | FORMAT_ENTRY_COPIED) == UINT64_MAX, "the L1 masks cover an entry");
_Static_assert((FORMAT_ENTRY_OFFSET & (FORMAT_ENTRY_COPIED | FORMAT_ENTRY_COMPRESSED | FORMAT_ENTRY_ZERO)) == 0, "flags are no offset");

#endif
