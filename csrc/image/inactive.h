/* SPDX-License-Identifier: MIT
 *
 * Metadata that the data path never reads but must not overwrite: the snapshot table, snapshots' L1 tables, and their L2 tables.
 */
#ifndef QCOW2_IMAGE_INACTIVE_H
#define QCOW2_IMAGE_INACTIVE_H

#include "guest/image.h"

/* Notes them in image->overlap, as far as image->overlap.checked asks for them. Reads the snapshot table, and with inactive-l2
 * each snapshot's L1 table; both are checked. `file_length` in bytes. */
int inactive_note(struct image *image, uint64_t file_length, struct error *error);

#endif
