/* SPDX-License-Identifier: MIT
 *
 * Header extensions: type u32, length u32, data, padding to 8 bytes; type 0 ends the list, and so does the place
 * where the backing file name begins.
 *
 * All of them are kept as they were found, in their order; the table says what is known of a type: its name in
 * sentences and what its data must look like. The order of the table is the order in which the reference writes
 * them, so that a new header comes out the same byte for byte, however it was put together.
 */
#include "format/header_extensions.h"

#include <inttypes.h>
#include <string.h>

#include "base/bytes.h"
#include "base/memory.h"
#include "format/format.h"

#define EXTENSION_HEAD 8u /* type and length */
#define BACKING_FORMAT_MAX 15u
#define BITMAPS_LENGTH 24u
#define BITMAPS_MAX 65535u
#define BITMAP_DIRECTORY_MAX (UINT64_C(65535) * (24 + 1024)) /* what the reference allows: every entry with the longest name */
#define ENCRYPTION_LENGTH 16u
#define FEATURE_NAMES_CLUSTER_MIN 8192u /* in smaller clusters the reference leaves the feature name table out */
#define FEATURE_NAME_SIZE 46u

/* The feature name table, in its on-disk form. */
struct feature {
    uint8_t kind; /* 0 incompatible, 1 compatible, 2 autoclear */
    uint8_t bit;
    char name[FEATURE_NAME_SIZE]; /* padded with zeroes, not NUL-terminated when full */
};
_Static_assert(sizeof(struct feature) == 48, "a feature name table entry is 48 bytes");

static const struct feature FEATURES[] = {
    {0, 0, "dirty bit"},        {0, 1, "corrupt bit"},         {0, 2, "external data file"},
    {0, 3, "compression type"}, {0, 4, "extended L2 entries"}, {1, 0, "lazy refcounts"},
    {2, 0, "bitmaps"},          {2, 1, "raw external data"},
};

/* ---- what is known of a type ---- */

/* `offset` is where the extension's data begins in the file. Returns 0 or ERROR_CORRUPT. */
typedef int check_function(const struct header *header, const struct header_extension *extension, uint64_t offset, struct error *error);

static int check_length(const char *name, uint32_t length, uint32_t wanted, uint64_t offset, struct error *error) {
    if (length == wanted) return 0;
    return error_set(error, ERROR_CORRUPT, "the %s extension at offset %" PRIu64 " has %u bytes of data; it must have %u", name,
                     offset - EXTENSION_HEAD, length, wanted);
}

static int check_aligned(const struct header *header, const char *name, uint64_t offset, uint64_t value, struct error *error) {
    const uint64_t cluster_size = UINT64_C(1) << header->cluster_bits;
    if (value != 0 && value % cluster_size == 0) return 0;
    return error_set(error, ERROR_CORRUPT,
                     "%s at offset %" PRIu64 " is 0x%" PRIx64 "; a multiple of the cluster size %" PRIu64 " above 0 is allowed", name,
                     offset, value, cluster_size);
}

static int check_backing_format(const struct header *header, const struct header_extension *extension, uint64_t offset,
                                struct error *error) {
    (void) header;
    if (extension->length <= BACKING_FORMAT_MAX) return 0;
    return error_set(error, ERROR_CORRUPT, "the backing file format at offset %" PRIu64 " has %u bytes; at most %u are allowed", offset,
                     extension->length, BACKING_FORMAT_MAX);
}

static int check_encryption(const struct header *header, const struct header_extension *extension, uint64_t offset, struct error *error) {
    const int r = check_length("encryption header pointer", extension->length, ENCRYPTION_LENGTH, offset, error);
    if (r < 0) return r;
    if (header->crypt_method != 2) {
        return error_set(error, ERROR_CORRUPT,
                         "there is an encryption header pointer at offset %" PRIu64
                         ", but crypt_method at offset 32 is %u; only 2 (LUKS) goes with it",
                         offset - EXTENSION_HEAD, header->crypt_method);
    }
    return check_aligned(header, "the encryption header's offset", offset, load_be64(extension->data), error);
}

/* Without the autoclear bit the extension is stale, and nothing in it counts. */
static int check_bitmaps(const struct header *header, const struct header_extension *extension, uint64_t offset, struct error *error) {
    if ((header->autoclear_features & FORMAT_AUTOCLEAR_BITMAPS) == 0) return 0;
    const int r = check_length("bitmaps", extension->length, BITMAPS_LENGTH, offset, error);
    if (r < 0) return r;
    const uint32_t nb_bitmaps = load_be32(extension->data), reserved = load_be32(extension->data + 4);
    const uint64_t directory_size = load_be64(extension->data + 8);
    if (nb_bitmaps == 0 || nb_bitmaps > BITMAPS_MAX) {
        return error_set(error, ERROR_CORRUPT, "nb_bitmaps at offset %" PRIu64 " is %u; 1 to %u are allowed", offset, nb_bitmaps,
                         BITMAPS_MAX);
    }
    if (reserved != 0) {
        return error_set(error, ERROR_CORRUPT, "the reserved field of the bitmaps extension at offset %" PRIu64 " is %u; it must be 0",
                         offset + 4, reserved);
    }
    if (directory_size == 0 || directory_size > BITMAP_DIRECTORY_MAX) {
        return error_set(error, ERROR_CORRUPT, "bitmap_directory_size at offset %" PRIu64 " is %" PRIu64 "; 1 to %" PRIu64 " are allowed",
                         offset + 8, directory_size, BITMAP_DIRECTORY_MAX);
    }
    return check_aligned(header, "bitmap_directory_offset", offset + 16, load_be64(extension->data + 16), error);
}

static const struct extension_kind {
    uint32_t type;
    const char *name;
    check_function *check; /* NULL: any data will do */
} KINDS[] = {
    {FORMAT_EXTENSION_BACKING_FORMAT, "backing file format", check_backing_format},
    {FORMAT_EXTENSION_DATA_FILE, "external data file name", NULL},
    {FORMAT_EXTENSION_ENCRYPTION, "encryption header pointer", check_encryption},
    {FORMAT_EXTENSION_FEATURE_NAMES, "feature name table", NULL},
    {FORMAT_EXTENSION_BITMAPS, "bitmaps", check_bitmaps},
};
#define KIND_COUNT (sizeof KINDS / sizeof *KINDS)

/* Index into KINDS; KIND_COUNT for a type that is not known. */
static size_t kind_index(uint32_t type) {
    size_t index = 0;
    while (index < KIND_COUNT && KINDS[index].type != type) index++;
    return index;
}

/* ---- the list ---- */

const struct header_extension *header_find_extension(const struct header *header, uint32_t type) {
    for (size_t i = 0; i < header->extension_count; i++) {
        if (header->extensions[i].type == type) return &header->extensions[i];
    }
    return NULL;
}

static int copy_data(const void *data, uint32_t length, uint8_t **copy) {
    *copy = NULL;
    if (length == 0) return 0;
    *copy = memory_zeroed(length);
    if (*copy == NULL) return -ENOMEM;
    memcpy(*copy, data, length);
    return 0;
}

/* The array's capacity is the next power of two, so that a list of n costs log n allocations of it. */
static int insert(struct header *header, size_t index, uint32_t type, const void *data, uint32_t length) {
    const size_t count = header->extension_count;
    if (count == 0 || is_power_of_two_u64(count)) {
        struct header_extension *larger = memory_array(count == 0 ? 1 : 2 * count, sizeof *larger);
        if (larger == NULL) return -ENOMEM;
        if (count > 0) memcpy(larger, header->extensions, count * sizeof *larger);
        memory_free(header->extensions);
        header->extensions = larger;
    }
    uint8_t *copy;
    if (copy_data(data, length, &copy) < 0) return -ENOMEM;
    memmove(&header->extensions[index + 1], &header->extensions[index], (count - index) * sizeof *header->extensions);
    header->extensions[index] = (struct header_extension){.type = type, .length = length, .data = copy};
    header->extension_count++;
    return 0;
}

static void remove_at(struct header *header, size_t index) {
    memory_free(header->extensions[index].data);
    header->extension_count--;
    memmove(&header->extensions[index], &header->extensions[index + 1], (header->extension_count - index) * sizeof *header->extensions);
}

int header_set_extension(struct header *header, uint32_t type, const void *data, uint32_t length) {
    const struct header_extension *found = header_find_extension(header, type);
    size_t index = 0;
    if (found != NULL) index = (size_t) (found - header->extensions);
    else
        while (index < header->extension_count && kind_index(header->extensions[index].type) <= kind_index(type)) index++;

    if (data != NULL && found == NULL) return insert(header, index, type, data, length);
    if (data == NULL && found == NULL) return 0;
    uint8_t *copy;
    if (data == NULL) remove_at(header, index);
    else if (copy_data(data, length, &copy) < 0) return -ENOMEM;
    else {
        memory_free(header->extensions[index].data);
        header->extensions[index] = (struct header_extension){.type = type, .length = length, .data = copy};
    }
    return 0;
}

void header_clear_extensions(struct header *header) {
    for (size_t i = 0; i < header->extension_count; i++) memory_free(header->extensions[i].data);
    memory_free(header->extensions);
    header->extensions = NULL;
    header->extension_count = 0;
}

/* ---- reading and writing ---- */

static int keep_extension(struct header *header, uint32_t type, const uint8_t *data, uint32_t length, uint64_t offset,
                          struct error *error) {
    const size_t kind = kind_index(type);
    if (kind < KIND_COUNT && header_find_extension(header, type) != NULL) {
        return error_set(error, ERROR_CORRUPT, "the %s extension at offset %" PRIu64 " is there for the second time", KINDS[kind].name,
                         offset - EXTENSION_HEAD);
    }
    if (insert(header, header->extension_count, type, data, length) < 0)
        return error_set(error, -ENOMEM, "no memory for header extensions");
    if (kind == KIND_COUNT || KINDS[kind].check == NULL) return 0;
    return KINDS[kind].check(header, &header->extensions[header->extension_count - 1], offset, error);
}

int header_read_extensions(struct header *header, const uint8_t *bytes, uint64_t length, uint64_t end, struct error *error) {
    uint64_t position = header->header_length;
    while (position < end) {
        const uint64_t data = position + EXTENSION_HEAD;
        if (data > end) {
            return error_set(error, ERROR_CORRUPT,
                             "the header extension at offset %" PRIu64 " has no room for type and length before offset %" PRIu64, position,
                             end);
        }
        if (data > length)
            return error_set(error, ERROR_CORRUPT, "the file ends at byte %" PRIu64 ", within the header extensions", length);
        const uint32_t type = load_be32(bytes + position), data_length = load_be32(bytes + position + 4);
        if (!within_u64(data, data_length, end)) {
            return error_set(error, ERROR_CORRUPT,
                             "the length of header extension 0x%08x at offset %" PRIu64 " is %u; there is room for %" PRIu64 " bytes", type,
                             position + 4, data_length, end - data);
        }
        if (type == FORMAT_EXTENSION_END) return 0;
        if (!within_u64(data, data_length, length)) {
            return error_set(error, ERROR_CORRUPT, "the file ends at byte %" PRIu64 ", within header extension 0x%08x", length, type);
        }
        const int r = keep_extension(header, type, bytes + data, data_length, data, error);
        if (r < 0) return r;
        position = data + round_up_u64(data_length, 8);
    }
    return 0;
}

static uint64_t size_of(const struct header_extension *extension) { return EXTENSION_HEAD + round_up_u64(extension->length, 8); }

uint64_t header_extensions_size(const struct header *header) {
    uint64_t size = EXTENSION_HEAD;
    for (size_t i = 0; i < header->extension_count; i++) size += size_of(&header->extensions[i]);
    return size;
}

void header_write_extensions(const struct header *header, uint8_t *bytes) {
    memset(bytes, 0, header_extensions_size(header));
    for (size_t i = 0; i < header->extension_count; i++) {
        const struct header_extension *extension = &header->extensions[i];
        store_be32(bytes, extension->type);
        store_be32(bytes + 4, extension->length);
        if (extension->length > 0) memcpy(bytes + EXTENSION_HEAD, extension->data, extension->length);
        bytes += size_of(extension);
    }
}

/* ---- feature names ---- */

int header_add_feature_names(struct header *header) {
    if (header->version < 3 || UINT64_C(1) << header->cluster_bits < FEATURE_NAMES_CLUSTER_MIN) return 0;
    return header_set_extension(header, FORMAT_EXTENSION_FEATURE_NAMES, FEATURES, sizeof FEATURES);
}

static const struct feature *find_feature(const struct feature *features, size_t count, unsigned kind, unsigned bit) {
    for (size_t i = 0; i < count; i++) {
        if (features[i].kind == kind && features[i].bit == bit) return &features[i];
    }
    return NULL;
}

void header_feature_name(const struct header *header, unsigned kind, unsigned bit, char name[static 47]) {
    const struct header_extension *table = header_find_extension(header, FORMAT_EXTENSION_FEATURE_NAMES);
    const struct feature *feature = NULL;
    if (table != NULL) feature = find_feature((const struct feature *) table->data, table->length / sizeof *feature, kind, bit);
    if (feature == NULL) feature = find_feature(FEATURES, sizeof FEATURES / sizeof *FEATURES, kind, bit);
    memset(name, 0, FEATURE_NAME_SIZE + 1);
    if (feature != NULL) memcpy(name, feature->name, FEATURE_NAME_SIZE);
    for (char *c = name; *c != '\0'; c++) { /* it may be shown on a terminal */
        if ((unsigned char) *c < ' ' || *c == 0x7f) *c = '?';
    }
}
