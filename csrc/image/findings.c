/* SPDX-License-Identifier: MIT
 *
 * The list grows as long as it may; past the bound, or without memory, findings are only counted.
 * Called by census, check and repair.
 */
#include "image/findings.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/bytes.h"
#include "base/memory.h"

static void weigh(struct findings *findings, const struct finding *finding) {
    switch (finding->weight) {
        case WEIGHT_LEAK: findings->leaks += finding->times; break;
        case WEIGHT_CORRUPTION: findings->corruptions += finding->times; break;
        case WEIGHT_CHECK_ERROR: findings->check_errors += finding->times; break;
    }
}

static bool has_room(struct findings *findings) {
    if (findings->count < findings->capacity) return true;
    if (findings->capacity == findings->most) return false;
    const uint64_t capacity = min_u64(max_u64(2 * findings->capacity, 16), findings->most);
    struct finding *items = memory_resize(findings->items, capacity * sizeof *items);
    if (items == NULL) return false;
    findings->items = items;
    findings->capacity = capacity;
    return true;
}

struct finding *findings_add(struct findings *findings, struct finding finding, const char *format, ...) {
    if (finding.times == 0) finding.times = 1;
    weigh(findings, &finding);
    if (!has_room(findings)) {
        findings->unlisted++;
        return NULL;
    }
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(finding.text, sizeof finding.text, format, arguments);
    va_end(arguments);
    findings->items[findings->count] = finding;
    return &findings->items[findings->count++];
}

const char *finding_kind_name(enum finding_kind kind) {
    static const char *const names[] = {"leak",      "refcount-low", "refcount-unknown", "refcount-full", "copied",
                                        "reserved",  "unaligned",    "outside",          "overlap",       "contradiction",
                                        "too-large", "incomplete",   "unreadable"};
    return names[kind];
}

void findings_clear(struct findings *findings) {
    memory_free(findings->items);
    findings->items = NULL;
    findings->count = findings->capacity = 0;
}
