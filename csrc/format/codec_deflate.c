/* SPDX-License-Identifier: MIT
 *
 * Raw deflate through zlib; unpacking through libdeflate where that is there, which is about twice as fast. libdeflate cannot be told to
 * keep to a window of 4 KiB, so it packs nothing. Called by codec.
 */
#include <errno.h>
#include <zlib.h>

#include "format/codec.h"

#define WINDOW_BITS_WRITTEN (-12) /* negative: raw */
#define MEMORY_LEVEL 9

size_t codec_deflate_pack(int level, const uint8_t *bytes, size_t length, uint8_t *packed, size_t most, int *error) {
    z_stream stream = {.next_in = (Bytef *) (uintptr_t) bytes, .avail_in = (uInt) length, .next_out = packed, .avail_out = (uInt) most};
    const int zlib_level = level == CODEC_LEVEL_DEFAULT ? Z_DEFAULT_COMPRESSION : level;
    if (deflateInit2(&stream, zlib_level, Z_DEFLATED, WINDOW_BITS_WRITTEN, MEMORY_LEVEL, Z_DEFAULT_STRATEGY) != Z_OK) {
        *error = -ENOMEM;
        return 0;
    }
    const bool whole = deflate(&stream, Z_FINISH) == Z_STREAM_END;
    const size_t written = most - stream.avail_out;
    deflateEnd(&stream);
    return whole ? written : 0;
}

static int unpack_with_zlib(const uint8_t *packed, size_t packed_length, uint8_t *bytes, size_t length) {
    z_stream stream = {
        .next_in = (Bytef *) (uintptr_t) packed, .avail_in = (uInt) packed_length, .next_out = bytes, .avail_out = (uInt) length};
    if (inflateInit2(&stream, -MAX_WBITS) != Z_OK) return -ENOMEM;
    const int result = inflate(&stream, Z_FINISH);
    const bool whole = (result == Z_STREAM_END || result == Z_BUF_ERROR) && stream.avail_out == 0;
    inflateEnd(&stream);
    return result == Z_MEM_ERROR ? -ENOMEM : whole ? 0 : -EIO;
}

#ifdef HAVE_LIBDEFLATE

#include <libdeflate.h>

/* libdeflate takes no stream that goes on behind `length` bytes; zlib does. */
int codec_deflate_unpack(const uint8_t *packed, size_t packed_length, uint8_t *bytes, size_t length) {
    struct libdeflate_decompressor *decompressor = libdeflate_alloc_decompressor();
    size_t read = 0;
    if (decompressor == NULL) return -ENOMEM;
    const enum libdeflate_result result = libdeflate_deflate_decompress_ex(decompressor, packed, packed_length, bytes, length, &read, NULL);
    libdeflate_free_decompressor(decompressor);
    return result == LIBDEFLATE_SUCCESS ? 0 : unpack_with_zlib(packed, packed_length, bytes, length);
}

#else

int codec_deflate_unpack(const uint8_t *packed, size_t packed_length, uint8_t *bytes, size_t length) {
    return unpack_with_zlib(packed, packed_length, bytes, length);
}

#endif
