/* SPDX-License-Identifier: MIT
 *
 * What a job's blocks hold when it verifies: bytes that follow from the block's offset and from how often it was written, so that a
 * read at any moment can be judged, and a block in the wrong place or of the wrong age is found.
 */
#ifndef QCOW2_JOBS_CONTENTS_H
#define QCOW2_JOBS_CONTENTS_H

#include <stdbool.h>
#include <stdint.h>

enum {
    CONTENTS_UNKNOWN,
    CONTENTS_ZEROES,
    CONTENTS_WRITTEN
}; /* generations: never written, cleared, and the first write's */

void contents_fill(uint8_t *bytes, uint64_t length, uint64_t offset, uint32_t generation);

/* Unknown contents may be anything. */
bool contents_are(const uint8_t *bytes, uint64_t length, uint64_t offset, uint32_t generation);

#endif
