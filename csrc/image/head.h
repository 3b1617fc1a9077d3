/* SPDX-License-Identifier: MIT
 *
 * The header of an image in a file, read without the rest of the image, and its feature bits written back.
 */
#ifndef QCOW2_IMAGE_HEAD_H
#define QCOW2_IMAGE_HEAD_H

#include "format/header.h"
#include "storage/file.h"

/* Reads the first cluster of a file of `file_length` bytes, and refuses features that are not known. Says nothing about the tables. */
int head_read(struct file *file, uint64_t file_length, struct header *header, struct error *error);

/* Sets those incompatible bits in the file and in `header`, and makes that durable; nothing in version 2, which has none. */
int head_set_incompatible(struct file *file, struct header *header, uint64_t bits, struct error *error);

/* Clears those incompatible bits in the file and in `header`, and makes that durable. All that was written before is durable first. */
int head_clear_incompatible(struct file *file, struct header *header, uint64_t bits, struct error *error);

#endif
