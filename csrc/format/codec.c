/* SPDX-License-Identifier: MIT
 *
 * Chooses the form. The look at what may shrink packs two pieces at the lowest level and throws the result away: an eighth of the work
 * for a cluster of 64 KiB, instead of all of it in vain. Called by the guest storey.
 */
#include "format/codec.h"

#define PIECE 4096u /* bytes: what deflate's window sees at once */
#define WORTH (PIECE - PIECE / 64)

bool codec_is_here(enum codec codec) {
#ifdef HAVE_ZSTD
    return codec == CODEC_DEFLATE || codec == CODEC_ZSTD;
#else
    return codec == CODEC_DEFLATE;
#endif
}

int codec_level_max(enum codec codec) { return codec == CODEC_ZSTD ? 22 : 9; }

size_t codec_pack(enum codec codec, int level, const uint8_t *bytes, size_t length, uint8_t *packed, size_t most, int *error) {
    *error = 0;
    if (codec == CODEC_ZSTD) return codec_zstd_pack(level, bytes, length, packed, most, error);
    return codec_deflate_pack(level, bytes, length, packed, most, error);
}

int codec_unpack(enum codec codec, const uint8_t *packed, size_t packed_length, uint8_t *bytes, size_t length) {
    if (codec == CODEC_ZSTD) return codec_zstd_unpack(packed, packed_length, bytes, length);
    return codec_deflate_unpack(packed, packed_length, bytes, length);
}

static bool piece_shrinks(const uint8_t *bytes) {
    uint8_t packed[PIECE];
    int error = 0;
    return codec_deflate_pack(1, bytes, PIECE, packed, WORTH, &error) > 0 || error < 0;
}

bool codec_may_shrink(const uint8_t *bytes, size_t length) {
    return length < 4 * PIECE || piece_shrinks(bytes) || piece_shrinks(bytes + length / 2);
}
