/* SPDX-License-Identifier: MIT
 *
 * The first cluster is read in two steps, since its size stands in it. Called by open, and by check, which must read headers
 * whose tables are damaged. Never keeps more than a cluster in memory.
 */
#include "image/head.h"

#include "base/bytes.h"
#include "base/memory.h"
#include "format/format.h"

int head_read(struct file *file, uint64_t file_length, struct header *header, struct error *error) {
    uint8_t probe[HEADER_PROBE_SIZE] = {0};
    const size_t probed = (size_t) min_u64(sizeof probe, file_length);
    uint32_t cluster_bits = 0;
    int result = file_read(file, 0, probe, probed, error);
    if (result == 0) result = header_probe(probe, probed, &cluster_bits, error);
    if (result < 0) return result;
    const size_t length = (size_t) min_u64(UINT64_C(1) << cluster_bits, file_length);
    uint8_t *bytes = memory_aligned(length);
    if (bytes == NULL) return error_set(error, -ENOMEM, "no memory for the header");
    result = file_read(file, 0, bytes, length, error);
    if (result == 0) result = header_read(header, bytes, length, error);
    memory_free(bytes);
    return result < 0 ? result : header_check_features(header, error);
}

static int write_incompatible(struct file *file, struct header *header, uint64_t features, struct error *error) {
    uint8_t bytes[8];
    if (header->version < 3 || features == header->incompatible_features) return 0;
    store_be64(bytes, features);
    int result = file_sync(file, error);
    if (result == 0) result = file_write(file, FORMAT_INCOMPATIBLE_OFFSET, bytes, sizeof bytes, error);
    if (result == 0) result = file_sync(file, error);
    if (result == 0) header->incompatible_features = features;
    return result;
}

int head_set_incompatible(struct file *file, struct header *header, uint64_t bits, struct error *error) {
    return write_incompatible(file, header, header->incompatible_features | bits, error);
}

int head_clear_incompatible(struct file *file, struct header *header, uint64_t bits, struct error *error) {
    return write_incompatible(file, header, header->incompatible_features & ~bits, error);
}
