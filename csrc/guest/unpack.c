/* SPDX-License-Identifier: MIT
 *
 * Reading compressed clusters: first a move for the packed bytes, then, without any lock, the work of unpacking. Of a cluster that is
 * read in part the whole is kept with its image, until another takes its place, so that small reads in a row unpack it once.
 * What is kept stays true because an image counts how often compressed clusters were given up: bytes found
 * before that are not put there after it. Called by read.
 */
#include <string.h>

#include "base/bytes.h"
#include "base/memory.h"
#include "format/codec.h"
#include "guest/pieces.h"

/* Copies the run's bytes from what the level keeps; false: it keeps another cluster. Notes the count either way. */
static bool copy_kept(struct reading *reading, struct image *level, const struct run *run) {
    const struct unpacked *kept = &level->unpacked;
    pthread_mutex_lock(&level->lock);
    const bool hit = kept->bytes != NULL && kept->host_offset == run->host_offset;
    if (hit) {
        memcpy(reading->bytes + reading->done, kept->bytes + geometry_in_cluster(&level->geometry, run->guest_offset), run->length);
    }
    reading->packed_at = kept->given_up;
    pthread_mutex_unlock(&level->lock);
    return hit;
}

static void keep(const struct reading *reading, uint8_t *bytes) {
    struct image *level = reading->packed_level;
    struct unpacked *kept = &level->unpacked;
    pthread_mutex_lock(&level->lock);
    if (kept->given_up == reading->packed_at) {
        uint8_t *old = kept->bytes;
        kept->bytes = bytes;
        kept->host_offset = reading->packed_run.host_offset;
        bytes = old;
    }
    pthread_mutex_unlock(&level->lock);
    memory_free(bytes);
}

void unpacked_forget(struct image *image) {
    image->unpacked.given_up++;
    memory_free(image->unpacked.bytes);
    image->unpacked.bytes = NULL;
}

enum plan unpack_begin(struct request *request, struct reading *reading, struct image *level, const struct run *run) {
    if (copy_kept(reading, level, run)) {
        reading->done += run->length;
        return PLAN_DONE;
    }
    const enum codec codec = (enum codec) level->header.compression_type;
    if (!codec_is_here(codec)) {
        error_set(&request->error, -ENOTSUP, "guest offset %llu lies in a cluster compressed with zstd, which this build has not",
                  (unsigned long long) run->guest_offset);
        return PLAN_FAILED;
    }
    reading->packed = memory_aligned(run->compressed_length);
    if (reading->packed == NULL) {
        error_set(&request->error, -ENOMEM, "no memory to read a compressed cluster");
        return PLAN_FAILED;
    }
    reading->packed_run = *run;
    reading->packed_level = level;
    moves_add_bytes(&request->moves, MOVE_READ, level->file, run->host_offset, reading->packed, run->compressed_length);
    return PLAN_MOVE;
}

static int unpack_whole(const struct reading *reading, uint8_t *bytes) {
    const struct image *level = reading->packed_level;
    return codec_unpack((enum codec) level->header.compression_type, reading->packed, reading->packed_run.compressed_length, bytes,
                        level->geometry.cluster_size);
}

/* A cluster that is asked for in part is unpacked beside, and kept. */
static int unpack_part(const struct reading *reading, uint8_t *bytes) {
    const struct image *level = reading->packed_level;
    const struct run *run = &reading->packed_run;
    uint8_t *whole = memory_aligned(level->geometry.cluster_size);
    const int result = whole == NULL ? -ENOMEM : unpack_whole(reading, whole);
    if (result < 0) {
        memory_free(whole);
        return result;
    }
    memcpy(bytes, whole + geometry_in_cluster(&level->geometry, run->guest_offset), run->length);
    keep(reading, whole);
    return 0;
}

int unpack_end(struct request *request, struct reading *reading) {
    const struct run run = reading->packed_run;
    const struct image *level = reading->packed_level;
    uint8_t *bytes = reading->bytes + reading->done;
    const int result = run.length == level->geometry.cluster_size ? unpack_whole(reading, bytes) : unpack_part(reading, bytes);
    unpack_drop(reading);
    reading->done += run.length;
    if (result == 0) return 0;
    return error_set(&request->error, result, "guest offset %llu: the compressed cluster at host offset %llu of '%s' %s",
                     (unsigned long long) run.guest_offset, (unsigned long long) run.host_offset, level->file->name,
                     result == -ENOMEM ? "takes memory that is not there" : "cannot be unpacked");
}

void unpack_drop(struct reading *reading) {
    memory_free(reading->packed);
    reading->packed = NULL;
}
