/* SPDX-License-Identifier: MIT
 *
 * A file in memory: a sparse map of pages, so that an image of terabytes costs what was written to it.
 */
#ifndef QCOW2_STORAGE_FILE_MEMORY_H
#define QCOW2_STORAGE_FILE_MEMORY_H

#include "storage/file.h"

/* An empty file in memory. Its bytes live until the last owner releases it. Returns 0 or -ENOMEM. */
int file_memory_new(const char *name, struct file **file);

#endif
