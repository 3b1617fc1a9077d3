/* SPDX-License-Identifier: MIT
 *
 * Storey 0: bytes, errors, memory and its injection, ranges against a naive bitmap.
 */
#include <pthread.h>
#include <string.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/ranges.h"
#include "unit.h"

static void test_bytes(void) {
    uint8_t bytes[8];
    uint64_t result;
    store_be64(bytes, UINT64_C(0x0102030405060708));
    for (unsigned i = 0; i < 8; i++) CHECK(bytes[i] == i + 1);
    CHECK(load_be64(bytes) == UINT64_C(0x0102030405060708));
    CHECK(load_be32(bytes) == 0x01020304 && load_be16(bytes) == 0x0102);
    CHECK(add_u64(UINT64_MAX, 0, &result) && !add_u64(UINT64_MAX, 1, &result));
    CHECK(mul_u64(1u << 31, 2, &result) && result == UINT64_C(1) << 32 && !mul_u64(UINT64_MAX, 2, &result));
    CHECK(within_u64(5, 5, 10) && !within_u64(5, 6, 10) && !within_u64(UINT64_MAX, 2, UINT64_MAX) && within_u64(10, 0, 10));
    CHECK(round_up_u64(513, 512) == 1024 && round_down_u64(1023, 512) == 512 && round_up_u64(512, 512) == 512);
    CHECK(ceil_div_u64(UINT64_MAX, 2) == UINT64_C(1) << 63 && ceil_div_u64(0, 7) == 0);
    CHECK(is_power_of_two_u64(1) && !is_power_of_two_u64(0) && !is_power_of_two_u64(6));
}

/* Random entries of one order against a plain array; every set leaves the others alone. */
static void test_bits(unsigned order) {
    enum {
        COUNT = 200
    };
    uint8_t array[COUNT * 8] = {0};
    uint64_t model[COUNT] = {0}, state = unit_seed + order;
    for (unsigned round = 0; round < 2000; round++) {
        const uint64_t index = unit_below(&state, COUNT), value = unit_random(&state) & bits_max(order);
        bits_set(array, order, index, value);
        model[index] = value;
        const uint64_t other = unit_below(&state, COUNT);
        CHECK(bits_get(array, order, index) == value && bits_get(array, order, other) == model[other]);
    }
    for (uint64_t i = 0; i < COUNT; i++) CHECK(bits_get(array, order, i) == model[i]);
    for (size_t i = ((size_t) COUNT << order) / 8; i < sizeof array; i++) CHECK(array[i] == 0);
}

static void test_bit_order(void) {
    uint8_t array[2] = {0};
    bits_set(array, 0, 9, 1);
    CHECK(array[0] == 0 && array[1] == 2);
    bits_set(array, 2, 0, 0xa);
    bits_set(array, 2, 1, 0x5);
    CHECK(array[0] == 0x5a);
    bits_set(array, 4, 0, 0x1234);
    CHECK(array[0] == 0x12 && array[1] == 0x34);
    CHECK(bits_max(0) == 1 && bits_max(3) == 255 && bits_max(6) == UINT64_MAX);
}

static void test_error(void) {
    struct error error;
    memset(&error, 0xff, sizeof error);
    error_clear(&error);
    CHECK(error.code == 0 && error.text[0] == '\0');
    CHECK(error_prefix(&error, "nothing") == 0 && error.text[0] == '\0');
    CHECK(error_set(&error, -EIO, "first at %d", 7) == -EIO);
    CHECK(error_set(&error, -ENOSPC, "second") == -ENOSPC);
    CHECK(error.code == -EIO && strcmp(error.text, "first at 7") == 0);
    CHECK(error_prefix(&error, "image '%s'", "a") == -EIO && strcmp(error.text, "image 'a': first at 7") == 0);
}

static void test_error_too_long(void) {
    struct error error = {0};
    char longest[2 * ERROR_TEXT_SIZE];
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    error_set(&error, -EIO, "%s", longest);
    CHECK(strlen(error.text) == ERROR_TEXT_SIZE - 1);
    error_prefix(&error, "short");
    CHECK(strlen(error.text) == ERROR_TEXT_SIZE - 1 && strncmp(error.text, "short: xxx", 10) == 0);
    error_prefix(&error, "%s", longest);
    CHECK(strlen(error.text) == ERROR_TEXT_SIZE - 1);
}

static void test_error_names(void) {
    CHECK(strcmp(error_name(-ENOSPC), "ENOSPC") == 0 && strcmp(error_name(-EIO), "EIO") == 0);
    CHECK(strcmp(error_name(ERROR_CORRUPT), "ECORRUPT") == 0);
    CHECK(strcmp(error_name(-EAGAIN), "EAGAIN") == 0 && strcmp(error_name(-EOPNOTSUPP), "ENOTSUP") == 0);
    CHECK(strcmp(error_name(-9999), "E9999") == 0);
}

static void test_memory(void) {
    const uint64_t held = memory_held(), asked = memory_asked();
    uint8_t *zeroed = memory_zeroed(100), *aligned = memory_aligned(5000), *array = memory_array(10, 10);
    char *text = memory_text("abcdef", 3);
    CHECK(zeroed && aligned && array && text && strcmp(text, "abc") == 0);
    for (unsigned i = 0; i < 100; i++) CHECK(zeroed[i] == 0 && array[i] == 0);
    CHECK((uintptr_t) aligned % MEMORY_ALIGNMENT == 0);
    memset(aligned, 1, 5000);
    CHECK(memory_held() == held + 4 && memory_asked() == asked + 4);
    array[99] = 42;
    array = memory_resize(array, 100000);
    CHECK(array && array[99] == 42 && memory_held() == held + 4);
    uint8_t *fresh = memory_resize(NULL, 0);
    CHECK(fresh && memory_held() == held + 5);
    memory_free(fresh), memory_free(zeroed), memory_free(aligned), memory_free(array), memory_free(text), memory_free(NULL);
    CHECK(memory_held() == held);
    CHECK(!memory_array(SIZE_MAX / 2, 4) && !memory_zeroed(SIZE_MAX) && !memory_aligned(SIZE_MAX) && !memory_text("", SIZE_MAX));
    CHECK(memory_held() == held);
}

static void test_zeroes(void) {
    const uint8_t *zeroes = memory_zeroes();
    CHECK((uintptr_t) zeroes % MEMORY_ALIGNMENT == 0 && zeroes == memory_zeroes());
    CHECK(zeroes[0] == 0 && memcmp(zeroes, zeroes + 1, MEMORY_ZEROES_SIZE - 1) == 0);
}

static void test_injection(void) {
    for (uint64_t nth = 1; nth <= 4; nth++) {
        void *blocks[4];
        memory_fail_at(nth);
        for (unsigned i = 0; i < 4; i++) {
            blocks[i] = i % 2 ? memory_aligned(8) : memory_zeroed(8);
            CHECK((blocks[i] == NULL) == (i + 1 == nth));
        }
        for (unsigned i = 0; i < 4; i++) memory_free(blocks[i]);
    }
    memory_fail_at(1);
    memory_fail_at(0);
    void *block = memory_zeroed(1);
    CHECK(block != NULL);
    memory_fail_at(1);
    CHECK(memory_resize(block, 1000) == NULL);
    memory_free(block);
}

static _Atomic unsigned missed;

static void *allocate_often(void *unused) {
    (void) unused;
    for (unsigned i = 0; i < 10000; i++) {
        void *block = memory_zeroed(16);
        if (!block) missed++;
        memory_free(block);
    }
    return NULL;
}

/* However many threads allocate, the nth fails once. */
static void test_injection_threads(void) {
    pthread_t threads[4];
    const uint64_t held = memory_held();
    memory_fail_at(12345);
    for (unsigned i = 0; i < 4; i++) CHECK(pthread_create(&threads[i], NULL, allocate_often, NULL) == 0);
    for (unsigned i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    CHECK(missed == 1 && memory_held() == held);
}

enum {
    MODEL_SIZE = 400
};

static void check_ranges(const struct ranges *set, const bool *model) {
    uint64_t total = 0;
    for (size_t i = 0; i < set->count; i++) {
        CHECK(set->items[i].start < set->items[i].end);
        if (i > 0) CHECK(set->items[i - 1].end < set->items[i].start);
    }
    for (uint64_t i = 0; i < MODEL_SIZE; i++) {
        const struct range *item = ranges_at_or_after(set, i);
        uint64_t next = i;
        while (next < MODEL_SIZE && !model[next]) next++;
        total += model[i];
        CHECK(ranges_overlap(set, i, i + 1) == model[i]);
        CHECK((item == NULL) == (next == MODEL_SIZE));
        if (item) CHECK(max_u64(item->start, i) == next && item->end > i);
    }
    CHECK(ranges_total(set) == total);
}

/* With `failing`, every other change meets a failing allocation and then must have changed nothing. */
static void test_ranges(bool failing) {
    struct ranges set = {0};
    bool model[MODEL_SIZE] = {false};
    uint64_t state = unit_seed;
    for (unsigned round = 0; round < 3000; round++) {
        const uint64_t start = unit_below(&state, MODEL_SIZE), most = round % 50 ? 8 : MODEL_SIZE - start + 1;
        const uint64_t stop = min_u64(start + unit_below(&state, most), MODEL_SIZE);
        const bool add = unit_below(&state, 2);
        if (failing && round % 2) memory_fail_at(1);
        const int result = add ? ranges_add(&set, start, stop) : ranges_remove(&set, start, stop);
        memory_fail_at(0);
        CHECK(result == 0 || (failing && result == -ENOMEM));
        for (uint64_t i = start; i < stop && result == 0; i++) model[i] = add;
        const uint64_t from = unit_below(&state, MODEL_SIZE), to = from + unit_below(&state, 20);
        bool any = false;
        for (uint64_t i = from; i < to && i < MODEL_SIZE; i++) any |= model[i];
        CHECK(ranges_overlap(&set, from, to) == any);
        if (round % 20 == 0) check_ranges(&set, model);
    }
    ranges_clear(&set);
    CHECK(set.items == NULL && set.count == 0 && ranges_at_or_after(&set, 0) == NULL);
}

static void test_ranges_ends(void) {
    struct ranges set = {0};
    CHECK(ranges_add(&set, 5, 5) == 0 && set.count == 0);
    CHECK(ranges_add(&set, 0, UINT64_MAX) == 0 && ranges_total(&set) == UINT64_MAX);
    memory_fail_at(1);
    CHECK(ranges_remove(&set, 10, 20) == 0 && set.count == 2);
    memory_fail_at(0);
    CHECK(ranges_remove(&set, 0, UINT64_MAX) == 0 && set.count == 0 && !ranges_overlap(&set, 0, UINT64_MAX));
    ranges_clear(&set);
}

int main(void) {
    unit_start();
    const uint64_t held = memory_held();
    test_bytes();
    for (unsigned order = 0; order <= 6; order++) test_bits(order);
    test_bit_order();
    test_error();
    test_error_too_long();
    test_error_names();
    test_memory();
    test_zeroes();
    test_injection();
    test_injection_threads();
    test_ranges(false);
    test_ranges(true);
    test_ranges_ends();
    CHECK(memory_held() == held);
    return unit_end("base");
}
