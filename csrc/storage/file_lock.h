/* SPDX-License-Identifier: MIT
 *
 * The byte locks that tell other processes what we do with an image file (FORMAT: layout and limits).
 */
#ifndef QCOW2_STORAGE_FILE_LOCK_H
#define QCOW2_STORAGE_FILE_LOCK_H

#include "storage/file.h"

/* Changes the locks on `fd` from `*held` (bits; 0 = none) to what `use` needs. On a conflict, -EAGAIN with a sentence that
 * names the image, and the old locks stay. A filesystem without such locks is no error. */
int file_lock_change(int fd, unsigned *held, enum file_use use, const char *name, struct error *error);

#endif
