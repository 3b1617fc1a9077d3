/* SPDX-License-Identifier: MIT
 *
 * Copy-on-write: what surrounds the guest's bytes in newly mapped clusters. Edges that hold something are read (through
 * the chain, as a guest would see them); edges that read as zeroes are written, zeroed in the file, or left alone, as the image's
 * cow mode says and as is safe. Head, guest bytes and tail go down in one vector.
 * How long they are, and whether they are zero, edges.c has found.
 */
#include <assert.h>

#include "base/bytes.h"
#include "base/memory.h"
#include "guest/pieces.h"

#define WRITE_RATHER_THAN_ZERO (UINT64_C(64) << 10) /* zero edges up to this many bytes are cheaper in the write than in a call */

bool cow_begin(struct request *request) {
    struct piece *piece = &request->piece;
    const uint64_t head = piece->head_zero ? 0 : piece->head_length, tail = piece->tail_zero ? 0 : piece->tail_length;
    if (head + tail == 0) return false;
    piece->buffer = memory_aligned(head + tail);
    request->image->stats.cow_read_bytes += head + tail;
    request->reading = (struct reading){.top = NULL};
    return true;
}

/* The first edge, then the second; false when there is none left. */
bool cow_next_edge(struct request *request) {
    const struct piece *piece = &request->piece;
    const uint64_t head = piece->head_zero ? 0 : piece->head_length, tail = piece->tail_zero ? 0 : piece->tail_length;
    const uint64_t tail_offset = piece->span_end - piece->tail_length;
    struct reading *reading = &request->reading;
    const bool begun = reading->top != NULL;
    if (!begun && head > 0) {
        *reading = (struct reading){.top = request->image, .guest_offset = piece->span_start, .length = head, .bytes = piece->buffer};
        return true;
    }
    if (tail == 0 || (begun && reading->guest_offset == tail_offset)) return false;
    *reading = (struct reading){.top = request->image, .guest_offset = tail_offset, .length = tail, .bytes = piece->buffer + head};
    return true;
}

/* Whether zero edges are put into the vector. */
static bool writes_zeroes(const struct image *image, const struct piece *piece) {
    if (image->cow == IMAGE_COW_WRITE) return true;
    if (image->cow == IMAGE_COW_ZERO || piece->fresh) return false;
    return piece->head_length <= WRITE_RATHER_THAN_ZERO && piece->tail_length <= WRITE_RATHER_THAN_ZERO;
}

static bool zeroes_in_file(const struct image *image, const struct piece *piece) {
    return !writes_zeroes(image, piece) && !(image->cow == IMAGE_COW_SKIP && piece->fresh);
}

static void zero_edge(struct request *request, uint64_t host_offset, uint64_t length, bool is_zero) {
    if (length > 0 && is_zero) moves_add(&request->moves, MOVE_ZERO, request->image->data, host_offset, length);
}

/* Puts an edge into the vector: what was read, or zeroes where they are written. Returns the bytes put. */
static uint64_t append_edge(struct request *request, struct move *move, const uint8_t *bytes, uint64_t length, bool is_zero) {
    if (is_zero && !writes_zeroes(request->image, &request->piece)) return 0;
    assert(!is_zero || length <= MEMORY_ZEROES_SIZE);
    move_append(move, is_zero ? memory_zeroes() : bytes, length);
    return length;
}

void cow_moves(struct request *request) {
    struct image *image = request->image;
    struct piece *piece = &request->piece;
    const uint64_t host_start = geometry_offset(&image->geometry, piece->host_cluster) + (piece->span_start - piece->guest_offset);
    const uint64_t host_end = host_start + (piece->span_end - piece->span_start);
    request->moves.count = 0;
    if (request->kind == REQUEST_ALLOCATE) {
        if (piece->fresh || image->geometry.extended_l2) return;
        struct move *zeroes = moves_add(&request->moves, MOVE_ZERO, image->data, host_start, host_end - host_start);
        if (image->geometry.data_file) zeroes->zero_mode = FILE_ZERO_UNMAP;
        return;
    }
    if (zeroes_in_file(image, piece)) {
        zero_edge(request, host_start, piece->head_length, piece->head_zero);
        zero_edge(request, host_end - piece->tail_length, piece->tail_length, piece->tail_zero);
    }
    struct move *move = moves_add(&request->moves, MOVE_WRITE, image->data, host_start + piece->head_length, 0);
    const uint64_t head = append_edge(request, move, piece->buffer, piece->head_length, piece->head_zero);
    move->offset -= head;
    const bool has_bytes = request->kind == REQUEST_WRITE || request->kind == REQUEST_PACK;
    const uint8_t *bytes = has_bytes ? request->bytes + request->done : memory_zeroes();
    move_append(move, bytes, piece->progress);
    const uint8_t *tail_bytes = piece->buffer + (piece->head_zero ? 0 : piece->head_length);
    const uint64_t tail = append_edge(request, move, tail_bytes, piece->tail_length, piece->tail_zero);
    image->stats.cow_written_bytes += head + tail;
}
