/* SPDX-License-Identifier: MIT
 *
 * A file that forgets: reads give zeroes, writes vanish, only the length is kept. The floor under every measurement.
 */
#ifndef QCOW2_STORAGE_FILE_NULL_H
#define QCOW2_STORAGE_FILE_NULL_H

#include "storage/file.h"

/* A null file of `length` bytes. Returns 0 or -ENOMEM. */
int file_null_new(const char *name, uint64_t length, struct file **file);

#endif
