/* SPDX-License-Identifier: MIT
 *
 * Each verb raises first and lowers last: references are durable before a table names what they count, and nothing is given up before
 * no table on the disk names it any more.
 *
 *   create: dirty → references up → COPIED → L1 copy and new table → header → old table down
 *   apply:  dirty → references of the snapshot up → its L1 as a new one → header → references of the old disk down → COPIED
 *   delete: dirty → new table → header → references down → COPIED
 *
 * The header is written here and not by flush, between two moments at which nothing is newer in memory than in the file; after it the
 * image is read anew. What fails before that is taken back; what fails after it leaves the image marked, and it has to be opened
 * anew.
 */
#include "image/snapshot.h"

#include <string.h>
#include <time.h>

#include "base/bytes.h"
#include "base/memory.h"
#include "guest/request.h"
#include "image/head.h"
#include "image/open.h"
#include "image/tally.h"
#include "image/tree.h"

#define SIZE_OFFSET 24u         /* size u64, crypt_method u32, l1_size u32, l1_table_offset u64 */
#define NB_SNAPSHOTS_OFFSET 60u /* nb_snapshots u32, snapshots_offset u64 */

/* ---- beginning and ending ---- */

static int check(const struct image *image, struct error *error) {
    if (image->format == IMAGE_RAW || image->geometry.data_file) {
        return error_set(error, -ENOTSUP, "'%s' is %s, which cannot have snapshots", image->file->name,
                         image->format == IMAGE_RAW ? "a raw image" : "an image with an external data file");
    }
    if (image->read_only) return error_set(error, -EROFS, "'%s' is open for reading only", image->file->name);
    if (image->corrupt) return error_set(error, ERROR_CORRUPT, "'%s' is marked corrupt: no writes until it is repaired", image->file->name);
    return 0;
}

static int begin(struct image *image, struct snapshot_table *table, struct error *error) {
    *table = (struct snapshot_table){.items = NULL};
    int result = image_settle(image, error);
    if (result == 0) result = snapshot_list(image, table, error);
    if (result == 0) result = head_set_incompatible(image->file, &image->header, FORMAT_INCOMPATIBLE_DIRTY, error);
    return result;
}

/* What the verb has come to, whichever way; the header's mark goes only when all of it is done. */
static int finish(struct image *image, struct snapshot_table *table, int result, bool switched, struct error *error) {
    struct error ignored = {.code = 0};
    snapshot_table_clear(table);
    if (result == 0 || !switched) {
        const int settled = image_settle(image, result == 0 ? error : &ignored);
        if (settled == 0) head_clear_incompatible(image->file, &image->header, FORMAT_INCOMPATIBLE_DIRTY, result == 0 ? error : &ignored);
        if (result == 0) result = error->code;
    }
    if (result < 0 && switched) {
        image->lost = true;
        error_prefix(error, "the image has to be opened anew");
    }
    return result;
}

/* ---- parts ---- */

static int take(struct image *image, uint64_t clusters, uint64_t *host_offset, struct error *error) {
    struct request request;
    request_start(&request, image, REQUEST_TAKE, 0, clusters, NULL);
    const int result = request_run_into(&request, error);
    *host_offset = request.value;
    return result;
}

static void give_back(struct image *image, uint64_t host_offset, uint64_t bytes) {
    if (bytes == 0) return;
    pthread_mutex_lock(&image->lock);
    alloc_drop(&image->alloc, geometry_cluster(&image->geometry, host_offset), geometry_clusters_for(&image->geometry, bytes),
               inflight_drop_time(&image->inflight)); /* without memory for this they leak */
    pthread_mutex_unlock(&image->lock);
}

/* Writes bytes into clusters of their own; *host_offset is 0 after a failure. */
static int put(struct image *image, const uint8_t *bytes, uint64_t length, uint64_t *host_offset, struct error *error) {
    int result = take(image, geometry_clusters_for(&image->geometry, max_u64(length, 1)), host_offset, error);
    if (result < 0) return result;
    result = file_write(image->file, *host_offset, bytes, length, error);
    if (result == 0) return 0;
    give_back(image, *host_offset, max_u64(length, 1));
    *host_offset = 0;
    return result;
}

static int put_l1(struct image *image, const struct tree *tree, uint64_t entries, uint64_t *host_offset, struct error *error) {
    uint8_t *bytes = memory_aligned(max_u64(entries, 1) * 8);
    if (bytes == NULL) return error_set(error, -ENOMEM, "no memory for an L1 table");
    for (uint64_t i = 0; i < entries; i++) store_be64(bytes + 8 * i, i < tree->entries ? tree->l1[i] & ~FORMAT_ENTRY_COPIED : 0);
    const int result = put(image, bytes, entries * 8, host_offset, error);
    memory_free(bytes);
    return result;
}

/* Writes the table anew, and the header names it: the moment at which it counts. *switched says whether that moment may have been. */
static int put_table(struct image *image, const struct snapshot_table *table, bool *switched, struct error *error) {
    uint64_t length = 0, host_offset = 0;
    uint8_t field[12], *bytes = snapshot_table_bytes(table, &length);
    if (bytes == NULL) return error_set(error, -ENOMEM, "no memory for the snapshot table");
    int result = table->count > 0 ? put(image, bytes, length, &host_offset, error) : 0;
    memory_free(bytes);
    if (result == 0) result = request_flush(image, error);
    if (result < 0) return result;
    store_be32(field, table->count);
    store_be64(field + 4, host_offset);
    *switched = true;
    result = file_write(image->file, NB_SNAPSHOTS_OFFSET, field, sizeof field, error);
    return result == 0 ? file_sync(image->file, error) : result;
}

/* Flags of the disk as the refcounts now are, and the image as it now is in the file. */
static int renew(struct image *image, struct error *error) {
    struct tree tree;
    int result = image_settle(image, error);
    if (result < 0) return result;
    result = tree_read(&tree, image, image->map.l1_offset, image->map.l1_entries, error);
    if (result == 0) result = tree_mark_copied(&tree, image->map.l1_offset, error);
    tree_clear(&tree);
    return result == 0 ? image_reload(image, error) : result;
}

static struct snapshot *find(const struct snapshot_table *table, const char *id_or_name, struct error *error) {
    struct snapshot *snapshot = snapshot_table_find(table, id_or_name);
    if (snapshot == NULL) error_set(error, -ENOENT, "there is no snapshot '%s'", id_or_name);
    return snapshot;
}

static int read_tree(struct tree *tree, struct image *image, const struct snapshot *snapshot, struct error *error) {
    *tree = (struct tree){.image = image};
    if (snapshot->l1_entries * UINT64_C(8) > FORMAT_L1_BYTES_MAX || geometry_in_cluster(&image->geometry, snapshot->l1_offset) != 0) {
        return error_set(error, ERROR_CORRUPT, "snapshot '%s': L1 table of %u entries at offset %llu is too large or not aligned",
                         snapshot->name, snapshot->l1_entries, (unsigned long long) snapshot->l1_offset);
    }
    return tree_read(tree, image, snapshot->l1_offset, snapshot->l1_entries, error);
}

int snapshot_list(struct image *image, struct snapshot_table *table, struct error *error) {
    uint64_t length = 0;
    *table = (struct snapshot_table){.items = NULL};
    if (image->format == IMAGE_RAW) return 0;
    const int result = file_length(image->file, &length, error);
    return result < 0 ? result : snapshot_table_read(table, image->file, &image->header, length, error);
}

/* ---- create ---- */

static int add_entry(struct image *image, struct snapshot_table *table, const char *name, uint64_t l1_offset, struct error *error) {
    struct timespec now;
    struct snapshot *snapshot = snapshot_table_add(table, name);
    if (snapshot == NULL) return error_set(error, -ENOMEM, "no memory for a snapshot");
    clock_gettime(CLOCK_REALTIME, &now);
    snapshot->l1_offset = l1_offset;
    snapshot->l1_entries = (uint32_t) image->map.l1_entries;
    snapshot->seconds = (uint32_t) now.tv_sec;
    snapshot->nanoseconds = (uint32_t) now.tv_nsec;
    snapshot->disk_size = image->size;
    return 0;
}

static int add_snapshot(struct image *image, struct snapshot_table *table, const char *name, bool *switched, struct error *error) {
    const uint64_t old_offset = image->header.snapshots_offset, old_bytes = table->bytes;
    struct tree tree;
    uint64_t l1_offset = 0;
    int result = tree_read(&tree, image, image->map.l1_offset, image->map.l1_entries, error);
    if (result == 0) result = tree_refer(&tree, error);
    if (result == 0) {
        result = put_l1(image, &tree, tree.entries, &l1_offset, error);
        if (result == 0) result = add_entry(image, table, name, l1_offset, error);
        if (result == 0) result = image_settle(image, error);
        if (result == 0) result = tree_mark_copied(&tree, image->map.l1_offset, error);
        if (result == 0) result = put_table(image, table, switched, error);
        if (result < 0 && !*switched) {
            struct error ignored = {.code = 0};
            tree_drop(&tree, &ignored);
            if (l1_offset != 0) give_back(image, l1_offset, max_u64(tree.entries * 8, 1));
            renew(image, &ignored);
        }
    }
    tree_clear(&tree);
    if (result == 0) give_back(image, old_offset, old_bytes);
    if (result == 0) result = image_settle(image, error);
    return result == 0 ? image_reload(image, error) : result;
}

static int check_name(const struct image *image, const char *name, uint32_t count, struct error *error) {
    if (*name == '\0' || strlen(name) > UINT16_MAX) return error_set(error, -EINVAL, "a snapshot's name has 1 to 65535 bytes");
    if (count == FORMAT_SNAPSHOTS_MAX) return error_set(error, -EFBIG, "there are 65536 snapshots, as many as there can be");
    if (image->geometry.refcount_max > 1) return 0;
    return error_set(error, -ENOTSUP, "refcounts of 1 bit cannot count a second reference: no snapshots in this image");
}

int snapshot_create(struct image *image, const char *name, struct error *error) {
    struct snapshot_table table;
    bool switched = false;
    int result = check(image, error);
    if (result == 0) result = check_name(image, name, image->header.nb_snapshots, error);
    if (result < 0) return result;
    result = begin(image, &table, error);
    if (result == 0) result = add_snapshot(image, &table, name, &switched, error);
    return finish(image, &table, result, switched, error);
}

/* ---- apply ---- */

static int switch_disk(struct image *image, uint64_t size, uint64_t l1_offset, uint64_t entries, bool *switched, struct error *error) {
    uint8_t fields[24];
    int result = request_flush(image, error);
    if (result < 0) return result;
    store_be64(fields, size);
    store_be32(fields + 8, image->header.crypt_method);
    store_be32(fields + 12, (uint32_t) entries);
    store_be64(fields + 16, l1_offset);
    *switched = true;
    result = file_write(image->file, SIZE_OFFSET, fields, sizeof fields, error);
    if (result == 0) result = file_sync(image->file, error);
    return result == 0 ? image_reload(image, error) : result;
}

static int apply(struct image *image, const struct snapshot *snapshot, bool *switched, struct error *error) {
    const uint64_t needed = geometry_l1_entries(&image->geometry, snapshot->disk_size);
    const uint64_t entries = max_u64(snapshot->l1_entries, needed), old_offset = image->map.l1_offset, old_entries = image->map.l1_entries;
    struct tree new = {.image = image}, old = {.image = image};
    uint64_t l1_offset = 0;
    int result = geometry_check_size(&image->geometry, snapshot->disk_size, error);
    if (result == 0) result = read_tree(&new, image, snapshot, error);
    if (result == 0) result = tree_read(&old, image, old_offset, old_entries, error);
    if (result == 0) result = tree_refer(&new, error);
    if (result == 0) {
        result = put_l1(image, &new, entries, &l1_offset, error);
        if (result == 0) result = switch_disk(image, snapshot->disk_size, l1_offset, entries, switched, error);
        if (result < 0 && !*switched) {
            struct error ignored = {.code = 0};
            tree_drop(&new, &ignored);
            if (l1_offset != 0) give_back(image, l1_offset, max_u64(entries * 8, 1));
        }
    }
    if (result == 0) result = tree_drop(&old, error);
    if (result == 0) give_back(image, old_offset, old_entries * 8);
    if (result == 0) result = renew(image, error);
    tree_clear(&new);
    tree_clear(&old);
    return result;
}

int snapshot_apply(struct image *image, const char *id_or_name, struct error *error) {
    struct snapshot_table table;
    bool switched = false;
    int result = check(image, error);
    if (result < 0) return result;
    result = begin(image, &table, error);
    const struct snapshot *snapshot = result == 0 ? find(&table, id_or_name, error) : NULL;
    if (result == 0) result = snapshot == NULL ? error->code : apply(image, snapshot, &switched, error);
    return finish(image, &table, result, switched, error);
}

/* ---- delete ---- */

static int delete (struct image *image, struct snapshot_table *table, struct snapshot *snapshot, bool *switched, struct error *error) {
    const uint64_t old_offset = image->header.snapshots_offset, old_bytes = table->bytes, l1_offset = snapshot->l1_offset;
    struct tree tree;
    int result = read_tree(&tree, image, snapshot, error);
    if (result == 0) {
        snapshot_table_remove(table, snapshot);
        result = put_table(image, table, switched, error);
    }
    if (result == 0) result = tree_drop(&tree, error);
    if (result == 0) give_back(image, l1_offset, tree.entries * 8);
    if (result == 0) give_back(image, old_offset, old_bytes);
    tree_clear(&tree);
    return result == 0 ? renew(image, error) : result;
}

int snapshot_delete(struct image *image, const char *id_or_name, struct error *error) {
    struct snapshot_table table;
    bool switched = false;
    int result = check(image, error);
    if (result < 0) return result;
    result = begin(image, &table, error);
    struct snapshot *snapshot = result == 0 ? find(&table, id_or_name, error) : NULL;
    if (result == 0) result = snapshot == NULL ? error->code : delete (image, &table, snapshot, &switched, error);
    return finish(image, &table, result, switched, error);
}

/* ---- sizes ---- */

struct own { /* references by one tree */
    struct tally tally;
};

static int note(void *owner, uint64_t host_cluster, uint64_t count, struct error *error) {
    struct own *own = owner;
    for (uint64_t i = 0; i < count; i++) {
        if (tally_add(&own->tally, host_cluster + i, 1) < 0) return error_set(error, -ENOMEM, "no memory to count a snapshot's clusters");
    }
    return 0;
}

/* The clusters of one page whose refcount is what the tree alone accounts for. */
static int count_page(struct image *image, struct own *own, const struct tally_page *page, uint64_t *clusters, struct error *error) {
    for (uint64_t i = 0; i < TALLY_PAGE; i++) {
        struct request request;
        if (page->references[i] == 0) continue;
        request_start(&request, image, REQUEST_REFCOUNT, page->first + i, 1, NULL);
        const int result = request_run_into(&request, error);
        if (result < 0) return result;
        if (request.value == tally_get(&own->tally, page->first + i)) (*clusters)++;
    }
    return 0;
}

static int count_own(struct image *image, const struct snapshot *snapshot, uint64_t *bytes, struct error *error) {
    struct tree tree;
    struct own own;
    uint64_t clusters = geometry_clusters_for(&image->geometry, snapshot->l1_entries * UINT64_C(8));
    tally_init(&own.tally, CHECKUP_MEMORY);
    int result = read_tree(&tree, image, snapshot, error);
    if (result == 0) result = tree_walk(&tree, note, &own, error);
    for (uint64_t i = 0; result == 0 && i < own.tally.page_count; i++) {
        result = count_page(image, &own, own.tally.pages[i], &clusters, error);
    }
    *bytes = geometry_offset(&image->geometry, clusters);
    tally_destroy(&own.tally);
    tree_clear(&tree);
    return result;
}

int snapshot_exclusive(struct image *image, const char *id_or_name, uint64_t *bytes, struct error *error) {
    struct snapshot_table table;
    int result = image->read_only ? 0 : image_settle(image, error);
    if (result < 0) return result;
    result = snapshot_list(image, &table, error);
    const struct snapshot *snapshot = result == 0 ? find(&table, id_or_name, error) : NULL;
    if (result == 0) result = snapshot == NULL ? error->code : count_own(image, snapshot, bytes, error);
    snapshot_table_clear(&table);
    return result;
}
