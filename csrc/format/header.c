/* SPDX-License-Identifier: MIT
 *
 * The header's fields, and the first cluster as a whole.
 *
 * One table names each field with its place on disk and its place in `struct header`; reading and writing walk the same table,
 * so they cannot differ. The order in the cluster: fields, header bytes that we do not know, extensions with an end
 * marker, backing file name. Extensions are header_extensions.c's business, tables elsewhere in the file header_check.c's.
 * Called by open, create and whatever changes the header; never does I/O.
 */
#include "format/header.h"

#include <inttypes.h>
#include <string.h>

#include "base/bytes.h"
#include "base/memory.h"
#include "format/format.h"
#include "format/header_extensions.h"

enum { /* fields that have no member of their own */
    AT_MAGIC = 0,
    AT_VERSION = 4,
    AT_BACKING_FILE_OFFSET = 8,
    AT_BACKING_FILE_SIZE = 16,
    AT_CLUSTER_BITS = 20,
    AT_HEADER_LENGTH = 100,
};

struct field {
    uint8_t offset, size; /* on disk */
    uint8_t member;       /* in struct header */
};

static const struct field FIELDS[] = {
#define FIELD(at, bytes, name)                                                                                                             \
    { at, bytes, offsetof(struct header, name) }
    FIELD(AT_VERSION, 4, version),
    FIELD(AT_CLUSTER_BITS, 4, cluster_bits),
    FIELD(24, 8, size),
    FIELD(32, 4, crypt_method),
    FIELD(36, 4, l1_size),
    FIELD(40, 8, l1_table_offset),
    FIELD(48, 8, refcount_table_offset),
    FIELD(56, 4, refcount_table_clusters),
    FIELD(60, 4, nb_snapshots),
    FIELD(64, 8, snapshots_offset),
    FIELD(72, 8, incompatible_features),
    FIELD(80, 8, compatible_features),
    FIELD(88, 8, autoclear_features),
    FIELD(96, 4, refcount_order),
    FIELD(AT_HEADER_LENGTH, 4, header_length),
    FIELD(104, 1, compression_type),
#undef FIELD
};
#define FIELD_COUNT (sizeof FIELDS / sizeof *FIELDS)

static void load_field(struct header *header, const struct field *field, const uint8_t *bytes) {
    uint8_t *member = (uint8_t *) header + field->member;
    const uint32_t u32 = field->size == 4 ? load_be32(bytes + field->offset) : 0;
    const uint64_t u64 = field->size == 8 ? load_be64(bytes + field->offset) : 0;
    if (field->size == 1) *member = bytes[field->offset];
    if (field->size == 4) memcpy(member, &u32, sizeof u32);
    if (field->size == 8) memcpy(member, &u64, sizeof u64);
}

static void store_field(const struct header *header, const struct field *field, uint8_t *bytes) {
    const uint8_t *member = (const uint8_t *) header + field->member;
    uint32_t u32;
    uint64_t u64;
    if (field->size == 1) bytes[field->offset] = *member;
    if (field->size == 4) store_be32(bytes + field->offset, (memcpy(&u32, member, sizeof u32), u32));
    if (field->size == 8) store_be64(bytes + field->offset, (memcpy(&u64, member, sizeof u64), u64));
}

/* Version 2 has no field for its header's length. */
static uint32_t least_length(uint32_t version) { return version == 2 ? FORMAT_HEADER_V2_LENGTH : FORMAT_HEADER_V3_LENGTH; }

static int cut(const char *what, size_t length, struct error *error) {
    return error_set(error, ERROR_CORRUPT, "the file ends at byte %zu, within %s", length, what);
}

/* ---- reading ---- */

bool header_is_qcow2(const uint8_t *bytes, size_t length) { return length >= 4 && load_be32(bytes + AT_MAGIC) == FORMAT_MAGIC; }

int header_probe(const uint8_t *bytes, size_t length, uint32_t *cluster_bits, struct error *error) {
    if (length < 4) return error_set(error, -EINVAL, "the file has %zu bytes, too few for a qcow2 image", length);
    if (!header_is_qcow2(bytes, length)) {
        return error_set(error, -EINVAL, "magic at offset 0 is 0x%08" PRIx32 "; a qcow2 image has 0x%08" PRIx32, load_be32(bytes),
                         FORMAT_MAGIC);
    }
    if (length < AT_CLUSTER_BITS + 4) return cut("the header", length, error);
    const uint32_t version = load_be32(bytes + AT_VERSION);
    if (version < 2 || version > 3) {
        return error_set(error, -EINVAL, "version at offset %d is %" PRIu32 "; 2 and 3 are supported", AT_VERSION, version);
    }
    *cluster_bits = load_be32(bytes + AT_CLUSTER_BITS);
    if (*cluster_bits >= FORMAT_CLUSTER_BITS_MIN && *cluster_bits <= FORMAT_CLUSTER_BITS_MAX) return 0;
    return error_set(error, ERROR_CORRUPT, "cluster_bits at offset %d is %" PRIu32 "; %u to %u are allowed", AT_CLUSTER_BITS, *cluster_bits,
                     FORMAT_CLUSTER_BITS_MIN, FORMAT_CLUSTER_BITS_MAX);
}

static int check_length(uint32_t version, uint32_t header_length, uint32_t cluster_size, struct error *error) {
    if (version == 2 || (header_length >= FORMAT_HEADER_V3_LENGTH && header_length % 8 == 0 && header_length <= cluster_size)) return 0;
    return error_set(error, ERROR_CORRUPT,
                     "header_length at offset %d is %" PRIu32 "; multiples of 8 from %d to the cluster size %" PRIu32 " are allowed",
                     AT_HEADER_LENGTH, header_length, FORMAT_HEADER_V3_LENGTH, cluster_size);
}

static int read_fields(struct header *header, const uint8_t *bytes, size_t length, struct error *error) {
    uint32_t cluster_bits;
    int r = header_probe(bytes, length, &cluster_bits, error);
    if (r < 0) return r;
    const uint32_t version = load_be32(bytes + AT_VERSION);
    if (length < least_length(version)) return cut("the header", length, error);
    const uint32_t header_length = version == 2 ? FORMAT_HEADER_V2_LENGTH : load_be32(bytes + AT_HEADER_LENGTH);
    r = check_length(version, header_length, UINT32_C(1) << cluster_bits, error);
    if (r < 0) return r;
    if (length < header_length) return cut("the header", length, error);

    header->refcount_order = FORMAT_REFCOUNT_ORDER_DEFAULT;
    header->header_length = header_length;
    for (size_t i = 0; i < FIELD_COUNT; i++) {
        if (FIELDS[i].offset + FIELDS[i].size <= header_length) load_field(header, &FIELDS[i], bytes);
    }
    if (header_length <= FORMAT_HEADER_LENGTH) return 0;
    header->unknown_length = header_length - FORMAT_HEADER_LENGTH;
    header->unknown = memory_zeroed(header->unknown_length);
    if (header->unknown == NULL) return error_set(error, -ENOMEM, "no memory for %zu header bytes", header->unknown_length);
    memcpy(header->unknown, bytes + FORMAT_HEADER_LENGTH, header->unknown_length);
    return 0;
}

static int check_fields(const struct header *header, struct error *error) {
    const bool extended_l2 = (header->incompatible_features & FORMAT_INCOMPATIBLE_EXTENDED_L2) != 0;
    const bool compression_bit = (header->incompatible_features & FORMAT_INCOMPATIBLE_COMPRESSION) != 0;
    if (header->crypt_method > 2) {
        return error_set(error, ERROR_CORRUPT, "crypt_method at offset 32 is %" PRIu32 "; 0 (none), 1 (AES) and 2 (LUKS) are allowed",
                         header->crypt_method);
    }
    if (header->refcount_order > FORMAT_REFCOUNT_ORDER_MAX) {
        return error_set(error, ERROR_CORRUPT, "refcount_order at offset 96 is %" PRIu32 "; 0 to %u are allowed", header->refcount_order,
                         FORMAT_REFCOUNT_ORDER_MAX);
    }
    if (extended_l2 && header->cluster_bits < 14) {
        return error_set(error, ERROR_CORRUPT, "cluster_bits at offset %d is %" PRIu32 "; with extended L2 entries 14 to %u are allowed",
                         AT_CLUSTER_BITS, header->cluster_bits, FORMAT_CLUSTER_BITS_MAX);
    }
    if ((header->compression_type != 0) == compression_bit) return 0;
    return error_set(error, ERROR_CORRUPT, "compression_type at offset 104 is %u, but bit 3 of incompatible_features at offset 72 is %s",
                     header->compression_type, compression_bit ? "set" : "clear");
}

/* What the header says about the backing file's name; `size` 0: there is none. */
struct name_place {
    uint64_t offset;
    uint32_t size;
};

static int place_name(const struct header *header, const uint8_t *bytes, struct name_place *place, struct error *error) {
    const uint32_t cluster_size = UINT32_C(1) << header->cluster_bits;
    *place = (struct name_place){load_be64(bytes + AT_BACKING_FILE_OFFSET), load_be32(bytes + AT_BACKING_FILE_SIZE)};
    if (place->offset == 0) {
        place->size = 0;
        return 0;
    }
    if (place->size > FORMAT_BACKING_NAME_MAX) {
        return error_set(error, ERROR_CORRUPT, "backing_file_size at offset %d is %" PRIu32 "; at most %u is allowed", AT_BACKING_FILE_SIZE,
                         place->size, FORMAT_BACKING_NAME_MAX);
    }
    if (place->offset >= header->header_length && within_u64(place->offset, place->size, cluster_size)) return 0;
    return error_set(error, ERROR_CORRUPT,
                     "backing_file_offset at offset %d is 0x%" PRIx64 "; a name of %" PRIu32
                     " bytes must lie between the header's end at %" PRIu32 " and the cluster's end at %" PRIu32,
                     AT_BACKING_FILE_OFFSET, place->offset, place->size, header->header_length, cluster_size);
}

static int read_all(struct header *header, const uint8_t *bytes, size_t length, struct error *error) {
    struct name_place name;
    int r = read_fields(header, bytes, length, error);
    if (r < 0) return r;
    r = check_fields(header, error);
    if (r < 0) return r;
    r = place_name(header, bytes, &name, error);
    if (r < 0) return r;
    const uint64_t cluster_size = UINT64_C(1) << header->cluster_bits;
    const uint64_t extensions_end = name.offset != 0 ? name.offset : cluster_size;
    r = header_read_extensions(header, bytes, min_u64(length, cluster_size), extensions_end, error);
    if (r < 0 || name.size == 0) return r;

    if (!within_u64(name.offset, name.size, length)) return cut("the backing file name", length, error);
    header->backing_file = memory_text((const char *) bytes + name.offset, name.size);
    if (header->backing_file == NULL) return error_set(error, -ENOMEM, "no memory for the backing file name");
    if (strlen(header->backing_file) == name.size) return 0;
    return error_set(error, ERROR_CORRUPT, "the backing file name at offset %" PRIu64 " has a zero byte in it", name.offset);
}

int header_read(struct header *header, const uint8_t *bytes, size_t length, struct error *error) {
    memset(header, 0, sizeof *header);
    const int r = read_all(header, bytes, length, error);
    if (r < 0) header_clear(header);
    return r;
}

/* ---- writing ---- */

/* Refuses what the version or the header's length has no room for. */
static int check_writable(const struct header *header, size_t name_size, struct error *error) {
    const uint64_t features = header->incompatible_features | header->compatible_features | header->autoclear_features;
    const size_t unknown = header->header_length > FORMAT_HEADER_LENGTH ? header->header_length - FORMAT_HEADER_LENGTH : 0;
    if (header->version == 2 && (features != 0 || header->refcount_order != FORMAT_REFCOUNT_ORDER_DEFAULT)) {
        return error_set(error, -EINVAL, "version 2 has no feature bits and no refcount_order %" PRIu32, header->refcount_order);
    }
    if (header->header_length < least_length(header->version) ||
        (header->version == 2 && header->header_length > FORMAT_HEADER_V2_LENGTH) || unknown != header->unknown_length) {
        return error_set(error, -EINVAL, "header_length %" PRIu32 " does not fit version %" PRIu32 " with %zu bytes of unknown fields",
                         header->header_length, header->version, header->unknown_length);
    }
    if (header->compression_type != 0 && header->header_length < FORMAT_HEADER_LENGTH) {
        return error_set(error, -EINVAL, "header_length %" PRIu32 " has no room for compression_type %u", header->header_length,
                         header->compression_type);
    }
    if (name_size <= FORMAT_BACKING_NAME_MAX) return check_fields(header, error);
    return error_set(error, -EINVAL, "the backing file name has %zu bytes; at most %u are allowed", name_size, FORMAT_BACKING_NAME_MAX);
}

int header_write(const struct header *header, uint8_t *bytes, size_t length, size_t *used, struct error *error) {
    const size_t name_size = header->backing_file != NULL ? strlen(header->backing_file) : 0;
    const int r = check_writable(header, name_size, error);
    if (r < 0) return r;
    const uint64_t cluster_size = UINT64_C(1) << header->cluster_bits;
    const uint64_t room = min_u64(length, cluster_size);
    const uint64_t name_offset = header->header_length + header_extensions_size(header);
    if (!within_u64(name_offset, name_size, room)) {
        return error_set(error, -ENOSPC,
                         "header, header extensions and backing file name take %" PRIu64 " bytes; the first cluster has %" PRIu64,
                         name_offset + name_size, room);
    }

    memset(bytes, 0, length);
    store_be32(bytes + AT_MAGIC, FORMAT_MAGIC);
    for (size_t i = 0; i < FIELD_COUNT; i++) {
        if (FIELDS[i].offset + FIELDS[i].size <= header->header_length) store_field(header, &FIELDS[i], bytes);
    }
    if (header->unknown_length > 0) memcpy(bytes + FORMAT_HEADER_LENGTH, header->unknown, header->unknown_length);
    header_write_extensions(header, bytes + header->header_length);
    if (name_size > 0) {
        store_be64(bytes + AT_BACKING_FILE_OFFSET, name_offset);
        store_be32(bytes + AT_BACKING_FILE_SIZE, (uint32_t) name_size);
        memcpy(bytes + name_offset, header->backing_file, name_size);
    }
    *used = name_offset + name_size;
    return 0;
}

/* ---- the rest ---- */

struct geometry header_geometry(const struct header *header) {
    struct geometry geometry;
    const bool extended_l2 = (header->incompatible_features & FORMAT_INCOMPATIBLE_EXTENDED_L2) != 0;
    geometry_set(&geometry, header->version, header->cluster_bits, header->refcount_order, extended_l2);
    geometry.data_file = (header->incompatible_features & FORMAT_INCOMPATIBLE_DATA_FILE) != 0;
    return geometry;
}

void header_clear(struct header *header) {
    header_clear_extensions(header);
    memory_free(header->backing_file);
    memory_free(header->unknown);
    memset(header, 0, sizeof *header);
}
