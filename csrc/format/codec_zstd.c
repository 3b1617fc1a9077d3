/* SPDX-License-Identifier: MIT
 *
 * One zstd frame a cluster, through libzstd where it was found at build time; else nothing. Called by codec.
 */
#include <errno.h>

#include "format/codec.h"

#ifdef HAVE_ZSTD

#include <zstd.h>

size_t codec_zstd_pack(int level, const uint8_t *bytes, size_t length, uint8_t *packed, size_t most, int *error) {
    ZSTD_CCtx *context = ZSTD_createCCtx();
    if (context == NULL) {
        *error = -ENOMEM;
        return 0;
    }
    const size_t written =
        ZSTD_compressCCtx(context, packed, most, bytes, length, level == CODEC_LEVEL_DEFAULT ? ZSTD_CLEVEL_DEFAULT : level);
    ZSTD_freeCCtx(context);
    return ZSTD_isError(written) ? 0 : written;
}

/* What stands behind the frame is not known to be none of it, so the frame's end is looked for. */
int codec_zstd_unpack(const uint8_t *packed, size_t packed_length, uint8_t *bytes, size_t length) {
    ZSTD_DCtx *context = ZSTD_createDCtx();
    ZSTD_inBuffer in = {packed, packed_length, 0};
    ZSTD_outBuffer out = {bytes, length, 0};
    size_t result = 1;
    if (context == NULL) return -ENOMEM;
    while (result != 0 && !ZSTD_isError(result) && out.pos < length) {
        const size_t in_before = in.pos, out_before = out.pos;
        result = ZSTD_decompressStream(context, &out, &in);
        if (in.pos == in_before && out.pos == out_before) break;
    }
    ZSTD_freeDCtx(context);
    return !ZSTD_isError(result) && out.pos == length ? 0 : -EIO;
}

#else

size_t codec_zstd_pack(int level, const uint8_t *bytes, size_t length, uint8_t *packed, size_t most, int *error) {
    (void) level, (void) bytes, (void) length, (void) packed, (void) most;
    *error = -ENOTSUP;
    return 0;
}

int codec_zstd_unpack(const uint8_t *packed, size_t packed_length, uint8_t *bytes, size_t length) {
    (void) packed, (void) packed_length, (void) bytes, (void) length;
    return -ENOTSUP;
}

#endif
