/* SPDX-License-Identifier: MIT
 *
 * Writing compressed clusters, one guest cluster a piece. It is packed without the lock, before it is planned, and stays packed however
 * often the plan is made. Packed bytes follow each other in host clusters that several guest clusters share, each with a reference of
 * its own; what does not fit goes on in the next cluster when that is free, else a new one is begun. A cluster that does not
 * shrink is written plain. Invariant: the packing place lies in a cluster that no drop has touched since it was taken.
 * Called by request.
 */
#include <string.h>

#include "base/bytes.h"
#include "base/memory.h"
#include "format/codec.h"
#include "guest/pieces.h"

/* ---- packing ---- */

/* The guest's bytes from `at` on, with zeroes where the disk ends within the cluster; owned when it had to be copied. */
static const uint8_t *cluster_bytes(const struct request *request, uint64_t at, uint8_t **copy) {
    const uint64_t cluster_size = request->image->geometry.cluster_size, left = request->guest_offset + request->length - at;
    const uint8_t *bytes = request->bytes + (at - request->guest_offset);
    *copy = NULL;
    if (left >= cluster_size) return bytes;
    *copy = memory_zeroed(cluster_size);
    if (*copy != NULL) memcpy(*copy, bytes, left);
    return *copy;
}

static int pack(struct request *request, const uint8_t *bytes) {
    const struct image *image = request->image;
    const size_t cluster_size = image->geometry.cluster_size;
    struct packed *packed = &request->packed;
    int result = 0;
    packed->length = 0;
    if (!codec_may_shrink(bytes, cluster_size)) return 0;
    if (packed->bytes == NULL) packed->bytes = memory_aligned(cluster_size);
    if (packed->bytes == NULL) return error_set(&request->error, -ENOMEM, "no memory to compress a cluster");
    const enum codec codec = (enum codec) image->header.compression_type;
    packed->length = codec_pack(codec, request->level, bytes, cluster_size, packed->bytes, cluster_size - 1, &result);
    return result == 0
               ? 0
               : error_set(&request->error, result, "compressing the cluster at guest offset %llu", (unsigned long long) packed->at);
}

int pack_next(struct request *request) {
    const uint64_t at = request->guest_offset + request->done;
    struct packed *packed = &request->packed;
    uint8_t *copy = NULL;
    if (request->done == request->length || (packed->is_set && packed->at == at)) return 0;
    packed->is_set = true;
    packed->at = at;
    const uint8_t *bytes = cluster_bytes(request, at, &copy);
    const int result = bytes == NULL ? error_set(&request->error, -ENOMEM, "no memory to compress a cluster") : pack(request, bytes);
    memory_free(copy);
    return result;
}

void pack_end(struct request *request) {
    memory_free(request->packed.bytes);
    request->packed.bytes = NULL;
}

/* ---- a place ---- */

/* A cluster whose count cannot go up is filled no further. */
static bool takes_another(struct image *image, const struct slot *slot) {
    struct packing *packing = &image->packing;
    const uint64_t cluster = geometry_cluster(&image->geometry, packing->next);
    if (refcount_get(&image->refcount, slot, cluster) < image->geometry.refcount_max) return true;
    *packing = (struct packing){0, 0};
    return false;
}

/* Takes the place in the cluster that is being filled. PLAN_GO_ON: not there. */
static enum plan take_in_old(struct request *request) {
    struct image *image = request->image;
    struct packing *packing = &image->packing;
    struct slot *slot = NULL;
    if (packing->end - packing->next < request->packed.length) return PLAN_GO_ON;
    const uint64_t cluster = geometry_cluster(&image->geometry, packing->next);
    switch (refcount_slice(&image->refcount, cluster, &slot, &request->want, &request->error)) {
        case REFCOUNT_WANT: return PLAN_WANT;
        case REFCOUNT_FAILED: return PLAN_FAILED;
        case REFCOUNT_UNCOVERED: image->packing = (struct packing){0, 0}; return PLAN_GO_ON;
        case REFCOUNT_READY: break;
    }
    if (!takes_another(image, slot)) return PLAN_GO_ON;
    alloc_share(&image->alloc, cluster);
    request->piece.count = 1;
    return PLAN_DONE;
}

/* Whether the new cluster continues the one that is being filled. Both counts must be in one slice: a plan that needs two at once might
 * wait for ever for them in a small cache. */
static bool continues_old(struct image *image, const struct alloc_found *found) {
    struct packing *packing = &image->packing;
    struct slot *slot = NULL;
    struct want want;
    struct error ignored;
    if (packing->next == packing->end || packing->end != geometry_offset(&image->geometry, found->host_cluster)) return false;
    if (refcount_left_in_slice(&image->refcount, found->host_cluster - 1) == 1) return false;
    if (refcount_slice(&image->refcount, found->host_cluster, &slot, &want, &ignored) != REFCOUNT_READY) return false;
    return takes_another(image, slot);
}

/* Takes the place in a new cluster, or from the old one into it. */
static enum plan take_in_new(struct request *request) {
    struct image *image = request->image;
    struct packing *packing = &image->packing;
    const uint64_t cluster_size = image->geometry.cluster_size;
    struct alloc_found found;
    const enum plan plan = plan_clusters(request, 1, false, &found);
    if (plan != PLAN_DONE) return plan;
    const uint64_t host_offset = geometry_offset(&image->geometry, found.host_cluster);
    if (host_offset + cluster_size > cluster_compressed_end(&image->geometry)) {
        request->packed.length = 0; /* an entry cannot name the place: plain */
        return PLAN_GO_ON;
    }
    const bool continues = continues_old(image, &found);
    alloc_take(&image->alloc, found);
    image->stats.clusters_allocated++;
    if (continues) alloc_share(&image->alloc, found.host_cluster - 1);
    else packing->next = host_offset;
    packing->end = host_offset + cluster_size;
    request->piece.count = continues ? 2 : 1;
    return PLAN_DONE;
}

/* Nothing is taken unless it returns PLAN_DONE. */
static enum plan take_place(struct request *request) {
    struct image *image = request->image;
    struct piece *piece = &request->piece;
    enum plan plan = take_in_old(request);
    if (plan == PLAN_GO_ON) plan = take_in_new(request);
    if (plan != PLAN_DONE) return plan;
    piece->host_offset = image->packing.next;
    piece->host_cluster = geometry_cluster(&image->geometry, piece->host_offset);
    image->packing.next += request->packed.length;
    return PLAN_DONE;
}

void packing_forget(struct image *image, uint64_t host_cluster, uint64_t count) {
    struct packing *packing = &image->packing;
    if (packing->end == 0) return;
    const uint64_t cluster = geometry_cluster(&image->geometry, packing->end - 1);
    if (cluster >= host_cluster && cluster < host_cluster + count) *packing = (struct packing){0, 0};
}

/* ---- plan and link ---- */

enum plan plan_pack(struct request *request, uint64_t guest_offset, uint64_t length) {
    struct image *image = request->image;
    struct piece *piece = &request->piece;
    struct slot *slot = NULL;
    const uint64_t cluster_size = image->geometry.cluster_size;
    length = min_u64(length, cluster_size);
    if (request->packed.length == 0) return plan_write(request, guest_offset, length, request->bytes + request->done);
    enum plan plan = plan_slice(request, guest_offset, &slot);
    if (plan != PLAN_DONE) return plan;
    struct waiters *waiters = inflight_conflict(&image->inflight, guest_offset, guest_offset + cluster_size);
    if (waiters != NULL) return plan_wait(request, waiters);
    plan = take_place(request);
    if (plan != PLAN_DONE) return plan;
    piece->kind = PIECE_PACKED;
    piece->slot = slot;
    cache_pin(slot);
    piece->guest_offset = guest_offset;
    piece->progress = length;
    inflight_enter(&image->inflight, &request->entry, guest_offset, guest_offset + cluster_size);
    request->moves.count = 0;
    moves_add_bytes(&request->moves, MOVE_WRITE, image->file, piece->host_offset, request->packed.bytes, request->packed.length);
    return PLAN_MOVE;
}

int link_packed(struct request *request, int result) {
    struct image *image = request->image;
    struct piece *piece = &request->piece;
    const uint64_t now = inflight_drop_time(&image->inflight);
    image->flush.unsynced = true;
    if (result == 0) result = alloc_reserve_drops(&image->alloc, 1);
    if (result == 0) {
        const struct cluster old = map_get(&image->map, piece->slot, piece->guest_offset);
        const struct cluster new = {.type = CLUSTER_COMPRESSED, .host_offset = piece->host_offset, .byte_length = request->packed.length};
        map_set(&image->map, piece->slot, piece->guest_offset, &new);
        drop_cluster(image, &old, now);
        image->stats.compressed_writes++;
        image->stats.compressed_bytes += request->packed.length;
    } else {
        packing_forget(image, piece->host_cluster, piece->count);
        alloc_drop(&image->alloc, piece->host_cluster, piece->count, now); /* without memory for this they leak */
    }
    cache_unpin(&image->map.l2, piece->slot);
    return result;
}
