/* SPDX-License-Identifier: MIT
 *
 * The extent size hint of a file: in what units the filesystem gives it space. XFS knows it; most others do not.
 */
#ifndef QCOW2_STORAGE_EXTENT_HINT_H
#define QCOW2_STORAGE_EXTENT_HINT_H

#include "storage/file.h"

/* Sets the hint of an empty file, in bytes. -ENOTSUP with a sentence: the filesystem, or the kind of file, has no such hint;
 * -EINVAL: not of this size. */
int extent_hint_set(struct file *file, uint64_t bytes, struct error *error);

#endif
