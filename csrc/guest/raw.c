/* SPDX-License-Identifier: MIT
 *
 * Requests on raw images: guest offset = host offset, so each is one move and no table is asked. Called by request.
 */
#include <string.h>

#include "base/bytes.h"
#include "guest/pieces.h"

/* Whether the bytes would make a probed raw image look like qcow2; in part is enough, as the rest may be there already. */
static bool looks_like_qcow2(const struct request *request) {
    static const uint8_t magic[4] = {'Q', 'F', 'I', 0xfb};
    if (!request->image->probed || request->kind != REQUEST_WRITE || request->guest_offset >= sizeof magic) return false;
    const uint64_t length = min_u64(request->length, sizeof magic - request->guest_offset);
    return length > 0 && memcmp(request->bytes, magic + request->guest_offset, length) == 0;
}

enum plan plan_raw(struct request *request) {
    static const enum move_kind kinds[] = {MOVE_READ, MOVE_WRITE, MOVE_ZERO, MOVE_DISCARD, MOVE_ALLOCATE};
    struct moves *moves = &request->moves;
    moves->count = 0;
    if (request->kind == REQUEST_DISCARD && request->image->discard_ignored) return PLAN_DONE;
    if (request->done == request->length) return PLAN_DONE;
    if (looks_like_qcow2(request)) {
        error_set(&request->error, -EPERM, "this write would make the raw image '%s' look like qcow2: open it with format raw",
                  request->image->file->name);
        return PLAN_FAILED;
    }
    struct move *move = moves_add(moves, kinds[request->kind], request->image->file, request->guest_offset, request->length);
    if (request->kind == REQUEST_WRITE) {
        move->length = 0;
        move_append(move, request->bytes, request->length);
    }
    if (request->may_unmap && !request->image->discard_ignored) move->zero_mode = FILE_ZERO_UNMAP;
    request->piece = (struct piece){.kind = PIECE_BYTES, .progress = request->length};
    return PLAN_MOVE;
}
