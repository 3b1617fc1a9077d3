/* SPDX-License-Identifier: MIT
 *
 * Open addressing with linear probing, at most half full. Keys are spread by a multiplication, whose high bits choose
 * the place, since keys are often multiples of a power of two.
 */
#include "base/numbers.h"

#include <stddef.h>

#include "base/memory.h"

#define CAPACITY_MIN 64u
#define FREE UINT64_MAX

static struct number_pair *find(const struct numbers *map, uint64_t key) {
    uint64_t at = key * UINT64_C(0x9e3779b97f4a7c15) >> 20 & (map->capacity - 1);
    while (map->pairs[at].key != key && map->pairs[at].key != FREE) at = (at + 1) & (map->capacity - 1);
    return &map->pairs[at];
}

static int grow(struct numbers *map) {
    struct numbers larger = {.capacity = map->capacity == 0 ? CAPACITY_MIN : 2 * map->capacity, .count = map->count};
    larger.pairs = memory_array(larger.capacity, sizeof *larger.pairs);
    if (larger.pairs == NULL) return -1;
    for (uint64_t i = 0; i < larger.capacity; i++) larger.pairs[i].key = FREE;
    for (uint64_t i = 0; i < map->capacity; i++) {
        if (map->pairs[i].key != FREE) *find(&larger, map->pairs[i].key) = map->pairs[i];
    }
    memory_free(map->pairs);
    *map = larger;
    return 0;
}

uint64_t *numbers_put(struct numbers *map, uint64_t key) {
    if (2 * map->count >= map->capacity && grow(map) < 0) return NULL;
    struct number_pair *pair = find(map, key);
    if (pair->key == FREE) {
        *pair = (struct number_pair){.key = key};
        map->count++;
    }
    return &pair->value;
}

uint64_t *numbers_get(const struct numbers *map, uint64_t key) {
    if (map->capacity == 0) return NULL;
    struct number_pair *pair = find(map, key);
    return pair->key == key ? &pair->value : NULL;
}

void numbers_clear(struct numbers *map) {
    memory_free(map->pairs);
    *map = (struct numbers){.count = 0};
}
