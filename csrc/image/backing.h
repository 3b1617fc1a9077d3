/* SPDX-License-Identifier: MIT
 *
 * The chain below an image: which file the header names, and opening it for reading.
 */
#ifndef QCOW2_IMAGE_BACKING_H
#define QCOW2_IMAGE_BACKING_H

#include "image/open.h"

/* The path that `name`, stored in the image at `image_path`, means: relative names are relative to that image's directory.
 * Memory of memory_*; NULL when there is none. */
char *backing_path(const char *image_path, const char *name);

/* Opens the whole chain below `top` and hangs it in. Finds loops. The error names the file and the chain so far. */
int backing_open_chain(struct image *top, const struct image_options *options, struct error *error);

#endif
