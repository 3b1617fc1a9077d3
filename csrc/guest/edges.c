/* SPDX-License-Identifier: MIT
 *
 * How far a write reaches around the guest's own bytes. What it newly maps it must fill: whole clusters, or with extended L2 whole
 * subclusters; and where it leaves a host cluster that others share, every subcluster that lies in there comes along. So
 * a piece has a span, from the start of the first (sub)cluster that it maps to the end of the last, and the edges are what is in
 * the span but not the guest's. Looks at entries, changes none. Called by write under the image's lock.
 */
#include "base/bytes.h"
#include "guest/pieces.h"

bool keeps_cluster(const struct image *image, const struct cluster *cluster) {
    if (image->geometry.data_file) return true; /* each guest cluster has its place there */
    return cluster->copied && cluster_is_placed(cluster);
}

/* Subclusters in a host cluster that is going to be left, which have to come along; as bytes of the cluster, empty for none. */
static struct range taken_along(const struct image *image, const struct cluster *cluster) {
    const struct geometry *geometry = &image->geometry;
    struct range range = {geometry->cluster_size, 0};
    if (cluster->type == CLUSTER_COMPRESSED) return (struct range){0, geometry->cluster_size};
    if (keeps_cluster(image, cluster)) return range;
    for (uint32_t at = 0; at < geometry->cluster_size; at += geometry->subcluster_size) {
        if (cluster_type_at(geometry, cluster, at) != CLUSTER_NORMAL) continue;
        range.start = min_u64(range.start, at);
        range.end = at + geometry->subcluster_size;
    }
    return range;
}

/* Whether the byte lies in the cluster already, and stays there. */
static bool stays(const struct image *image, const struct cluster *cluster, uint64_t guest_offset) {
    const enum cluster_type type = cluster_type_at(&image->geometry, cluster, geometry_in_cluster(&image->geometry, guest_offset));
    return type == CLUSTER_NORMAL && keeps_cluster(image, cluster);
}

static uint64_t span_start(const struct image *image, const struct slot *slot, uint64_t guest_offset) {
    const struct cluster cluster = map_get(&image->map, slot, guest_offset);
    const uint64_t start = geometry_cluster_start(&image->geometry, guest_offset);
    if (stays(image, &cluster, guest_offset)) return guest_offset;
    return min_u64(geometry_subcluster_start(&image->geometry, guest_offset), start + taken_along(image, &cluster).start);
}

static uint64_t span_end(const struct image *image, const struct slot *slot, uint64_t guest_end) {
    const struct cluster cluster = map_get(&image->map, slot, guest_end - 1);
    const uint64_t start = geometry_cluster_start(&image->geometry, guest_end - 1);
    if (stays(image, &cluster, guest_end - 1)) return guest_end;
    const uint64_t end = geometry_subcluster_start(&image->geometry, guest_end - 1) + image->geometry.subcluster_size;
    return max_u64(end, start + taken_along(image, &cluster).end);
}

static bool reads_as_zero(const struct image *image, enum cluster_type type, uint64_t guest_offset) {
    switch (type) {
        case CLUSTER_ZERO:
        case CLUSTER_ZERO_ALLOC: return true;
        case CLUSTER_UNALLOCATED: return image->backing == NULL || guest_offset >= image->backing->size;
        default: return false;
    }
}

static bool edge_is_zero(const struct image *image, const struct slot *slot, uint64_t start, uint64_t end) {
    if (start == end) return true;
    const struct cluster cluster = map_get(&image->map, slot, start);
    for (uint64_t at = geometry_subcluster_start(&image->geometry, start); at < end; at += image->geometry.subcluster_size) {
        if (!reads_as_zero(image, cluster_type_at(&image->geometry, &cluster, geometry_in_cluster(&image->geometry, at)), at)) return false;
    }
    return true;
}

void edges_measure(struct request *request, const struct slot *slot, uint64_t guest_offset, uint64_t length) {
    const struct image *image = request->image;
    struct piece *piece = &request->piece;
    const uint64_t guest_end = min_u64(guest_offset + length, piece->guest_offset + geometry_offset(&image->geometry, piece->count));
    piece->progress = guest_end - guest_offset;
    piece->span_start = span_start(image, slot, guest_offset);
    piece->span_end = span_end(image, slot, guest_end);
    if (image->geometry.data_file) piece->span_end = min_u64(piece->span_end, image->size); /* it ends where the disk does */
    piece->head_length = guest_offset - piece->span_start;
    piece->tail_length = piece->span_end - guest_end;
    piece->head_zero = edge_is_zero(image, slot, piece->span_start, guest_offset);
    piece->tail_zero = edge_is_zero(image, slot, guest_end, piece->span_end);
}

struct cluster edges_linked(const struct request *request, const struct cluster *old, uint64_t cluster_start) {
    const struct image *image = request->image;
    const struct piece *piece = &request->piece;
    const struct geometry *geometry = &image->geometry;
    struct cluster new = cluster_at(geometry, geometry_offset(geometry, piece->host_cluster) + (cluster_start - piece->guest_offset));
    if (!geometry->extended_l2) return new;
    const uint64_t start = max_u64(piece->span_start, cluster_start),
                   end = min_u64(piece->span_end, cluster_start + geometry->cluster_size);
    new.bitmap = old->bitmap;
    if (request->kind == REQUEST_ALLOCATE) return new; /* a host cluster, and nothing in it yet */
    cluster_mark_allocated(&new, cluster_subclusters(geometry, (uint32_t) (start - cluster_start), (uint32_t) (end - cluster_start)));
    return new;
}
