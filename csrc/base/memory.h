/* SPDX-License-Identifier: MIT
 *
 * All heap memory of the engine comes from here, for two reasons: buffers that O_DIRECT can use are
 * aligned, and specs can make the nth allocation fail and count what is still held.
 * Never aborts: NULL means there is no memory. The counters are atomic; any thread may call.
 */
#ifndef QCOW2_BASE_MEMORY_H
#define QCOW2_BASE_MEMORY_H

#include <stddef.h>
#include <stdint.h>

#define MEMORY_ALIGNMENT 4096u /* what memory_aligned gives, and enough for every O_DIRECT device */

/* Memory of `size` bytes, all zero; NULL when there is none. */
void *memory_zeroed(size_t size);

/* `count` × `size` bytes, all zero; NULL when the product overflows or there is none. */
void *memory_array(size_t count, size_t size);

/* Memory of `size` bytes at a multiple of MEMORY_ALIGNMENT, not cleared. */
void *memory_aligned(size_t size);

/* Changes the size of a block from memory_zeroed or memory_array; what is new is not cleared. On failure the old block stays. */
void *memory_resize(void *block, size_t size);

/* A copy of `length` bytes with a NUL after them. */
char *memory_text(const char *text, size_t length);

/* Gives back what any function above gave; NULL is ignored. */
void memory_free(void *block);

/* At least MEMORY_ZEROES_SIZE bytes that are zero and stay zero; never written, shared by all. */
#define MEMORY_ZEROES_SIZE ((size_t) 2 << 20)
const uint8_t *memory_zeroes(void);

/* For specs: the nth allocation from now (1 = the next) fails, once; 0 turns this off. */
void memory_fail_at(uint64_t nth);

/* For specs: allocations asked for since the process began. */
uint64_t memory_asked(void);

/* For specs: blocks held now. */
uint64_t memory_held(void);

#endif
