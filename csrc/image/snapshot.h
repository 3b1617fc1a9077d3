/* SPDX-License-Identifier: MIT
 *
 * Internal snapshots: taking, applying and deleting them. No request may be using the image.
 *
 * While one of these runs a version 3 image is marked dirty, so that after a crash whoever opens it next counts references anew; in
 * any case the order of writes keeps every guest byte of the disk and of all snapshots.
 */
#ifndef QCOW2_IMAGE_SNAPSHOT_H
#define QCOW2_IMAGE_SNAPSHOT_H

#include "guest/image.h"
#include "image/snapshot_table.h"

/* Takes one of the disk as it is. */
int snapshot_create(struct image *image, const char *name, struct error *error);

/* The disk becomes what it was; so does its size. */
int snapshot_apply(struct image *image, const char *id_or_name, struct error *error);

int snapshot_delete(struct image *image, const char *id_or_name, struct error *error);

/* Reads the table of an open image. To be cleared. */
int snapshot_list(struct image *image, struct snapshot_table *table, struct error *error);

/* Bytes of host clusters that nothing but the snapshot uses: what deleting it would free. */
int snapshot_exclusive(struct image *image, const char *id_or_name, uint64_t *bytes, struct error *error);

#endif
