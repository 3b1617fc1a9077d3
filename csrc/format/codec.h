/* SPDX-License-Identifier: MIT
 *
 * What stands in compressed clusters: raw deflate or one zstd frame, from bytes to bytes. Pure: no state, no I/O; any thread.
 *
 * Deflate is written with a window of 4 KiB, which is what readers of the format expect, and read with any. zlib does both; libdeflate
 * reads where it was found at build time. zstd needs libzstd.
 */
#ifndef QCOW2_FORMAT_CODEC_H
#define QCOW2_FORMAT_CODEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum codec { /* the header's compression_type */
    CODEC_DEFLATE = 0,
    CODEC_ZSTD = 1,
};

#define CODEC_LEVEL_DEFAULT 0 /* the library's own: 6 for zlib, 3 for zstd */

/* Whether this build has it. */
bool codec_is_here(enum codec codec);

/* The highest level: 9 or 22. The lowest is 1. */
int codec_level_max(enum codec codec);

/* Packs `length` bytes into at most `most` bytes. Returns how many there are; 0: they would be more (*error is 0) or it failed (-ENOMEM,
 * -ENOTSUP). */
size_t codec_pack(enum codec codec, int level, const uint8_t *bytes, size_t length, uint8_t *packed, size_t most, int *error);

/* Unpacks to exactly `length` bytes; what stands behind the packed bytes in `packed_length` is left alone. Returns 0, -EIO (not what
 * a packer made, or too short), -ENOMEM or -ENOTSUP. */
int codec_unpack(enum codec codec, const uint8_t *packed, size_t packed_length, uint8_t *bytes, size_t length);

/* Whether packing is worth trying: a look at two pieces of 4 KiB, the window of deflate. Short inputs always are. */
bool codec_may_shrink(const uint8_t *bytes, size_t length);

/* ---- the forms, for codec.c ---- */

size_t codec_deflate_pack(int level, const uint8_t *bytes, size_t length, uint8_t *packed, size_t most, int *error);
int codec_deflate_unpack(const uint8_t *packed, size_t packed_length, uint8_t *bytes, size_t length);
size_t codec_zstd_pack(int level, const uint8_t *bytes, size_t length, uint8_t *packed, size_t most, int *error);
int codec_zstd_unpack(const uint8_t *packed, size_t packed_length, uint8_t *bytes, size_t length);

#endif
