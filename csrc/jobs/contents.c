/* SPDX-License-Identifier: MIT
 *
 * A counter of 64-bit words that starts at a mix of offset and generation: cheap to make, and no two starts near each other.
 * Pure. Called by job.
 */
#include "jobs/contents.h"

#include <string.h>

#include "base/bytes.h"
#include "jobs/pattern.h"

#define STEP UINT64_C(0x9e3779b97f4a7c15)

void contents_fill(uint8_t *bytes, uint64_t length, uint64_t offset, uint32_t generation) {
    uint64_t word = pattern_mix(offset, generation);
    if (generation == CONTENTS_ZEROES) {
        memset(bytes, 0, length);
        return;
    }
    for (uint64_t at = 0; at < length; at += sizeof word, word += STEP) memcpy(bytes + at, &word, min_u64(sizeof word, length - at));
}

bool contents_are(const uint8_t *bytes, uint64_t length, uint64_t offset, uint32_t generation) {
    const uint64_t step = generation == CONTENTS_ZEROES ? 0 : STEP;
    uint64_t word = generation == CONTENTS_ZEROES ? 0 : pattern_mix(offset, generation);
    if (generation == CONTENTS_UNKNOWN) return true;
    for (uint64_t at = 0; at < length; at += sizeof word, word += step) {
        if (memcmp(bytes + at, &word, min_u64(sizeof word, length - at)) != 0) return false;
    }
    return true;
}
