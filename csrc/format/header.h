/* SPDX-License-Identifier: MIT
 *
 * The first cluster: header, header extensions and backing file name, as values and as bytes.
 *
 * Pure: it works on bytes in memory. What it does not know (header fields past ours, extensions, feature names) it keeps
 * and writes back. Reading checks every rule that can be checked without the rest of the file;
 * whether tables lie inside the file is asked by header_check_tables.
 */
#ifndef QCOW2_FORMAT_HEADER_H
#define QCOW2_FORMAT_HEADER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "format/geometry.h"

struct header_extension {
    uint32_t type;
    uint32_t length;
    uint8_t *data;
};

struct header {
    uint32_t version;
    uint32_t cluster_bits;
    uint64_t size; /* virtual size in bytes */
    uint32_t crypt_method;
    uint32_t l1_size; /* entries */
    uint64_t l1_table_offset;
    uint64_t refcount_table_offset;
    uint32_t refcount_table_clusters;
    uint32_t nb_snapshots;
    uint64_t snapshots_offset;
    uint64_t incompatible_features;
    uint64_t compatible_features;
    uint64_t autoclear_features;
    uint32_t refcount_order;
    uint32_t header_length;
    uint8_t compression_type;
    char *backing_file; /* NUL-terminated here; NULL = none; owned */
    uint8_t *unknown;   /* header bytes from 112 to header_length that we do not know; owned */
    size_t unknown_length;
    struct header_extension *extensions; /* all of them in the order found, known ones too; owned */
    size_t extension_count;
};

/* Bytes at the file's start that header_read needs at first: enough to know the cluster size. */
#define HEADER_PROBE_SIZE 104u

/* Whether `bytes` begin with qcow2's magic. */
bool header_is_qcow2(const uint8_t *bytes, size_t length);

/* Checks magic, version and cluster_bits of the first bytes (`length` may be short at a cut file; the sentence says so), so that
 * the caller can read the whole first cluster. Returns 0, or -EINVAL (no qcow2 image, unknown version) or ERROR_CORRUPT. */
int header_probe(const uint8_t *bytes, size_t length, uint32_t *cluster_bits, struct error *error);

/* Reads a whole header from the first cluster (`length` bytes of it exist in the file). On failure `header` is empty. */
int header_read(struct header *header, const uint8_t *bytes, size_t length, struct error *error);

/* Checks that L1, refcount table and snapshot table lie inside a file of `file_length` bytes, are aligned, are not over the
 * limits and do not overlap one another or the header; that the L1 table covers `size`. */
int header_check_tables(const struct header *header, uint64_t file_length, struct error *error);

/* The part of that which a check cannot do without: the L1 table lies inside the file, is aligned and covers `size`. */
int header_check_l1(const struct header *header, uint64_t file_length, struct error *error);

/* Refuses incompatible bits that are not in FORMAT_INCOMPATIBLE_KNOWN with -ENOTSUP, naming each by the feature name table or its
 * number. */
int header_check_features(const struct header *header, struct error *error);

/* Writes all of it into the first `length` bytes of the first cluster at `bytes` (zero-filled up to there). -ENOSPC with a sentence when
 * extensions and name do not fit, -EINVAL when version or header_length have no room for a value; nothing is written then.
 * *used tells how many bytes hold something. */
int header_write(const struct header *header, uint8_t *bytes, size_t length, size_t *used, struct error *error);

/* The extension of a type, or NULL. */
const struct header_extension *header_find_extension(const struct header *header, uint32_t type);

/* Puts an extension there: in the place of one of its type, else in the reference's order. Data NULL removes it. Data is copied.
 * Returns 0 or -ENOMEM (nothing changed then). */
int header_set_extension(struct header *header, uint32_t type, const void *data, uint32_t length);

/* Adds the feature name table that new images carry if they have version 3 and clusters of 8 KiB or more. Returns 0 or -ENOMEM. */
int header_add_feature_names(struct header *header);

/* The name of a feature bit: kind 0 incompatible, 1 compatible, 2 autoclear; from the image's table, else ours, else "". Written to
 * `name`. */
void header_feature_name(const struct header *header, unsigned kind, unsigned bit, char name[static 47]);

/* The geometry that the header describes. */
struct geometry header_geometry(const struct header *header);

/* Gives all owned memory back; `header` is empty then. */
void header_clear(struct header *header);

#endif
