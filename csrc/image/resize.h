/* SPDX-License-Identifier: MIT
 *
 * Changing the virtual size.
 */
#ifndef QCOW2_IMAGE_RESIZE_H
#define QCOW2_IMAGE_RESIZE_H

#include "guest/request.h"

/* Makes the image `size` bytes large, rounded up to sectors. What is new reads as zeroes, whatever a backing file or the last cluster
 * holds there. Making it smaller throws bytes away, which the caller must have agreed to. */
int image_resize(struct image *image, uint64_t size, struct error *error);

#endif
