/* SPDX-License-Identifier: MIT
 *
 * Tables are read one at a time. Runs of clusters in a row are visited at once, so that a disk that was written in order costs little.
 * A walk meets the same clusters in the same order each time, which is how a failed tree_refer is taken back.
 * Called by snapshot.
 */
#include "image/tree.h"

#include "base/bytes.h"
#include "base/memory.h"
#include "base/ranges.h"
#include "guest/request.h"

#define SECTOR 512u

int tree_read(struct tree *tree, struct image *image, uint64_t l1_offset, uint64_t entries, struct error *error) {
    *tree = (struct tree){.image = image, .entries = entries, .l1 = memory_array(max_u64(entries, 1), 8)};
    if (tree->l1 == NULL) return error_set(error, -ENOMEM, "no memory for an L1 table");
    const int result = file_read(image->file, l1_offset, tree->l1, entries * 8, error);
    for (uint64_t i = 0; result == 0 && i < entries; i++) tree->l1[i] = load_be64(&tree->l1[i]);
    return result;
}

void tree_clear(struct tree *tree) {
    memory_free(tree->l1);
    tree->l1 = NULL;
}

/* ---- walking ---- */

struct walk {
    const struct tree *tree;
    tree_visit *visit;
    void *owner;
    uint64_t first, count; /* the run so far */
};

static int end_run(struct walk *walk, struct error *error) {
    const uint64_t count = walk->count;
    walk->count = 0;
    return count == 0 ? 0 : walk->visit(walk->owner, walk->first, count, error);
}

static int meet(struct walk *walk, uint64_t host_cluster, uint64_t count, struct error *error) {
    if (walk->count > 0 && walk->first + walk->count == host_cluster) {
        walk->count += count;
        return 0;
    }
    const int result = end_run(walk, error);
    walk->first = host_cluster;
    walk->count = count;
    return result;
}

static int meet_entry(struct walk *walk, const struct cluster *cluster, uint64_t entry_offset, struct error *error) {
    const struct geometry *geometry = &walk->tree->image->geometry;
    const uint64_t first = geometry_cluster(geometry, cluster->host_offset);
    switch (cluster->type) {
        case CLUSTER_INVALID:
            return error_set(error, ERROR_CORRUPT, "the L2 entry at offset %llu contradicts the format: check the image",
                             (unsigned long long) entry_offset);
        case CLUSTER_COMPRESSED: {
            const uint64_t last = geometry_cluster(geometry, cluster->host_offset + cluster->byte_length - 1);
            return meet(walk, first, last - first + 1, error);
        }
        default: return cluster_is_placed(cluster) ? meet(walk, first, 1, error) : 0;
    }
}

static int read_table(const struct tree *tree, uint64_t index, uint8_t *bytes, struct error *error) {
    const struct geometry *geometry = &tree->image->geometry;
    const uint64_t offset = tree->l1[index] & FORMAT_ENTRY_OFFSET;
    if (geometry_in_cluster(geometry, offset) != 0) {
        return error_set(error, ERROR_CORRUPT, "L1 entry %llu names an L2 table at offset %llu, which is not cluster-aligned",
                         (unsigned long long) index, (unsigned long long) offset);
    }
    return file_read(tree->image->file, offset, bytes, geometry->cluster_size, error);
}

static int walk_table(struct walk *walk, uint64_t index, uint8_t *bytes, struct error *error) {
    const struct geometry *geometry = &walk->tree->image->geometry;
    const uint64_t table = walk->tree->l1[index] & FORMAT_ENTRY_OFFSET;
    int result = read_table(walk->tree, index, bytes, error);
    if (result == 0) result = meet(walk, geometry_cluster(geometry, table), 1, error);
    for (uint64_t at = 0; result == 0 && at < geometry->cluster_size; at += geometry->l2_entry_size) {
        const struct cluster cluster = cluster_decode(geometry, bytes + at);
        result = meet_entry(walk, &cluster, table + at, error);
    }
    return result;
}

int tree_walk(const struct tree *tree, tree_visit *visit, void *owner, struct error *error) {
    struct walk walk = {.tree = tree, .visit = visit, .owner = owner};
    uint8_t *bytes = memory_aligned(tree->image->geometry.cluster_size);
    int result = bytes == NULL ? error_set(error, -ENOMEM, "no memory for an L2 table") : 0;
    for (uint64_t i = 0; result == 0 && i < tree->entries; i++) {
        if ((tree->l1[i] & FORMAT_ENTRY_OFFSET) != 0) result = walk_table(&walk, i, bytes, error);
    }
    if (result == 0) result = end_run(&walk, error);
    memory_free(bytes);
    return result;
}

/* ---- counts ---- */

struct counting {
    struct image *image;
    uint64_t done, most; /* clusters visited; drop: of so many */
};

static int refer(void *owner, uint64_t host_cluster, uint64_t count, struct error *error) {
    struct counting *counting = owner;
    struct request request;
    request_start(&request, counting->image, REQUEST_REFER, host_cluster, count, NULL);
    const int result = request_run_into(&request, error);
    counting->done += request.done;
    return result;
}

static int drop(void *owner, uint64_t host_cluster, uint64_t count, struct error *error) {
    struct counting *counting = owner;
    struct image *image = counting->image;
    count = min_u64(count, counting->most - counting->done);
    if (count == 0) return 0;
    pthread_mutex_lock(&image->lock);
    const int result = alloc_drop(&image->alloc, host_cluster, count, inflight_drop_time(&image->inflight));
    unpacked_forget(image);
    image->packing = (struct packing){0, 0};
    pthread_mutex_unlock(&image->lock);
    counting->done += count;
    return result < 0 ? error_set(error, result, "no memory to give up clusters") : 0;
}

int tree_refer(const struct tree *tree, struct error *error) {
    struct counting counting = {.image = tree->image};
    const int result = tree_walk(tree, refer, &counting, error);
    if (result == 0) return 0;
    struct counting back = {.image = tree->image, .most = counting.done};
    struct error ignored = {.code = 0};
    tree_walk(tree, drop, &back, &ignored); /* what is not given back leaks */
    return result;
}

int tree_drop(const struct tree *tree, struct error *error) {
    struct counting counting = {.image = tree->image, .most = UINT64_MAX};
    return tree_walk(tree, drop, &counting, error);
}

/* ---- COPIED ---- */

static int is_single(struct image *image, uint64_t host_cluster, bool *single, struct error *error) {
    struct request request;
    request_start(&request, image, REQUEST_REFCOUNT, host_cluster, 1, NULL);
    const int result = request_run_into(&request, error);
    *single = request.value == 1;
    return result;
}

/* Sets the entry's flag right; whether it changed. */
static int mark_entry(const struct tree *tree, uint8_t *bytes, bool *changed, struct error *error) {
    const struct geometry *geometry = &tree->image->geometry;
    struct cluster cluster = cluster_decode(geometry, bytes);
    bool single = false;
    *changed = false;
    if (!cluster_is_placed(&cluster) || cluster.type == CLUSTER_COMPRESSED || cluster.type == CLUSTER_INVALID) return 0;
    const int result = is_single(tree->image, geometry_cluster(geometry, cluster.host_offset), &single, error);
    if (result < 0 || single == cluster.copied) return result;
    cluster.copied = single;
    cluster_encode(geometry, &cluster, bytes);
    *changed = true;
    return 0;
}

static int mark_table(const struct tree *tree, uint64_t index, uint8_t *bytes, struct error *error) {
    const struct geometry *geometry = &tree->image->geometry;
    const uint64_t table = tree->l1[index] & FORMAT_ENTRY_OFFSET;
    struct range changed = {0, 0};
    int result = read_table(tree, index, bytes, error);
    for (uint64_t at = 0; result == 0 && at < geometry->cluster_size; at += geometry->l2_entry_size) {
        bool here = false;
        result = mark_entry(tree, bytes + at, &here, error);
        if (here) range_widen(&changed, at, at + geometry->l2_entry_size);
    }
    if (result < 0 || range_empty(&changed)) return result;
    const uint64_t start = round_down_u64(changed.start, SECTOR), end = round_up_u64(changed.end, SECTOR);
    return file_write(tree->image->file, table + start, bytes + start, end - start, error);
}

static int mark_l1_entry(struct tree *tree, uint64_t index, uint64_t l1_offset, struct error *error) {
    const struct geometry *geometry = &tree->image->geometry;
    uint8_t bytes[8];
    bool single = false;
    const int result = is_single(tree->image, geometry_cluster(geometry, tree->l1[index] & FORMAT_ENTRY_OFFSET), &single, error);
    const uint64_t entry = single ? tree->l1[index] | FORMAT_ENTRY_COPIED : tree->l1[index] & ~FORMAT_ENTRY_COPIED;
    if (result < 0 || entry == tree->l1[index]) return result;
    tree->l1[index] = entry;
    store_be64(bytes, entry);
    return file_write(tree->image->file, l1_offset + 8 * index, bytes, sizeof bytes, error);
}

int tree_mark_copied(struct tree *tree, uint64_t l1_offset, struct error *error) {
    uint8_t *bytes = memory_aligned(tree->image->geometry.cluster_size);
    int result = bytes == NULL ? error_set(error, -ENOMEM, "no memory for an L2 table") : 0;
    for (uint64_t i = 0; result == 0 && i < tree->entries; i++) {
        if ((tree->l1[i] & FORMAT_ENTRY_OFFSET) == 0) continue;
        result = mark_table(tree, i, bytes, error);
        if (result == 0) result = mark_l1_entry(tree, i, l1_offset, error);
    }
    memory_free(bytes);
    return result == 0 ? file_sync(tree->image->file, error) : result;
}
