/* SPDX-License-Identifier: MIT
 *
 * format/: geometry, cluster and header against numbers worked out by hand, against qemu-img's bytes, against themselves
 * (round trips) and against nonsense (every byte flipped, every length cut, seeded mutations). Run it under ASan and UBSan:
 * buffers are exactly as long as the file would be, so that a read past the end is seen.
 *
 *     format_test [mutations]
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/memory.h"
#include "format/cluster.h"
#include "format/format.h"
#include "format/geometry.h"
#include "format/header.h"
#include "unit.h"

#define MAX_CLUSTER ((size_t) 1 << FORMAT_CLUSTER_BITS_MAX)

static uint64_t state;

static uint64_t random_u64(void) { return unit_random(&state); }
static unsigned random_below(unsigned limit) { return (unsigned) unit_below(&state, limit); }

/* For results that come with a sentence: shows it when the check fails. */
#define CHECK_OK(call, error) check_ok((call), #call, &(error), __LINE__)
static void check_ok(int code, const char *call, const struct error *error, int line) {
    if (code != 0) fprintf(stderr, "%d: %s\n", code, error->text);
    unit_check(code == 0, call, __FILE__, line);
}

/* ---- geometry ---- */

static void test_geometry(void) {
    struct geometry g;
    geometry_set(&g, 3, 16, 4, false);
    CHECK(g.cluster_size == 65536 && g.l2_entry_size == 8 && g.l2_bits == 13 && g.block_bits == 15 && g.refcount_max == 65535);
    CHECK(geometry_l2_span(&g) == UINT64_C(512) << 20 && geometry_size_max(&g) == UINT64_C(2) << 50);
    CHECK(geometry_l1_entries(&g, 0) == 0 && geometry_l1_entries(&g, 1) == 1 && geometry_l1_entries(&g, UINT64_C(1) << 30) == 2);
    CHECK(geometry_l1_entries(&g, (UINT64_C(1) << 30) + 1) == 3 && geometry_l1_entries(&g, UINT64_MAX) == UINT64_C(1) << 35);
    CHECK(geometry_l1_index(&g, UINT64_C(1) << 29) == 1 && geometry_l2_index(&g, (UINT64_C(1) << 29) + 65536 * 7 + 5) == 7);
    CHECK(geometry_clusters_for(&g, 0) == 0 && geometry_clusters_for(&g, 65536) == 1 && geometry_clusters_for(&g, 65537) == 2);
    geometry_set(&g, 3, 9, 0, false);
    CHECK(geometry_size_max(&g) == UINT64_C(128) << 30 && g.block_bits == 12 && g.refcount_max == 1);
    geometry_set(&g, 3, 21, 6, false);
    CHECK(geometry_size_max(&g) == UINT64_C(2) << 60 && g.block_bits == 18 && g.refcount_max == UINT64_MAX);
    geometry_set(&g, 3, 21, 6, true);
    CHECK(geometry_size_max(&g) == UINT64_C(1) << 60 && g.l2_entry_size == 16 && g.l2_bits == 17);

    for (unsigned bits = FORMAT_CLUSTER_BITS_MIN; bits <= FORMAT_CLUSTER_BITS_MAX; bits++) {
        geometry_set(&g, 3, bits, random_below(7), bits >= 14 && random_below(2) == 1);
        const uint64_t offset = random_u64() >> 8;
        CHECK(geometry_cluster_start(&g, offset) + geometry_in_cluster(&g, offset) == offset);
        CHECK(geometry_offset(&g, geometry_cluster(&g, offset)) == geometry_cluster_start(&g, offset));
        CHECK(geometry_l1_index(&g, offset) * geometry_l2_span(&g) + geometry_offset(&g, geometry_l2_index(&g, offset)) ==
              geometry_cluster_start(&g, offset));
        const uint64_t cluster = geometry_cluster(&g, offset);
        CHECK(geometry_block_index(&g, cluster) * geometry_block_entries(&g) + geometry_in_block(&g, cluster) == cluster);
        CHECK(geometry_l1_entries(&g, geometry_size_max(&g)) * 8 == FORMAT_L1_BYTES_MAX);
    }
}

/* ---- cluster ---- */

static struct cluster decode(const struct geometry *g, uint64_t entry, uint64_t bitmap) {
    uint8_t bytes[16];
    store_be64(bytes, entry);
    store_be64(bytes + 8, bitmap);
    return cluster_decode(g, bytes);
}

static void test_cluster_entries(void) {
    struct geometry v2, v3, extended, small;
    geometry_set(&v2, 2, 16, 4, false);
    geometry_set(&v3, 3, 16, 4, false);
    geometry_set(&extended, 3, 16, 4, true);
    geometry_set(&small, 3, 9, 4, false);
    const uint64_t copied = FORMAT_ENTRY_COPIED, compressed = FORMAT_ENTRY_COMPRESSED;

    CHECK(decode(&v3, 0, 0).type == CLUSTER_UNALLOCATED);
    CHECK(decode(&v3, 1, 0).type == CLUSTER_ZERO && decode(&v2, 1, 0).type == CLUSTER_INVALID);
    CHECK(decode(&v3, copied | 0x50000, 0).type == CLUSTER_NORMAL && decode(&v3, copied | 0x50000, 0).copied);
    CHECK(decode(&v3, 0x50000, 0).host_offset == 0x50000 && !decode(&v3, 0x50000, 0).copied);
    CHECK(decode(&v3, copied | 0x50001, 0).type == CLUSTER_ZERO_ALLOC && decode(&v2, copied | 0x50001, 0).type == CLUSTER_INVALID);
    CHECK(decode(&v3, copied | 0x50200, 0).type == CLUSTER_INVALID && decode(&v3, copied, 0).type == CLUSTER_INVALID);
    CHECK(decode(&v3, copied | 1, 0).type == CLUSTER_INVALID);
    for (unsigned bit = 0; bit < 64; bit++) {
        const bool reserved = (bit >= 1 && bit <= 8) || (bit >= 56 && bit <= 61);
        const enum cluster_type type = decode(&v3, UINT64_C(0x50000) | UINT64_C(1) << bit, 0).type;
        if (reserved) CHECK(type == CLUSTER_INVALID);
        else if (bit == 62) CHECK(type == CLUSTER_COMPRESSED);
        else if (bit == 0) CHECK(type == CLUSTER_ZERO_ALLOC);
        else CHECK(type == (bit >= 9 && bit <= 15 ? CLUSTER_INVALID : CLUSTER_NORMAL));
    }

    /* 64 KiB clusters: x = 54. Byte 0x12345, 3 further sectors: up to the end of the sector at 0x12200 + 3 × 512. */
    const struct cluster c = decode(&v3, compressed | UINT64_C(3) << 54 | 0x12345, 0);
    CHECK(c.type == CLUSTER_COMPRESSED && c.host_offset == 0x12345 && c.byte_length == 0x12a00 - 0x12345);
    CHECK(decode(&small, compressed | UINT64_C(1) << 56, 0).type == CLUSTER_INVALID);
    CHECK(decode(&small, compressed | UINT64_C(1) << 61 | 1, 0).byte_length == 1023);

    const uint64_t all_zero = UINT64_C(0xffffffff) << 32;
    CHECK(decode(&extended, 1, 0).type == CLUSTER_INVALID && decode(&extended, 0, all_zero).type == CLUSTER_UNALLOCATED);
    CHECK(decode(&extended, 0x50000, all_zero | 1).type == CLUSTER_INVALID && decode(&extended, 0, 1).type == CLUSTER_INVALID);
    CHECK(decode(&extended, 0x50000, 0xffff).type == CLUSTER_NORMAL && decode(&extended, 0x50000, 0xffff).bitmap == 0xffff);
    CHECK(decode(&extended, compressed | 0x50000, 0).type == CLUSTER_COMPRESSED &&
          decode(&extended, compressed, 1).type == CLUSTER_INVALID);

    static const char *const names[] = {"unallocated", "normal", "zero", "preallocated zero", "compressed", "invalid"};
    for (unsigned type = 0; type <= CLUSTER_INVALID; type++) CHECK(strcmp(cluster_type_name((enum cluster_type) type), names[type]) == 0);
}

/* An entry that has a fair chance to be valid. */
static uint64_t random_entry(const struct geometry *g) {
    uint64_t entry = random_u64() & random_u64();
    if (random_below(4) > 0) entry &= ~UINT64_C(0x3f000000000001fe);
    if (random_below(4) > 0 && (entry & FORMAT_ENTRY_COMPRESSED) == 0) entry &= ~(uint64_t) (g->cluster_size - 1) | 1;
    if (random_below(3) > 0) entry &= ~UINT64_C(1);
    if (random_below(8) == 0) entry &= 1;
    return entry;
}

static void test_cluster_round_trip(void) {
    unsigned valid[CLUSTER_INVALID + 1] = {0};
    for (unsigned i = 0; i < 400000; i++) {
        const unsigned bits = FORMAT_CLUSTER_BITS_MIN + random_below(13), version = 2 + random_below(2);
        struct geometry g;
        geometry_set(&g, version, bits, 4, version == 3 && bits >= 14 && random_below(2) == 1);
        uint8_t before[16] = {0}, after[16] = {0};
        const uint64_t entry = random_entry(&g);
        store_be64(before, entry);
        if (g.extended_l2 && random_below(2) == 1) store_be64(before + 8, random_u64() & random_u64() & UINT64_C(0xffff0000ff00ff));
        const struct cluster cluster = cluster_decode(&g, before);
        valid[cluster.type]++;
        if (cluster.type == CLUSTER_INVALID) continue;
        cluster_encode(&g, &cluster, after);
        if (cluster.type == CLUSTER_COMPRESSED) store_be64(before, entry & ~FORMAT_ENTRY_COPIED); /* never written there */
        CHECK(memcmp(before, after, sizeof before) == 0);
    }
    for (unsigned type = 0; type <= CLUSTER_INVALID; type++) CHECK(valid[type] > 100);
}

/* ---- headers to work with ---- */

static void basic_header(struct header *header, unsigned version, unsigned cluster_bits) {
    *header = (struct header){
        .version = version,
        .cluster_bits = cluster_bits,
        .size = UINT64_C(1) << 20,
        .l1_size = (uint32_t) ceil_div_u64(UINT64_C(1) << 20, UINT64_C(1) << (2 * cluster_bits - 3)),
        .l1_table_offset = UINT64_C(3) << cluster_bits,
        .refcount_table_offset = UINT64_C(1) << cluster_bits,
        .refcount_table_clusters = 1,
        .refcount_order = 4,
        .header_length = version == 2 ? 72 : 112,
    };
}

static void random_bytes(uint8_t *bytes, size_t length) {
    for (size_t i = 0; i < length; i++) bytes[i] = (uint8_t) random_u64();
}

static void random_extension(struct header *header, uint32_t type, unsigned most) {
    uint8_t data[64];
    const unsigned length = random_below(most + 1);
    random_bytes(data, length);
    CHECK(header_set_extension(header, type, data, length) == 0);
}

/* A valid header with whatever may be in one. */
static void random_header(struct header *header, unsigned cluster_bits) {
    basic_header(header, 2 + random_below(2), cluster_bits);
    header->size = random_u64() >> random_below(64);
    header->nb_snapshots = random_below(10);
    header->snapshots_offset = UINT64_C(9) << cluster_bits;
    if (header->version == 3) {
        header->refcount_order = random_below(7);
        header->compatible_features = random_u64() & random_u64();
        header->autoclear_features = random_u64() & ~FORMAT_AUTOCLEAR_BITMAPS;
        header->incompatible_features = random_below(8);
        header->header_length = 104 + 8 * random_below(4);
        if (header->header_length >= 112 && random_below(2) == 1) {
            header->compression_type = 1;
            header->incompatible_features |= FORMAT_INCOMPATIBLE_COMPRESSION;
        }
        if (cluster_bits >= 14 && random_below(2) == 1) header->incompatible_features |= FORMAT_INCOMPATIBLE_EXTENDED_L2;
        if (header->header_length > 112) {
            header->unknown_length = header->header_length - 112;
            header->unknown = memory_zeroed(header->unknown_length);
            random_bytes(header->unknown, header->unknown_length);
        }
    }
    if (random_below(2) == 1) random_extension(header, FORMAT_EXTENSION_BACKING_FORMAT, 15);
    if (random_below(2) == 1) random_extension(header, FORMAT_EXTENSION_DATA_FILE, 20);
    for (unsigned i = random_below(3); i > 0; i--) random_extension(header, 0x10000000u + random_below(1000), 20);
    if (random_below(2) == 1) CHECK(header_add_feature_names(header) == 0);
    if (random_below(2) == 1) {
        char name[64];
        const unsigned length = 1 + random_below(60);
        memset(name, 'a' + (int) random_below(26), length);
        header->backing_file = memory_text(name, length);
    }
}

static void test_header_round_trip(void) {
    static uint8_t first[MAX_CLUSTER], second[MAX_CLUSTER];
    for (unsigned i = 0; i < 1300; i++) {
        const unsigned bits = FORMAT_CLUSTER_BITS_MIN + i % 13;
        const size_t cluster_size = (size_t) 1 << bits;
        struct header header, again;
        struct error error = {0};
        size_t used, used_again;
        random_header(&header, bits);
        CHECK_OK(header_write(&header, first, cluster_size, &used, &error), error);
        CHECK_OK(header_read(&again, first, cluster_size, &error), error);
        CHECK(again.size == header.size && again.header_length == header.header_length && again.extension_count == header.extension_count);
        CHECK(again.unknown_length == header.unknown_length && again.compression_type == header.compression_type);
        CHECK((again.backing_file != NULL) == (header.backing_file != NULL));
        CHECK(header.backing_file == NULL || strcmp(again.backing_file, header.backing_file) == 0);
        CHECK_OK(header_write(&again, second, cluster_size, &used_again, &error), error);
        CHECK(used == used_again && memcmp(first, second, cluster_size) == 0);
        header_clear(&again);
        header_clear(&header);
    }
}

/* ---- sentences ---- */

static uint8_t image[65536];

/* The sentence of header_read, else of header_check_tables, else of header_check_features, for a file whose first cluster is
 * `image` with `size` bytes at `offset` replaced by `value`; "" when nothing is wrong. */
static const char *sentence(unsigned offset, unsigned size, uint64_t value) {
    static struct error error;
    static uint8_t bytes[sizeof image];
    struct header header;
    memcpy(bytes, image, sizeof image);
    if (size == 1) bytes[offset] = (uint8_t) value;
    if (size == 4) store_be32(bytes + offset, (uint32_t) value);
    if (size == 8) store_be64(bytes + offset, value);
    error_clear(&error);
    if (header_read(&header, bytes, sizeof bytes, &error) == 0 && header_check_tables(&header, 3 * 65536 + 8, &error) == 0) {
        header_check_features(&header, &error);
    }
    header_clear(&header);
    return error.text;
}

static void expect(unsigned offset, unsigned size, uint64_t value, const char *wanted) {
    const char *found = sentence(offset, size, value);
    const bool same = strcmp(found, wanted) == 0;
    if (!same) fprintf(stderr, "offset %u, value 0x%" PRIx64 "\n  found:  %s\n  wanted: %s\n", offset, value, found, wanted);
    CHECK(same);
}

static void test_sentences(void) {
    struct header header;
    struct error error = {0};
    size_t used;
    basic_header(&header, 3, 16);
    CHECK(header_set_extension(&header, FORMAT_EXTENSION_BACKING_FORMAT, "qcow2", 5) == 0 && header_add_feature_names(&header) == 0);
    header.backing_file = memory_text("base.qcow2", 10);
    CHECK(header_write(&header, image, sizeof image, &used, &error) == 0 && used == 0x21a);
    header_clear(&header);

    expect(0, 1, 'Q', "");
    expect(0, 4, 0, "magic at offset 0 is 0x00000000; a qcow2 image has 0x514649fb");
    expect(4, 4, 4, "version at offset 4 is 4; 2 and 3 are supported");
    expect(8, 8, 0x211, "the backing file name at offset 529 has a zero byte in it");
    expect(8, 8, 65536 - 9,
           "backing_file_offset at offset 8 is 0xfff7; a name of 10 bytes must lie between the header's end at 112 and the "
           "cluster's end at 65536");
    expect(8, 8, UINT64_MAX,
           "backing_file_offset at offset 8 is 0xffffffffffffffff; a name of 10 bytes must lie between the header's end at 112 and "
           "the cluster's end at 65536");
    expect(8, 8, 0x88, "the length of header extension 0x6803f857 at offset 132 is 384; there is room for 0 bytes");
    expect(8, 8, 0x84, "the header extension at offset 128 has no room for type and length before offset 132");
    expect(16, 4, 1024, "backing_file_size at offset 16 is 1024; at most 1023 is allowed");
    expect(20, 4, 35, "cluster_bits at offset 20 is 35; 9 to 21 are allowed");
    expect(24, 8, UINT64_C(1) << 29, "");
    expect(24, 8, (UINT64_C(1) << 29) + 1, "l1_size at offset 36 is 1; the virtual size of 536870913 bytes at offset 24 takes 2");
    expect(24, 8, UINT64_MAX, "l1_size at offset 36 is 1; the virtual size of 18446744073709551615 bytes at offset 24 takes 34359738368");
    expect(32, 4, 3, "crypt_method at offset 32 is 3; 0 (none), 1 (AES) and 2 (LUKS) are allowed");
    expect(36, 4, 2, "l1_table_offset at offset 40 is 0x30000, but an L1 table of 16 bytes there passes the file's end at 196616");
    expect(36, 4, 4194305, "l1_size at offset 36 is 4194305; at most 4194304 (32 MiB of entries) is allowed");
    expect(40, 8, 0, "l1_table_offset at offset 40 is 0, where the header is");
    expect(40, 8, 0x20200, "l1_table_offset at offset 40 is 0x20200, not a multiple of the cluster size 65536");
    expect(40, 8, 0x10000, "refcount_table_offset at offset 48 is 0x10000, but an L1 table of 8 bytes lies at 0x10000");
    expect(40, 8, UINT64_C(0xffffffffffff0000),
           "l1_table_offset at offset 40 is 0xffffffffffff0000, but an L1 table of 8 bytes there passes the file's end at 196616");
    expect(48, 8, 0, "refcount_table_offset at offset 48 is 0, where the header is");
    expect(56, 4, 0, "refcount_table_clusters at offset 56 is 0; 1 to 128 (8 MiB) are allowed");
    expect(56, 4, 129, "refcount_table_clusters at offset 56 is 129; 1 to 128 (8 MiB) are allowed");
    expect(60, 4, 65537, "nb_snapshots at offset 60 is 65537; at most 65536 is allowed");
    expect(60, 4, 1, "snapshots_offset at offset 64 is 0, where the header is");
    expect(64, 8, 1, "snapshots_offset at offset 64 is 0x1, not a multiple of the cluster size 65536");
    expect(72, 8, 0x28, "compression_type at offset 104 is 0, but bit 3 of incompatible_features at offset 72 is set");
    expect(72, 8, 0x20, "incompatible_features at offset 72 has bits set that are not supported: 5");
    expect(72, 8, UINT64_C(1) << 63 | 0x60, "incompatible_features at offset 72 has bits set that are not supported: 5, 6, 63");
    expect(96, 4, 7, "refcount_order at offset 96 is 7; 0 to 6 are allowed");
    expect(100, 4, 108, "header_length at offset 100 is 108; multiples of 8 from 104 to the cluster size 65536 are allowed");
    expect(100, 4, 96, "header_length at offset 100 is 96; multiples of 8 from 104 to the cluster size 65536 are allowed");
    expect(104, 1, 1, "compression_type at offset 104 is 1, but bit 3 of incompatible_features at offset 72 is clear");
    expect(107, 1, 9, ""); /* the reference does not look at the padding */
    expect(116, 4, 16, "the backing file format at offset 120 has 16 bytes; at most 15 are allowed");
    expect(112, 4, FORMAT_EXTENSION_FEATURE_NAMES, "the feature name table extension at offset 128 is there for the second time");
    expect(112, 4, FORMAT_EXTENSION_ENCRYPTION,
           "the encryption header pointer extension at offset 112 has 5 bytes of data; it must have 16");
    expect(132, 4, UINT32_MAX, "the length of header extension 0x6803f857 at offset 132 is 4294967295; there is room for 392 bytes");
    store_be64(image + 88, FORMAT_AUTOCLEAR_BITMAPS);
    expect(112, 4, FORMAT_EXTENSION_BITMAPS, "the bitmaps extension at offset 112 has 5 bytes of data; it must have 24");
    store_be64(image + 88, 0);

    /* A feature that only the image knows is named by the image. */
    image[128 + 8 + 1] = 5;
    memcpy(image + 128 + 8 + 2, "odd\n\x1b!", 7);
    expect(72, 8, 0x20,
           "incompatible_features at offset 72 has bits set that are not supported: 5 (odd?"
           "?!)");
}

/* The sentence for a header with one extension of `length` bytes, at offset 112. */
static void expect_extension(uint32_t type, const uint8_t *data, uint32_t length, const char *wanted) {
    struct header header, again;
    struct error error = {0};
    size_t used;
    static uint8_t bytes[65536];
    basic_header(&header, 3, 16);
    header.crypt_method = type == FORMAT_EXTENSION_ENCRYPTION ? 2 : 0;
    header.autoclear_features = FORMAT_AUTOCLEAR_BITMAPS;
    CHECK(header_set_extension(&header, type, data, length) == 0);
    CHECK_OK(header_write(&header, bytes, sizeof bytes, &used, &error), error);
    CHECK(header_read(&again, bytes, sizeof bytes, &error) == (wanted[0] == '\0' ? 0 : ERROR_CORRUPT));
    if (strcmp(error.text, wanted) != 0) fprintf(stderr, "found:  %s\nwanted: %s\n", error.text, wanted);
    CHECK(strcmp(error.text, wanted) == 0);
    header_clear(&again);
    header_clear(&header);
}

static void test_extension_rules(void) {
    uint8_t bitmaps[24] = {0}, pointer[16] = {0};
    store_be32(bitmaps, 2);
    store_be64(bitmaps + 8, 100);
    store_be64(bitmaps + 16, 0x50000);
    expect_extension(FORMAT_EXTENSION_BITMAPS, bitmaps, 24, "");
    expect_extension(FORMAT_EXTENSION_BITMAPS, bitmaps, 23, "the bitmaps extension at offset 112 has 23 bytes of data; it must have 24");
    bitmaps[7] = 1;
    expect_extension(FORMAT_EXTENSION_BITMAPS, bitmaps, 24, "the reserved field of the bitmaps extension at offset 124 is 1; it must be 0");
    bitmaps[7] = 0;
    store_be32(bitmaps, 65536);
    expect_extension(FORMAT_EXTENSION_BITMAPS, bitmaps, 24, "nb_bitmaps at offset 120 is 65536; 1 to 65535 are allowed");
    store_be32(bitmaps, 65535);
    store_be64(bitmaps + 8, 0);
    expect_extension(FORMAT_EXTENSION_BITMAPS, bitmaps, 24, "bitmap_directory_size at offset 128 is 0; 1 to 68680680 are allowed");
    store_be64(bitmaps + 8, 68680680);
    store_be64(bitmaps + 16, 0x50200);
    expect_extension(FORMAT_EXTENSION_BITMAPS, bitmaps, 24,
                     "bitmap_directory_offset at offset 136 is 0x50200; a multiple of the cluster size 65536 above 0 is allowed");

    store_be64(pointer, 0x50000);
    expect_extension(FORMAT_EXTENSION_ENCRYPTION, pointer, 16, "");
    store_be64(pointer, 0);
    expect_extension(FORMAT_EXTENSION_ENCRYPTION, pointer, 16,
                     "the encryption header's offset at offset 120 is 0x0; a multiple of the cluster size 65536 above 0 is allowed");
    image[112] = 0x05, image[113] = 0x37, image[114] = 0xbe, image[115] = 0x77;
    expect(116, 4, 16,
           "there is an encryption header pointer at offset 112, but crypt_method at offset 32 is 0; only 2 (LUKS) goes with it");
}

static void test_write_refuses(void) {
    struct header header;
    struct error error = {0};
    size_t used;
    uint8_t bytes[512];
    basic_header(&header, 2, 9);
    header.compatible_features = 1;
    CHECK(header_write(&header, bytes, sizeof bytes, &used, &error) == -EINVAL);
    CHECK(strcmp(error.text, "version 2 has no feature bits and no refcount_order 4") == 0);
    header_clear(&header);

    basic_header(&header, 3, 9);
    CHECK(header_set_extension(&header, 77, image, 384) == 0);
    error_clear(&error);
    CHECK(header_write(&header, bytes, sizeof bytes, &used, &error) == 0 && used == 512);
    header.backing_file = memory_text("x", 1);
    CHECK(header_write(&header, bytes, sizeof bytes, &used, &error) == -ENOSPC);
    CHECK(strcmp(error.text, "header, header extensions and backing file name take 513 bytes; the first cluster has 512") == 0);

    header.header_length = 104;
    header.compression_type = 1;
    header.incompatible_features = FORMAT_INCOMPATIBLE_COMPRESSION;
    error_clear(&error);
    CHECK(header_write(&header, bytes, sizeof bytes, &used, &error) == -EINVAL);
    header_clear(&header);
}

static void test_extensions(void) {
    struct header header;
    basic_header(&header, 3, 16);
    CHECK(header_set_extension(&header, 77, "abc", 3) == 0 && header_add_feature_names(&header) == 0);
    CHECK(header_set_extension(&header, FORMAT_EXTENSION_DATA_FILE, "d", 1) == 0 && header_set_extension(&header, 78, "", 0) == 0);
    CHECK(header_set_extension(&header, FORMAT_EXTENSION_BACKING_FORMAT, "raw", 3) == 0 && header.extension_count == 5);
    const uint32_t order[] = {FORMAT_EXTENSION_BACKING_FORMAT, FORMAT_EXTENSION_DATA_FILE, FORMAT_EXTENSION_FEATURE_NAMES, 77, 78};
    for (unsigned i = 0; i < 5; i++) CHECK(header.extensions[i].type == order[i]);
    CHECK(header_set_extension(&header, 77, "defgh", 5) == 0 && header.extension_count == 5 && header.extensions[3].length == 5);
    CHECK(header_set_extension(&header, FORMAT_EXTENSION_DATA_FILE, NULL, 0) == 0 && header.extension_count == 4);
    CHECK(header_find_extension(&header, FORMAT_EXTENSION_DATA_FILE) == NULL && header_find_extension(&header, 78) != NULL);
    char name[47];
    header_feature_name(&header, 2, 1, name);
    CHECK(strcmp(name, "raw external data") == 0);
    header_feature_name(&header, 2, 63, name);
    CHECK(strcmp(name, "") == 0);
    header_clear(&header);
}

/* ---- nonsense ---- */

static size_t write_random(unsigned cluster_bits, uint8_t *bytes) {
    struct header header;
    struct error error = {0};
    size_t used = 0;
    random_header(&header, cluster_bits);
    CHECK(header_write(&header, bytes, (size_t) 1 << cluster_bits, &used, &error) == 0);
    header_clear(&header);
    return used;
}

/* Reads from memory of just that length; what is accepted must survive being written and read again. Returns the code. */
static int chew(const uint8_t *bytes, size_t length) {
    uint8_t *exact = malloc(length > 0 ? length : 1);
    if (exact == NULL) abort();
    memcpy(exact, bytes, length);
    struct header header, again;
    struct error error = {0};
    uint32_t cluster_bits;
    header_probe(exact, length, &cluster_bits, &error);
    error_clear(&error);
    const int r = header_read(&header, exact, length, &error);
    CHECK((r == 0) == (error.text[0] == '\0') && error.code == r);
    if (r == 0) {
        struct error ignored = {0};
        header_check_tables(&header, random_u64() >> random_below(64), &ignored);
        error_clear(&ignored);
        header_check_features(&header, &ignored);
        const size_t cluster_size = (size_t) 1 << header.cluster_bits;
        uint8_t *out = malloc(2 * cluster_size);
        if (out == NULL) abort();
        size_t used, used_again;
        const int w = header_write(&header, out, cluster_size, &used, &error);
        CHECK(w == 0 || w == -ENOSPC); /* the latter when there was no end marker */
        if (w == 0) {
            CHECK_OK(header_read(&again, out, cluster_size, &error), error);
            CHECK_OK(header_write(&again, out + cluster_size, cluster_size, &used_again, &error), error);
            CHECK(used == used_again && memcmp(out, out + cluster_size, cluster_size) == 0);
            header_clear(&again);
        }
        free(out);
    }
    header_clear(&header);
    free(exact);
    return r;
}

static void test_cut_and_flip(void) {
    static uint8_t bytes[MAX_CLUSTER];
    for (unsigned i = 0; i < 26; i++) {
        const unsigned bits = FORMAT_CLUSTER_BITS_MIN + i % 13;
        const size_t used = write_random(bits, bytes);
        for (size_t length = 0; length < used; length++) CHECK(chew(bytes, length) < 0);
        CHECK(chew(bytes, used) == 0);
        for (size_t at = 0; at < used; at++) {
            for (unsigned flip = 0; flip < 3; flip++) {
                const uint8_t before = bytes[at];
                bytes[at] ^= (uint8_t) (flip == 0 ? 0xff : 1u << random_below(8));
                chew(bytes, used);
                bytes[at] = before;
            }
        }
    }
}

static void mutate(uint8_t *bytes, size_t length) {
    static const uint32_t interesting[] = {0,
                                           1,
                                           7,
                                           8,
                                           9,
                                           21,
                                           22,
                                           72,
                                           104,
                                           112,
                                           120,
                                           511,
                                           512,
                                           1023,
                                           1024,
                                           0x7fffffff,
                                           0x80000000,
                                           0xfffffff8,
                                           0xffffffff,
                                           FORMAT_EXTENSION_BITMAPS,
                                           FORMAT_EXTENSION_ENCRYPTION,
                                           FORMAT_EXTENSION_FEATURE_NAMES};
    const size_t at = random_below((unsigned) length), word = at & ~(size_t) 3;
    switch (random_below(4)) {
        case 0: bytes[at] ^= (uint8_t) (1u << random_below(8)); break;
        case 1: bytes[at] = (uint8_t) random_u64(); break;
        case 2:
            if (word + 4 <= length) store_be32(bytes + word, interesting[random_below(sizeof interesting / sizeof *interesting)]);
            break;
        default:
            if (word + 4 <= length) store_be32(bytes + word, load_be32(bytes + word) + random_below(17) - 8);
            break;
    }
}

static void test_mutations(unsigned count) {
    static uint8_t original[MAX_CLUSTER], bytes[4096];
    size_t used = 0;
    unsigned accepted = 0;
    for (unsigned i = 0; i < count; i++) {
        if (i % 100 == 0) used = write_random(FORMAT_CLUSTER_BITS_MIN + random_below(8), original);
        const size_t length = min_u64(used + random_below(64), sizeof bytes);
        memcpy(bytes, original, length);
        for (unsigned n = 1 + random_below(4); n > 0; n--) mutate(bytes, length);
        accepted += chew(bytes, random_below(8) == 0 ? random_below((unsigned) length + 1) : length) == 0;
    }
    CHECK(accepted > count / 10 && accepted < count);
    printf("format: %u mutations, %u accepted\n", count, accepted);
}

/* Fail each allocation in turn until the body passes. */
static void test_no_memory(void) {
    static uint8_t bytes[65536];
    struct header header;
    struct error error = {0};
    size_t used;
    basic_header(&header, 3, 16);
    header.header_length = 120;
    header.unknown_length = 8;
    header.unknown = memory_zeroed(8);
    header.backing_file = memory_text("base", 4);
    CHECK(header_set_extension(&header, 77, "abc", 3) == 0 && header_set_extension(&header, 78, "d", 1) == 0 &&
          header_add_feature_names(&header) == 0);
    CHECK(header_write(&header, bytes, sizeof bytes, &used, &error) == 0);
    header_clear(&header);

    const uint64_t held = memory_held();
    int r = -ENOMEM;
    uint64_t nth = 0;
    while (r == -ENOMEM && nth < 100) {
        error_clear(&error);
        memory_fail_at(++nth);
        r = header_read(&header, bytes, sizeof bytes, &error);
        memory_fail_at(0);
        CHECK(r == 0 || (r == -ENOMEM && error.text[0] != '\0' && memory_held() == held));
    }
    CHECK(r == 0 && nth > 5);
    memory_fail_at(1);
    CHECK(header_set_extension(&header, 79, "x", 1) == -ENOMEM && header.extension_count == 3);
    memory_fail_at(1);
    CHECK(header_set_extension(&header, 77, "longer", 6) == -ENOMEM && header.extensions[1].length == 3);
    memory_fail_at(0);
    header_clear(&header);
    CHECK(memory_held() == held);
}

/* ---- the reference's bytes ---- */

static bool qemu_create(const char *path, const char *options) {
    char command[9000];
    snprintf(command, sizeof command, "cd $(dirname %s) && qemu-img create -q -f qcow2 %s %s 64M", path, options, path);
    return system(command) == 0;
}

static size_t read_file(const char *path, uint8_t *bytes, size_t size) {
    FILE *file = fopen(path, "rb");
    if (file == NULL) return 0;
    const size_t length = fread(bytes, 1, size, file);
    fclose(file);
    return length;
}

/* The values of `from` in a new header, with the extensions put in backwards. */
static void rebuild(const struct header *from, struct header *to) {
    *to = *from;
    to->extensions = NULL;
    to->extension_count = 0;
    to->backing_file = from->backing_file != NULL ? memory_text(from->backing_file, strlen(from->backing_file)) : NULL;
    for (size_t i = from->extension_count; i-- > 0;) {
        const struct header_extension *e = &from->extensions[i];
        if (e->type != FORMAT_EXTENSION_FEATURE_NAMES) CHECK(header_set_extension(to, e->type, e->data, e->length) == 0);
    }
    CHECK(header_add_feature_names(to) == 0);
}

/* Reads the file's first cluster, writes it back and builds it anew. */
static void compare_file(const char *path, const char *options) {
    static uint8_t theirs[MAX_CLUSTER], ours[MAX_CLUSTER];
    const size_t length = read_file(path, theirs, sizeof theirs);
    struct stat status;
    CHECK(stat(path, &status) == 0);
    struct header header, built;
    struct error error = {0};
    size_t used;
    CHECK_OK(header_read(&header, theirs, length, &error), error);
    const size_t cluster_size = (size_t) 1 << header.cluster_bits;
    CHECK_OK(header_check_tables(&header, (uint64_t) status.st_size, &error), error);
    CHECK_OK(header_check_features(&header, &error), error);
    CHECK_OK(header_write(&header, ours, cluster_size, &used, &error), error);
    CHECK(memcmp(ours, theirs, cluster_size) == 0);
    rebuild(&header, &built);
    CHECK_OK(header_write(&built, ours, cluster_size, &used, &error), error);
    const bool same = memcmp(ours, theirs, cluster_size) == 0;
    if (!same) fprintf(stderr, "with %.100s\n", options);
    CHECK(same);
    header_clear(&built);
    header_clear(&header);
}

static void compare_with_reference(const char *path, const char *options) {
    CHECK(qemu_create(path, options));
    compare_file(path, options);
}

static void test_reference(void) {
    if (system("qemu-img --version >/dev/null 2>&1") != 0) {
        printf("format: SKIPPED comparison with qemu-img: not installed\n");
        return;
    }
    static const char *const options[] = {
        "",
        "-o compat=0.10",
        "-b base.qcow2 -F qcow2",
        "-b base.qcow2 -F raw -o compat=0.10",
        "-o extended_l2=on",
        "-o compression_type=zstd",
        "-o lazy_refcounts=on",
        "-o data_file=x.data",
        "-o data_file=x.data,data_file_raw=on",
        "-o refcount_bits=1",
        "-o refcount_bits=64",
        "-o extended_l2=on,compression_type=zstd,lazy_refcounts=on,cluster_size=16k -b base.qcow2 -F qcow2",
        "-o preallocation=metadata",
        "-o cluster_size=512",
        "-o cluster_size=512 -b base.qcow2 -F qcow2",
        "-o cluster_size=512,compat=0.10 -b base.qcow2 -F qcow2",
        "-o cluster_size=1k",
        "-o cluster_size=2k",
        "-o cluster_size=4k",
        "-o cluster_size=4k -b base.qcow2 -F qcow2",
        "-o cluster_size=8k",
        "--object secret,id=s,data=abc -o encrypt.format=luks,encrypt.key-secret=s,encrypt.iter-time=10",
        "-o cluster_size=2M",
        "-o cluster_size=2M,extended_l2=on -b base.qcow2 -F qcow2",
    };
    char folder[] = "/tmp/format_test.XXXXXX", path[64], command[256];
    if (mkdtemp(folder) == NULL) abort();
    snprintf(path, sizeof path, "%s/base.qcow2", folder);
    CHECK(qemu_create(path, ""));
    snprintf(path, sizeof path, "%s/x.qcow2", folder);
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) compare_with_reference(path, options[i]);

    CHECK(qemu_create(path, "-b base.qcow2 -F qcow2"));
    snprintf(command, sizeof command, "qemu-img bitmap --add %s b && qemu-img snapshot -c s %s", path, path);
    CHECK(system(command) == 0);
    compare_file(path, "a bitmap and a snapshot");

    /* A data file name that all but fills the cluster: the feature name table stays. */
    static char option[5000] = "-o cluster_size=8k,data_file=";
    for (unsigned i = 0; i < 2046; i++) strcat(option, "./");
    compare_with_reference(path, strcat(option, "x"));
    snprintf(command, sizeof command, "rm -r %s", folder);
    CHECK(system(command) == 0);
}

int main(int argc, char **argv) {
    unit_start();
    state = unit_seed;
    const unsigned mutations = argc > 1 ? (unsigned) strtoul(argv[1], NULL, 0) : 200000;
    test_geometry();
    test_cluster_entries();
    test_cluster_round_trip();
    test_extensions();
    test_header_round_trip();
    test_sentences();
    test_extension_rules();
    test_write_refuses();
    test_no_memory();
    test_cut_and_flip();
    test_mutations(mutations);
    test_reference();
    CHECK(memory_held() == 0);
    return unit_end("format");
}
