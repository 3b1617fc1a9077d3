/* SPDX-License-Identifier: MIT
 *
 * The external data file of an image: found by name, opened, made and sized.
 */
#ifndef QCOW2_IMAGE_DATA_FILE_H
#define QCOW2_IMAGE_DATA_FILE_H

#include "image/open.h"

/* Opens it for an image that has one (image->data is set, and given up with the image), by the name in the options or else in the header. An image that has none, while
 * the options name one, is an error. */
int data_file_open(struct image *image, const struct image_options *options, struct error *error);

/* Makes the file at `path` anew, `size` bytes of zeroes, with an extent size hint of `hint` bytes (0: none), and gives it back open. */
int data_file_create(const char *path, uint64_t size, uint64_t hint, unsigned flags, struct file **file, struct error *error);

/* Makes it `size` bytes long, where there is one. */
int data_file_resize(struct image *image, uint64_t size, struct error *error);

#endif
