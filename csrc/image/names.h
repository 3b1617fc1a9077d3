/* SPDX-License-Identifier: MIT
 *
 * The names of other files that an image holds.
 */
#ifndef QCOW2_IMAGE_NAMES_H
#define QCOW2_IMAGE_NAMES_H

/* The path that `name`, stored in the image at `image_path`, means: relative names are relative to that image's directory.
 * Memory of memory_*; NULL when there is none. */
char *relative_path(const char *image_path, const char *name);

#endif
