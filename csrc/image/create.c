/* SPDX-License-Identifier: MIT
 *
 * A new image: header in cluster 0, refcount table from 1, then refcount blocks, then the L1 table, which is all zero and ends
 * the file. The header is written last but for preallocation, so a half-made file is no image. Preallocation is done by the engine itself,
 * through the opened image. Called by the binding. Relies on the file being empty: it is cut to nothing first.
 */
#include "image/create.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/memory.h"
#include "format/codec.h"
#include "image/chain.h"
#include "image/data_file.h"
#include "image/names.h"
#include "storage/extent_hint.h"
#include "storage/file_posix.h"

#define FILL_LENGTH MEMORY_ZEROES_SIZE
#define SECTOR_SIZE 512u

struct layout { /* clusters */
    struct geometry geometry;
    uint64_t table, blocks, l1, l1_entries;
};

static uint64_t total_clusters(const struct layout *layout) { return 1 + layout->table + layout->blocks + layout->l1; }

/* How many blocks depends on how much there is to count: go round until it fits. */
static int plan_layout(const struct create_options *options, struct layout *layout, struct error *error) {
    struct geometry *geometry = &layout->geometry;
    geometry_set(geometry, options->version, options->cluster_bits, options->refcount_order, options->extended_l2);
    const int result = geometry_check_size(geometry, options->size, error);
    if (result < 0) return result;
    layout->l1_entries = geometry_l1_entries(geometry, options->size);
    layout->l1 = geometry_clusters_for(geometry, layout->l1_entries * 8);
    layout->table = layout->blocks = 1;
    for (;;) {
        const uint64_t blocks = ceil_div_u64(total_clusters(layout), geometry_block_entries(geometry));
        const uint64_t table = geometry_clusters_for(geometry, blocks * 8);
        if (blocks <= layout->blocks && table <= layout->table) return 0;
        layout->blocks = max_u64(blocks, layout->blocks);
        layout->table = max_u64(table, layout->table);
    }
}

/* ---- the parts ---- */

static int set_backing(struct header *header, const struct create_options *options) {
    if (options->backing_file == NULL) return 0;
    header->backing_file = memory_text(options->backing_file, strlen(options->backing_file));
    if (header->backing_file == NULL) return -ENOMEM;
    if (options->backing_format == NULL) return 0;
    return header_set_extension(header, FORMAT_EXTENSION_BACKING_FORMAT, options->backing_format,
                                (uint32_t) strlen(options->backing_format));
}

static int set_data_file(struct header *header, const struct create_options *options) {
    if (options->data_file == NULL) return 0;
    header->incompatible_features |= FORMAT_INCOMPATIBLE_DATA_FILE;
    if (options->data_file_raw) header->autoclear_features |= FORMAT_AUTOCLEAR_RAW_DATA;
    return header_set_extension(header, FORMAT_EXTENSION_DATA_FILE, options->data_file, (uint32_t) strlen(options->data_file));
}

static int fill_header(struct header *header, const struct create_options *options, const struct layout *layout) {
    *header =
        (struct header){.version = options->version,
                        .cluster_bits = options->cluster_bits,
                        .size = options->size,
                        .l1_size = (uint32_t) layout->l1_entries,
                        .l1_table_offset = layout->l1 == 0 ? 0 : geometry_offset(&layout->geometry, 1 + layout->table + layout->blocks),
                        .refcount_table_offset = geometry_offset(&layout->geometry, 1),
                        .refcount_table_clusters = (uint32_t) layout->table,
                        .refcount_order = options->refcount_order,
                        .header_length = options->version < 3 ? FORMAT_HEADER_V2_LENGTH : FORMAT_HEADER_LENGTH,
                        .compatible_features = options->lazy_refcounts ? FORMAT_COMPATIBLE_LAZY_REFCOUNTS : 0};
    header->compression_type = options->compression_type;
    if (options->compression_type != 0) header->incompatible_features |= FORMAT_INCOMPATIBLE_COMPRESSION;
    if (options->extended_l2) header->incompatible_features |= FORMAT_INCOMPATIBLE_EXTENDED_L2;
    int result = set_backing(header, options);
    if (result == 0) result = set_data_file(header, options);
    return result < 0 || options->version < 3 ? result : header_add_feature_names(header);
}

/* The first cluster's bytes, which also shows that everything fits there. */
static int make_header(const struct create_options *options, const struct layout *layout, uint8_t **bytes, struct error *error) {
    struct header header;
    size_t used = 0;
    *bytes = memory_aligned(layout->geometry.cluster_size);
    int result = *bytes == NULL ? -ENOMEM : fill_header(&header, options, layout);
    if (result < 0) return error_set(error, result, "no memory for the header");
    result = header_write(&header, *bytes, layout->geometry.cluster_size, &used, error);
    header_clear(&header);
    return result;
}

static int write_table(struct file *file, const struct layout *layout, struct error *error) {
    const uint64_t length = round_up_u64(layout->blocks * 8, 512);
    uint8_t *bytes = memory_aligned(length);
    if (bytes == NULL) return error_set(error, -ENOMEM, "no memory for the refcount table");
    memset(bytes, 0, length);
    for (uint64_t i = 0; i < layout->blocks; i++) store_be64(bytes + 8 * i, geometry_offset(&layout->geometry, 1 + layout->table + i));
    const int result = file_write(file, geometry_offset(&layout->geometry, 1), bytes, length, error);
    memory_free(bytes);
    return result;
}

static int write_blocks(struct file *file, const struct layout *layout, struct error *error) {
    const unsigned order = layout->geometry.refcount_order;
    const uint64_t length = round_up_u64(ceil_div_u64(total_clusters(layout) << order, 8), 512);
    uint8_t *bytes = memory_aligned(length);
    if (bytes == NULL) return error_set(error, -ENOMEM, "no memory for the refcount blocks");
    memset(bytes, 0, length);
    for (uint64_t i = 0; i < total_clusters(layout); i++) bits_set(bytes, order, i, 1);
    const int result = file_write(file, geometry_offset(&layout->geometry, 1 + layout->table), bytes, length, error);
    memory_free(bytes);
    return result;
}

/* XFS refuses a hint for a file that has extents, and other filesystems all hints: these are found out while the old bytes are there. */
static int empty_file(struct file *file, const struct create_options *options, struct error *error) {
    const uint64_t hint = options->extent_size_hint;
    struct error refused = {.code = 0};
    if (hint > 0 && extent_hint_set(file, hint, &refused) == -ENOTSUP) return error_set(error, -ENOTSUP, "%s", refused.text);
    const int result = file_truncate(file, 0, error);
    return result < 0 || hint == 0 ? result : extent_hint_set(file, hint, error);
}

static int write_image(struct file *file, const struct create_options *options, const struct layout *layout, const uint8_t *header,
                       struct error *error) {
    const uint64_t l1_end = geometry_offset(&layout->geometry, total_clusters(layout) - layout->l1) + layout->l1_entries * 8;
    int result = empty_file(file, options, error);
    if (result == 0) result = file_truncate(file, l1_end, error);
    if (result == 0) result = write_table(file, layout, error);
    if (result == 0) result = write_blocks(file, layout, error);
    if (result == 0) result = file_write(file, 0, header, layout->geometry.cluster_size, error);
    return result;
}

/* ---- preallocation ---- */

static int fill_range(struct file *file, enum preallocation mode, uint64_t offset, uint64_t length, struct error *error) {
    if (mode == PREALLOCATION_METADATA || length == 0) return 0;
    if (mode == PREALLOCATION_FALLOC) return file_allocate(file, offset, length, error);
    while (length > 0) {
        const uint64_t part = min_u64(length, FILL_LENGTH);
        const int result = file_write(file, offset, memory_zeroes(), part, error);
        if (result < 0) return result;
        offset += part;
        length -= part;
    }
    return 0;
}

/* Space for what each run of clusters maps to. */
static int fill_clusters(struct image *image, enum preallocation mode, struct error *error) {
    for (uint64_t at = 0; at < image->size;) {
        struct request request;
        request_start(&request, image, REQUEST_LOOKUP, at, image->size - at, NULL);
        int result = request_run_into(&request, error);
        if (result == 0) result = fill_range(image->data, mode, request.run.host_offset, request.run.length, error);
        if (result < 0) return result;
        at += request.run.length;
    }
    return 0;
}

static int preallocate_qcow2(struct file *file, const struct create_options *options, struct error *error) {
    struct image_options open_options = image_options_default();
    struct image *image = NULL;
    open_options.format = IMAGE_OPEN_QCOW2;
    open_options.l2_cache_entry_size = UINT64_C(1) << options->cluster_bits;
    open_options.open_backing = false;
    int result = image_open(file, &open_options, &image, error);
    if (result < 0) return result;
    struct request allocate;
    request_start(&allocate, image, REQUEST_ALLOCATE, 0, image->size, NULL);
    result = request_run_into(&allocate, error);
    if (result == 0) result = request_flush(image, error);
    if (result == 0 && options->preallocation > PREALLOCATION_METADATA) result = fill_clusters(image, options->preallocation, error);
    struct error close_error = {.code = 0};
    const int closed = image_close(image, &close_error);
    return result < 0 || closed == 0 ? result : error_set(error, closed, "%s", close_error.text);
}

/* ---- doors ---- */

static int check_options(const struct create_options *options, struct error *error) {
    if (options->preallocation != PREALLOCATION_OFF && options->backing_file != NULL) {
        return error_set(error, -EINVAL, "preallocation and backing_file cannot be used together");
    }
    if (options->data_file_raw && (options->data_file == NULL || options->backing_file != NULL)) {
        return error_set(error, -EINVAL, "data_file_raw needs a data_file, and allows no backing_file");
    }
    if (!codec_is_here((enum codec) options->compression_type)) {
        return error_set(error, -ENOTSUP, "compression_type is zstd, which this build has not");
    }
    if ((options->data_file != NULL || options->extended_l2) && options->version < 3) {
        return error_set(error, -EINVAL, "data_file and extended_l2 need compat '1.1'");
    }
    if (options->extended_l2 && options->cluster_bits < FORMAT_EXTENDED_L2_CLUSTER_BITS_MIN) {
        return error_set(error, -EINVAL, "extended_l2 needs a cluster_size of 16K or more");
    }
    if (options->backing_file != NULL && strlen(options->backing_file) > FORMAT_BACKING_NAME_MAX) {
        return error_set(error, -EINVAL, "backing_file is %zu bytes long; at most %u are allowed", strlen(options->backing_file),
                         FORMAT_BACKING_NAME_MAX);
    }
    return 0;
}

/* A raw data file must be all there is to know, so every cluster is mapped from the start. */
static bool is_preallocated(const struct create_options *options) {
    return options->preallocation != PREALLOCATION_OFF || options->data_file_raw;
}

/* The external data file beside the image in `file`. */
static int make_data_file(const struct file *file, const struct create_options *options, struct error *error) {
    struct file *data = NULL;
    if (options->data_file == NULL) return 0;
    char *path = relative_path(file->name, options->data_file);
    if (path == NULL) return error_set(error, -ENOMEM, "no memory to make the data file");
    int result = file_posix_is_at(file, path) ? error_set(error, -EINVAL, "data_file '%s' is the image itself", path) : 0;
    if (result == 0) {
        const unsigned flags = (options->direct ? FILE_POSIX_DIRECT : 0) | (options->no_sync ? FILE_POSIX_NO_SYNC : 0);
        result = data_file_create(path, options->size, options->extent_size_hint, flags, &data, error);
    }
    file_release(data);
    memory_free(path);
    return result;
}

static int create_raw(struct file *file, const struct create_options *options, struct error *error) {
    if (options->preallocation == PREALLOCATION_METADATA)
        return error_set(error, -EINVAL, "preallocation 'metadata' makes no sense for a raw image");
    int result = empty_file(file, options, error);
    if (result == 0) result = file_truncate(file, options->size, error);
    return result < 0 ? result
                      : fill_range(file, options->preallocation == PREALLOCATION_OFF ? PREALLOCATION_METADATA : options->preallocation, 0,
                                   options->size, error);
}

/* Virtual sizes are whole sectors. */
static struct create_options with_whole_sectors(const struct create_options *options) {
    struct create_options rounded = *options;
    rounded.size = round_up_u64(options->size, SECTOR_SIZE);
    return rounded;
}

static int create_qcow2(struct file *file, const struct create_options *options, struct error *error) {
    struct layout layout = {.table = 0};
    uint8_t *header = NULL;
    int result = plan_layout(options, &layout, error);
    if (result == 0) result = make_header(options, &layout, &header, error);
    if (result == 0) result = make_data_file(file, options, error);
    if (result == 0) result = write_image(file, options, &layout, header, error);
    memory_free(header);
    return result;
}

/* As the file's writer from the first change to the last; while preallocation's own image is open, that one is the writer and this a
 * reader. */
static int make_image(struct file *file, const struct create_options *options, struct error *error) {
    const bool preallocates = options->format == IMAGE_QCOW2 && is_preallocated(options);
    struct error ignored = {.code = 0};
    enum file_use use = FILE_USE_WRITE;
    int result = check_options(options, error);
    if (result < 0) return result;
    if (file_change_use(file, FILE_USE_NOTHING, use, error) < 0) return error_prefix(error, "'%s'", file->name);
    result = options->format == IMAGE_RAW ? create_raw(file, options, error) : create_qcow2(file, options, error);
    if (result == 0 && preallocates) {
        if (file_change_use(file, use, FILE_USE_READ, &ignored) == 0) use = FILE_USE_READ;
        result = preallocate_qcow2(file, options, error);
    }
    if (result == 0) result = file_sync(file, error);
    file_change_use(file, use, FILE_USE_NOTHING, &ignored);
    return result;
}

/* Opens the backing file as the new image will, so that nothing is made, and nothing replaced, over one that cannot be opened or that has
 * the new image itself somewhere below it. Also gives the size to an image that names none. */
static int check_backing(const char *path, bool is_file, struct create_options *options, struct error *error) {
    struct image_options open_options = image_options_default();
    struct image *backing = NULL;
    if (options->backing_file == NULL) return 0;
    open_options.read_only = true;
    if (options->backing_format != NULL)
        open_options.format = strcmp(options->backing_format, "raw") == 0 ? IMAGE_OPEN_RAW : IMAGE_OPEN_QCOW2;
    char *backing_file = relative_path(path, options->backing_file);
    if (backing_file == NULL) return error_set(error, -ENOMEM, "no memory to open the backing file");
    int result = image_open_path(backing_file, &open_options, &backing, error);
    memory_free(backing_file);
    if (result < 0) return error_prefix(error, "backing_file");
    if (is_file && chain_has_file(backing, path)) {
        result = error_set(error, -EINVAL, "backing_file '%s': '%s' itself is in that chain", options->backing_file, path);
    }
    if (options->size_from_backing) options->size = round_up_u64(backing->size, SECTOR_SIZE);
    struct error ignored = {.code = 0};
    image_close(backing, &ignored);
    return result;
}

/* All that can be known to be wrong is known before the file is touched. */
static int rehearse(const struct create_options *options, struct error *error) {
    struct layout layout = {.table = 0};
    uint8_t *header = NULL;
    int result = check_options(options, error);
    if (result < 0 || options->format == IMAGE_RAW) return result;
    result = plan_layout(options, &layout, error);
    if (result == 0) result = make_header(options, &layout, &header, error);
    memory_free(header);
    return result;
}

int image_create(struct file *file, const struct create_options *options, struct error *error) {
    struct create_options filled = with_whole_sectors(options);
    const int result = check_backing(file->name, file_posix_descriptor(file) >= 0, &filled, error);
    return result < 0 ? result : make_image(file, &filled, error);
}

/* A file of ours that did not become an image goes again; a symbolic link that led to it was not ours. */
static void remove_file(const char *path) {
    char *target = realpath(path, NULL);
    if (target != NULL) unlink(target);
    free(target);
}

int image_create_path(const char *path, const struct create_options *options, struct error *error) {
    struct create_options filled = with_whole_sectors(options);
    struct file *file = NULL;
    struct stat before;
    int result = check_backing(path, true, &filled, error);
    if (result == 0) result = rehearse(&filled, error);
    if (result < 0) return result;
    const bool was_there = stat(path, &before) == 0;
    const unsigned flags =
        FILE_POSIX_WRITE | FILE_POSIX_CREATE | (options->direct ? FILE_POSIX_DIRECT : 0) | (options->no_sync ? FILE_POSIX_NO_SYNC : 0);
    result = file_posix_open(path, flags, &file, error);
    const bool ours = result == 0 && !was_there;
    if (result == 0) result = make_image(file, &filled, error);
    file_release(file);
    if (result < 0 && ours) remove_file(path);
    return result;
}
