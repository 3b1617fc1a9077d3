/* SPDX-License-Identifier: MIT
 *
 * From a file to one level of an image: lock, probe, header, tables, rooms. Each step checks what it reads against the
 * file's length before it takes memory. A half-opened image is closed by the same function as a whole one, so every
 * room can be destroyed at any time. Called by chain, which adds the levels below.
 * Reads metadata only.
 */
#include "image/open.h"

#include <string.h>
#include <time.h>

#include "base/bytes.h"
#include "base/memory.h"
#include "image/checkup.h"
#include "image/head.h"
#include "image/inactive.h"
#include "image/snapshot_table.h"
#include "storage/file_model.h"
#include "storage/file_posix.h"

#define L2_CACHE_MAX (UINT64_C(32) << 20)
#define L2_ENTRY_DEFAULT UINT64_C(4096)
#define REFCOUNT_CACHE_SLICES 4u
#define IDLE_ROUNDS 3u

struct image_options image_options_default(void) {
    return (struct image_options){.open_backing = true,
                                  .open_data_file = true,
                                  .cow = IMAGE_COW_SKIP,
                                  .overlap_check = OVERLAP_MAIN_HEADER | OVERLAP_ACTIVE_L1 | OVERLAP_REFCOUNT_TABLE |
                                                   OVERLAP_SNAPSHOT_TABLE | OVERLAP_BITMAP_DIRECTORY | OVERLAP_ACTIVE_L2 |
                                                   OVERLAP_REFCOUNT_BLOCK | OVERLAP_INACTIVE_L1,
                                  .cache_clean_interval = 600};
}

unsigned image_file_flags(const struct image_options *options) {
    return (options->read_only ? 0 : FILE_POSIX_WRITE) | (options->direct ? FILE_POSIX_DIRECT : 0) |
           (options->no_sync ? FILE_POSIX_NO_SYNC : 0);
}

/* ---- header ---- */

static int read_header(struct image *image, uint64_t file_length, struct error *error) {
    header_clear(&image->header);
    const int result = head_read(image->file, file_length, &image->header, error);
    return result < 0 ? result : header_check_tables(&image->header, file_length, error);
}

static int refuse_unsupported(const struct image *image, struct error *error) {
    const struct header *header = &image->header;
    if (header->crypt_method != 0) {
        return error_set(error, -ENOTSUP, "crypt_method at offset 32 is %u: encrypted images are not supported by this version",
                         header->crypt_method);
    }
    if ((header->incompatible_features & FORMAT_INCOMPATIBLE_EXTENDED_L2) != 0 &&
        header->cluster_bits < FORMAT_EXTENDED_L2_CLUSTER_BITS_MIN) {
        return error_set(error, ERROR_CORRUPT, "cluster_bits at offset 20 is %u; extended L2 entries need %u or more", header->cluster_bits,
                         FORMAT_EXTENDED_L2_CLUSTER_BITS_MIN);
    }
    if (image->read_only) return 0;
    if ((header->incompatible_features & FORMAT_INCOMPATIBLE_CORRUPT) != 0) {
        return error_set(error, ERROR_CORRUPT, "the image is marked corrupt (incompatible feature bit 1): it opens for reading only");
    }
    return 0;
}

/* ---- repair ---- */

static int repair(struct image *image, struct error *error) {
    const struct checkup_options options = {.repair = CHECKUP_FIX_ALL, .memory_limit = CHECKUP_MEMORY};
    struct checkup checkup;
    int result = checkup_run(&checkup, image->file, &options, error);
    if (result == 0 && checkup.corruptions + checkup.check_errors > 0) {
        result = error_set(error, ERROR_CORRUPT, "repairing the image left %llu corruptions and %llu places that could not be checked",
                           (unsigned long long) checkup.corruptions, (unsigned long long) checkup.check_errors);
    }
    checkup_end(&checkup);
    return result;
}

/* An image marked dirty is repaired before it is written; whoever asks for it has any image repaired, and one whose tables are no good
 * is only readable after that. */
static int read_sound_header(struct image *image, const struct image_options *options, uint64_t *file_bytes, struct error *error) {
    int result = options->repair && !image->read_only ? repair(image, error) : 0;
    if (result == 0 && options->repair) result = file_length(image->file, file_bytes, error);
    if (result == 0) result = read_header(image, *file_bytes, error);
    if (result == 0) result = refuse_unsupported(image, error);
    if (result < 0 || image->read_only || (image->header.incompatible_features & FORMAT_INCOMPATIBLE_DIRTY) == 0) return result;
    result = repair(image, error);
    if (result < 0) return error_prefix(error, "the image is marked dirty (incompatible feature bit 0)");
    result = file_length(image->file, file_bytes, error);
    return result < 0 ? result : read_header(image, *file_bytes, error);
}

/* ---- tables ---- */

static int read_table(struct image *image, uint64_t offset, uint64_t entries, uint64_t **table, struct error *error) {
    *table = memory_array(max_u64(entries, 1), 8);
    if (*table == NULL) return error_set(error, -ENOMEM, "no memory for a table of %llu entries", (unsigned long long) entries);
    const int result = file_read(image->file, offset, *table, entries * 8, error);
    for (uint64_t i = 0; result == 0 && i < entries; i++) (*table)[i] = load_be64(&(*table)[i]);
    if (result < 0) {
        memory_free(*table);
        *table = NULL;
    }
    return result;
}

/* More than all blocks of twice the image's size would be is never used. */
static uint64_t refcount_cache_most(const struct image *image) {
    const uint64_t clusters = 2 * geometry_clusters_for(&image->geometry, image->header.size) + 1024;
    const uint64_t blocks = ceil_div_u64(clusters, geometry_block_entries(&image->geometry));
    return max_u64(geometry_offset(&image->geometry, blocks), min_u64(image->geometry.cluster_size, 65536) * REFCOUNT_CACHE_SLICES);
}

static int open_refcounts(struct image *image, const struct image_options *options, uint64_t file_length, struct error *error) {
    const struct header *header = &image->header;
    const uint64_t entries = geometry_offset(&image->geometry, header->refcount_table_clusters) / 8;
    const uint64_t slice = min_u64(image->geometry.cluster_size, 65536);
    uint64_t *table = NULL;
    int result = read_table(image, header->refcount_table_offset, entries, &table, error);
    if (result < 0) return result;
    const uint64_t asked = options->refcount_cache_size != 0 ? options->refcount_cache_size : slice * REFCOUNT_CACHE_SLICES;
    const uint64_t cache = min_u64(asked, refcount_cache_most(image));
    result = refcount_init(&image->refcount, &image->geometry, &image->overlap, table, entries, header->refcount_table_offset, cache);
    if (result < 0) {
        memory_free(table);
        return error_set(error, result, "no memory for the refcount cache");
    }
    image->refcount.host_end = file_length;
    return 0;
}

static uint64_t l2_cache_size(const struct image *image, const struct image_options *options, uint64_t entry_size) {
    const uint64_t all = image->header.l1_size * (uint64_t) image->geometry.cluster_size;
    return max_u64(min_u64(options->l2_cache_size != 0 ? options->l2_cache_size : L2_CACHE_MAX, all), 2 * entry_size);
}

static int open_map(struct image *image, const struct image_options *options, uint64_t file_length, struct error *error) {
    const struct header *header = &image->header;
    const uint64_t wanted = options->l2_cache_entry_size != 0 ? options->l2_cache_entry_size : L2_ENTRY_DEFAULT;
    const uint64_t entry_size = min_u64(wanted, image->geometry.cluster_size);
    if (options->l2_cache_entry_size > image->geometry.cluster_size) {
        return error_set(error, -EINVAL, "l2_cache_entry_size is %llu; this image's clusters have %u bytes",
                         (unsigned long long) options->l2_cache_entry_size, image->geometry.cluster_size);
    }
    uint64_t *l1 = NULL;
    int result = read_table(image, header->l1_table_offset, header->l1_size, &l1, error);
    if (result < 0) return result;
    result = map_init(&image->map, &image->geometry, &image->overlap, l1, header->l1_size, header->l1_table_offset, (uint32_t) entry_size,
                      l2_cache_size(image, options, entry_size));
    if (result < 0) {
        memory_free(l1);
        return error_set(error, result, "no memory for the L2 cache");
    }
    image->map.host_end = file_length;
    return 0;
}

static int open_rooms(struct image *image, const struct image_options *options, uint64_t file_length, struct error *error) {
    const struct header *header = &image->header;
    overlap_init(&image->overlap, image->read_only ? 0 : options->overlap_check);
    int result = overlap_add(&image->overlap, OVERLAP_MAIN_HEADER, 0, 1);
    if (result < 0) return error_set(error, result, "no memory for the overlap check");
    result = open_refcounts(image, options, file_length, error);
    if (result == 0) result = open_map(image, options, file_length, error);
    if (result == 0) result = inactive_note(image, file_length, error);
    if (result < 0) return result;
    alloc_init(&image->alloc, &image->refcount, image->file, &image->map.l2, file_length);
    image->alloc.give_back = !options->discard_ignored;
    const struct header_pointers pointers = {.size = header->size,
                                             .crypt_method = header->crypt_method,
                                             .l1_size = header->l1_size,
                                             .l1_offset = header->l1_table_offset,
                                             .refcount_table_offset = header->refcount_table_offset,
                                             .refcount_table_clusters = header->refcount_table_clusters};
    flush_init(&image->flush, &image->refcount, &image->alloc, &image->map, image->file, &pointers);
    return 0;
}

/* The image's tables become those of a snapshot, in memory alone. */
static int show_snapshot(struct image *image, const char *id_or_name, uint64_t file_length, struct error *error) {
    struct header *header = &image->header;
    struct snapshot_table table;
    int result = snapshot_table_read(&table, image->file, header, file_length, error);
    if (result < 0) return result;
    const struct snapshot *snapshot = snapshot_table_find(&table, id_or_name);
    if (snapshot == NULL) {
        result = error_set(error, -ENOENT, "there is no snapshot '%s'", id_or_name);
    } else {
        header->size = snapshot->disk_size;
        header->l1_table_offset = snapshot->l1_offset;
        header->l1_size = snapshot->l1_entries;
        result = header_check_l1(header, file_length, error);
        if (result < 0) error_prefix(error, "snapshot '%s'", id_or_name);
    }
    snapshot_table_clear(&table);
    return result;
}

static int open_qcow2(struct image *image, const struct image_options *options, uint64_t file_length, struct error *error) {
    image->format = IMAGE_QCOW2;
    const int result = read_sound_header(image, options, &file_length, error);
    if (result < 0) return result;
    image->geometry = header_geometry(&image->header);
    if (options->snapshot != NULL && show_snapshot(image, options->snapshot, file_length, error) < 0) return error->code;
    image->size = image->header.size;
    image->corrupt = (image->header.incompatible_features & FORMAT_INCOMPATIBLE_CORRUPT) != 0;
    image->corrupt_noted = image->corrupt;
    image->data_is_raw = image->geometry.data_file && (image->header.autoclear_features & FORMAT_AUTOCLEAR_RAW_DATA) != 0;
    return open_rooms(image, options, file_length, error);
}

/* ---- the image ---- */

static int probe_format(struct image *image, const struct image_options *options, uint64_t file_length, struct error *error) {
    uint8_t magic[4] = {0};
    image->format = options->format == IMAGE_OPEN_RAW ? IMAGE_RAW : IMAGE_QCOW2;
    if (options->format != IMAGE_OPEN_PROBE) return 0;
    const int result = file_read(image->file, 0, magic, min_u64(sizeof magic, file_length), error);
    if (result == 0) image->format = header_is_qcow2(magic, sizeof magic) ? IMAGE_QCOW2 : IMAGE_RAW;
    image->probed = true;
    return result;
}

static uint64_t seconds_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return (uint64_t) now.tv_sec;
}

static int fill(struct image *image, const struct image_options *options, struct error *error) {
    uint64_t length = 0;
    image->read_only = options->read_only;
    image->write_through = options->write_through;
    image->discard_ignored = options->discard_ignored;
    image->detect_zeroes = options->detect_zeroes;
    image->detected_unmap = options->detected_unmap;
    image->cow = options->cow;
    image->aio = options->aio;
    image->clean_interval = file_is_model(image->file) ? 0 : options->cache_clean_interval; /* virtual time does not know real seconds */
    image->cleaned_at = seconds_now();
    const enum file_use use = !image->read_only ? FILE_USE_WRITE : options->force_share ? FILE_USE_READ_SHARED : FILE_USE_READ;
    image->use = FILE_USE_NOTHING;
    int result = file_change_use(image->file, FILE_USE_NOTHING, use, error);
    if (result == 0) image->use = use;
    if (result == 0) result = file_length(image->file, &length, error);
    if (result == 0) result = probe_format(image, options, length, error);
    if (result < 0) return result;
    if (image->format == IMAGE_QCOW2) return open_qcow2(image, options, length, error);
    image->size = length;
    return 0;
}

/* Frees one level, and the file with its locks; flushes nothing. */
static void destroy(struct image *image) {
    struct error ignored = {.code = 0};
    if (image->data != NULL && image->data != image->file) {
        file_change_use(image->data, image->use, FILE_USE_NOTHING, &ignored);
        file_release(image->data);
    }
    alloc_destroy(&image->alloc);
    map_destroy(&image->map);
    refcount_destroy(&image->refcount);
    overlap_destroy(&image->overlap);
    header_clear(&image->header);
    memory_free(image->unpacked.bytes);
    pthread_mutex_destroy(&image->lock);
    file_change_use(image->file, image->use, FILE_USE_NOTHING, &ignored);
    file_release(image->file);
    memory_free(image);
}

static void destroy_chain(struct image *image) {
    while (image != NULL) {
        struct image *backing = image->backing;
        destroy(image);
        image = backing;
    }
}

int image_open_level(struct file *file, const struct image_options *options, struct image **image, struct error *error) {
    *image = NULL;
    struct image *made = memory_zeroed(sizeof *made);
    if (made == NULL) return error_set(error, -ENOMEM, "no memory for an image");
    pthread_mutex_init(&made->lock, NULL);
    made->file = made->data = file_share(file);
    const int result = fill(made, options, error);
    if (result < 0) {
        error_prefix(error, "'%s'", file->name);
        destroy_chain(made);
        return result;
    }
    *image = made;
    return 0;
}

/* Until nothing is dirty and nothing waits to become free. A round releases as many clusters as the refcount cache has room for, and
 * the next one writes their counts; rounds that change nothing end it (clusters that cannot be released leak). */
static int flush_all(struct image *image, struct error *error) {
    unsigned idle = 0;
    while (flush_needed(&image->flush) && idle < IDLE_ROUNDS) {
        const uint64_t waiting = image->alloc.released_clusters;
        const int result = request_flush(image, error);
        if (result < 0) return result;
        idle = image->alloc.released_clusters < waiting ? 0 : idle + 1;
    }
    return 0;
}

/* What the file was grown ahead is given back. */
static int trim(struct image *image, struct error *error) {
    const uint64_t length = max_u64(geometry_offset(&image->geometry, image->alloc.end), image->alloc.length_at_open);
    if (image->alloc.file_length <= length || image->alloc.end == 0) return 0;
    const int result = file_truncate(image->file, length, error);
    if (result == 0) image->alloc.file_length = length;
    return result;
}

int image_settle(struct image *image, struct error *error) {
    if (image->lost) return error_set(error, -EIO, "'%s' has to be opened anew", image->file->name);
    const int result = flush_all(image, error);
    return result == 0 ? trim(image, error) : result;
}

/* Rooms as they were, filled anew. */
int image_reload(struct image *image, struct error *error) {
    const struct cache *l2 = &image->map.l2, *blocks = &image->refcount.blocks;
    const struct image_options options = {.overlap_check = image->overlap.checked,
                                          .discard_ignored = image->discard_ignored,
                                          .l2_cache_size = (uint64_t) l2->slot_count * l2->slot_size,
                                          .l2_cache_entry_size = l2->slot_size,
                                          .refcount_cache_size = (uint64_t) blocks->slot_count * blocks->slot_size};
    uint64_t length = 0;
    alloc_destroy(&image->alloc);
    map_destroy(&image->map);
    refcount_destroy(&image->refcount);
    overlap_destroy(&image->overlap);
    unpacked_forget(image);
    image->packing = (struct packing){0, 0};
    int result = file_length(image->file, &length, error);
    if (result == 0) result = read_header(image, length, error);
    if (result == 0) image->size = image->header.size;
    if (result == 0) image->corrupt = image->corrupt_noted = (image->header.incompatible_features & FORMAT_INCOMPATIBLE_CORRUPT) != 0;
    if (result == 0) result = open_rooms(image, &options, length, error);
    image->lost = result < 0;
    return result;
}

int image_checkup(struct image *image, const struct checkup_options *options, struct checkup *checkup, struct error *error) {
    int result = 0;
    if (options->repair != CHECKUP_LOOK && image->read_only) {
        return error_set(error, -EROFS, "'%s' is open for reading only", image->file->name);
    }
    if (!image->read_only) result = image_settle(image, error);
    if (result == 0) result = checkup_run(checkup, image->file, options, error);
    if (options->repair != CHECKUP_LOOK || !image->read_only) {
        struct error reload_error = {.code = 0};
        const int reloaded = image_reload(image, &reload_error);
        if (reloaded < 0 && result == 0) result = error_set(error, reloaded, "%s", reload_error.text);
    }
    return result;
}

int image_close(struct image *image, struct error *error) {
    if (image == NULL) return 0;
    int result = 0;
    if (image->format == IMAGE_QCOW2 && !image->read_only && !image->lost) {
        result = image_settle(image, error);
    }
    destroy_chain(image);
    return result;
}
