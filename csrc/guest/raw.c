/* SPDX-License-Identifier: MIT
 *
 * Requests on raw images: guest offset = host offset, so each is one move and no table is asked. Called by request.
 */
#include "guest/pieces.h"

enum plan plan_raw(struct request *request) {
    static const enum move_kind kinds[] = {MOVE_READ, MOVE_WRITE, MOVE_ZERO, MOVE_DISCARD, MOVE_ALLOCATE};
    struct moves *moves = &request->moves;
    moves->count = 0;
    if (request->kind == REQUEST_DISCARD && request->image->discard_ignored) return PLAN_DONE;
    if (request->done == request->length) return PLAN_DONE;
    struct move *move = moves_add(moves, kinds[request->kind], request->image->file, request->guest_offset, request->length);
    if (request->kind == REQUEST_WRITE) {
        move->length = 0;
        move_append(move, request->bytes, request->length);
    }
    if (request->may_unmap) move->zero_mode = FILE_ZERO_UNMAP;
    request->piece = (struct piece){.kind = PIECE_BYTES, .progress = request->length};
    return PLAN_MOVE;
}
