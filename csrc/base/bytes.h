/* SPDX-License-Identifier: MIT
 *
 * Big-endian loads and stores, checked arithmetic, rounding, and arrays of 1- to 64-bit numbers.
 * Everything that is computed from a number read from disk goes through the checked helpers.
 */
#ifndef QCOW2_BASE_BYTES_H
#define QCOW2_BASE_BYTES_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

static inline uint16_t load_be16(const void *bytes) {
    uint16_t value;
    memcpy(&value, bytes, sizeof value);
    return __builtin_bswap16(value);
}
static inline uint32_t load_be32(const void *bytes) {
    uint32_t value;
    memcpy(&value, bytes, sizeof value);
    return __builtin_bswap32(value);
}
static inline uint64_t load_be64(const void *bytes) {
    uint64_t value;
    memcpy(&value, bytes, sizeof value);
    return __builtin_bswap64(value);
}
static inline void store_be16(void *bytes, uint16_t value) {
    value = __builtin_bswap16(value);
    memcpy(bytes, &value, sizeof value);
}
static inline void store_be32(void *bytes, uint32_t value) {
    value = __builtin_bswap32(value);
    memcpy(bytes, &value, sizeof value);
}
static inline void store_be64(void *bytes, uint64_t value) {
    value = __builtin_bswap64(value);
    memcpy(bytes, &value, sizeof value);
}
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "loads and stores swap: a big-endian host needs its own");

/* a + b and a * b; false when the result does not fit. */
static inline bool add_u64(uint64_t a, uint64_t b, uint64_t *sum) { return !__builtin_add_overflow(a, b, sum); }
static inline bool mul_u64(uint64_t a, uint64_t b, uint64_t *product) { return !__builtin_mul_overflow(a, b, product); }

/* Whether [offset, offset + length) lies within [0, end). */
static inline bool within_u64(uint64_t offset, uint64_t length, uint64_t end) { return length <= end && offset <= end - length; }

static inline uint64_t min_u64(uint64_t a, uint64_t b) { return a < b ? a : b; }
static inline uint64_t max_u64(uint64_t a, uint64_t b) { return a > b ? a : b; }

/* `unit` is a power of two; round_up_u64 expects that the result fits. */
static inline uint64_t round_down_u64(uint64_t value, uint64_t unit) { return value & ~(unit - 1); }
static inline uint64_t round_up_u64(uint64_t value, uint64_t unit) { return (value + unit - 1) & ~(unit - 1); }

/* value / unit, rounded up; never overflows. */
static inline uint64_t ceil_div_u64(uint64_t value, uint64_t unit) { return value / unit + (value % unit != 0); }

static inline bool is_power_of_two_u64(uint64_t value) { return value != 0 && (value & (value - 1)) == 0; }

/* Entry `index` of an array of (1 << order)-bit numbers, order 0–6: big-endian, sub-byte ones from the least significant bit. */
static inline uint64_t bits_get(const uint8_t *array, unsigned order, uint64_t index) {
    switch (order) {
        case 3: return array[index];
        case 4: return load_be16(array + 2 * index);
        case 5: return load_be32(array + 4 * index);
        case 6: return load_be64(array + 8 * index);
        default: {
            const uint64_t bit = index << order;
            return (uint64_t) (array[bit / 8] >> (bit % 8)) & ((1u << (1u << order)) - 1u);
        }
    }
}
static inline void bits_set(uint8_t *array, unsigned order, uint64_t index, uint64_t value) {
    switch (order) {
        case 3: array[index] = (uint8_t) value; return;
        case 4: store_be16(array + 2 * index, (uint16_t) value); return;
        case 5: store_be32(array + 4 * index, (uint32_t) value); return;
        case 6: store_be64(array + 8 * index, value); return;
        default: {
            const uint64_t bit = index << order;
            const unsigned mask = ((1u << (1u << order)) - 1u) << (bit % 8);
            array[bit / 8] = (uint8_t) ((array[bit / 8] & ~mask) | ((unsigned) (value << (bit % 8)) & mask));
            return;
        }
    }
}

/* The largest value that an entry of that order holds. */
static inline uint64_t bits_max(unsigned order) { return order == 6 ? UINT64_MAX : (UINT64_C(1) << (1u << order)) - 1; }

#endif
