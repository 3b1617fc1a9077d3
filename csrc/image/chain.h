/* SPDX-License-Identifier: MIT
 *
 * Opening an image with all that lies below it, and the names of backing files.
 */
#ifndef QCOW2_IMAGE_CHAIN_H
#define QCOW2_IMAGE_CHAIN_H

#include "image/open.h"

/* Opens the image in `file` (shared, not taken), and its chain of backing files for reading unless the options say not to. Finds loops.
 * Relative backing names are relative to the directory of file->name. An error names the file and the chain so far. */
int image_open(struct file *file, const struct image_options *options, struct image **image, struct error *error);

/* Opens the file at `path` as the options say, and the image in it. */
int image_open_path(const char *path, const struct image_options *options, struct image **image, struct error *error);

/* Whether the file at `path` is that of one of the chain's images: the same device and inode. */
bool chain_has_file(const struct image *top, const char *path);

#endif
