/* SPDX-License-Identifier: MIT
 *
 * A run as an object: start, progress, stop, wait, result. Its images are kept in its user value and count it as a user, so none can be
 * closed under a worker. Results are copied to Lua after the workers are over; no worker sees a lua_State.
 * Options are flat and checked by lua/qcow2/bench.lua: times in nanoseconds, sizes in bytes.
 */
#include "lua/lua_bench.h"

#include <lauxlib.h>
#include <string.h>

#include "base/memory.h"
#include "jobs/bench.h"
#include "lua/lua_error.h"
#include "lua/lua_field.h"
#include "lua/lua_image.h"

#define TYPE_NAME "qcow2.Bench"
#define SUM_TYPE_NAME "qcow2.BenchSum"

struct lua_bench {
    struct bench *bench; /* NULL before it is made and after close */
    unsigned count;
    bool started, over;
    bool uses; /* its images count it as a user */
};

static struct lua_bench *check_bench(lua_State *L) {
    struct lua_bench *self = luaL_checkudata(L, 1, TYPE_NAME);
    if (self->bench == NULL) luaL_error(L, "attempt to use a closed benchmark run");
    return self;
}

/* ---- options ---- */

static void read_pattern(lua_State *L, int index, struct pattern_options *pattern) {
    *pattern = (struct pattern_options){.reads = (unsigned) lua_field_integer(L, index, "reads", 0),
                                        .writes = (unsigned) lua_field_integer(L, index, "writes", 0),
                                        .trims = (unsigned) lua_field_integer(L, index, "trims", 0),
                                        .random = lua_field_boolean(L, index, "random", false),
                                        .norandommap = lua_field_boolean(L, index, "norandommap", false),
                                        .offset = lua_field_integer(L, index, "offset", 0),
                                        .size = lua_field_integer(L, index, "size", 0),
                                        .bs = lua_field_integer(L, index, "bs", 0),
                                        .stride = lua_field_integer(L, index, "stride", 0),
                                        .seed = lua_field_integer(L, index, "randseed", 0)};
    const bool does = pattern->reads + pattern->writes + pattern->trims > 0;
    const bool fits = pattern->bs > 0 && pattern->stride > 0 && pattern->size >= pattern->bs;
    if (!does || !fits) luaL_error(L, "a job needs reads, writes or trims, bs, stride, and a size of a block at least");
}

static void read_job(lua_State *L, int index, struct bench_job *job) {
    lua_getfield(L, index, "image");
    job->image = lua_image_check(L, -1);
    lua_pop(L, 1);
    job->options = (struct job_options){.iodepth = (unsigned) lua_field_integer(L, index, "iodepth", 1),
                                        .operations = lua_field_integer(L, index, "number_ios", 0),
                                        .runtime = lua_field_integer(L, index, "runtime", 0),
                                        .ramp_time = lua_field_integer(L, index, "ramp_time", 0),
                                        .rate = lua_field_integer(L, index, "rate", 0),
                                        .fsync = lua_field_integer(L, index, "fsync", 0),
                                        .verify = lua_field_boolean(L, index, "verify", false),
                                        .interval = lua_field_integer(L, index, "interval", 0)};
    lua_getfield(L, index, "fill");
    job->options.buffers = lua_isnil(L, -1) ? JOB_BUFFERS_RANDOM : JOB_BUFFERS_FILLED;
    job->options.fill = (uint8_t) lua_tointeger(L, -1);
    lua_pop(L, 1);
    read_pattern(L, index, &job->options.pattern);
    if (job->options.iodepth < 1 || job->options.iodepth > QUEUE_DEPTH_MAX) luaL_error(L, "iodepth is 1 to %d", (int) QUEUE_DEPTH_MAX);
}

static struct scheduler_options read_scheduler(lua_State *L, int index) {
    static const char *const kinds[] = {"none", "fair", NULL}, *const depths[] = {"off", "any-sync", "delayed-sync", NULL};
    struct scheduler_options options = scheduler_options_default();
    options.kind = (enum scheduler_kind) lua_field_choice(L, index, "kind", "fair", kinds);
    options.write_depth = (enum scheduler_write_depth) lua_field_choice(L, index, "write_depth", "delayed-sync", depths);
    options.low_latency = lua_field_boolean(L, index, "low_latency", options.low_latency);
    options.slice_sync = lua_field_integer(L, index, "slice_sync", options.slice_sync);
    options.slice_async = lua_field_integer(L, index, "slice_async", options.slice_async);
    options.slice_idle = lua_field_integer(L, index, "slice_idle", options.slice_idle);
    options.expire_sync = lua_field_integer(L, index, "expire_sync", options.expire_sync);
    options.expire_async = lua_field_integer(L, index, "expire_async", options.expire_async);
    options.target_latency = lua_field_integer(L, index, "target_latency", options.target_latency);
    options.quantum = (unsigned) lua_field_integer(L, index, "quantum", options.quantum);
    return options;
}

/* ---- life ---- */

/* Adds `by` to the users of each image of the run at the index. */
static void use_images(lua_State *L, int index, int by) {
    lua_getiuservalue(L, index, 1);
    const lua_Integer count = (lua_Integer) lua_rawlen(L, -1);
    for (lua_Integer i = 1; i <= count; i++) {
        lua_rawgeti(L, -1, i);
        lua_image_use(L, -1, by);
        lua_pop(L, 1);
    }
    lua_pop(L, 1);
}

/* Makes a table of the jobs' images the user value of the run on top. */
static void keep_images(lua_State *L, lua_Integer count) {
    lua_createtable(L, (int) count, 0);
    for (lua_Integer i = 1; i <= count; i++) {
        lua_rawgeti(L, 1, i);
        lua_getfield(L, -1, "image");
        lua_rawseti(L, -3, i);
        lua_pop(L, 1);
    }
    lua_setiuservalue(L, -2, 1);
}

static struct bench_job *read_jobs(lua_State *L, lua_Integer count) {
    struct bench_job *jobs = lua_newuserdatauv(L, (size_t) count * sizeof *jobs, 0);
    for (lua_Integer i = 0; i < count; i++) {
        lua_rawgeti(L, 1, i + 1);
        luaL_checktype(L, -1, LUA_TTABLE);
        read_job(L, lua_gettop(L), &jobs[i]);
        lua_pop(L, 1);
    }
    return jobs;
}

/* The run is made first and uses its images from then on, so that nothing that runs while options are read can close one. */
static struct lua_bench *push_run(lua_State *L, lua_Integer count) {
    struct lua_bench *self = lua_newuserdatauv(L, sizeof *self, 1);
    *self = (struct lua_bench){.count = (unsigned) count};
    luaL_setmetatable(L, TYPE_NAME);
    keep_images(L, count);
    use_images(L, lua_gettop(L), 1);
    self->uses = true;
    return self;
}

int lua_bench_new(lua_State *L) {
    luaL_checktype(L, 1, LUA_TTABLE);
    luaL_checktype(L, 2, LUA_TTABLE);
    const lua_Integer count = (lua_Integer) lua_rawlen(L, 1);
    luaL_argcheck(L, count >= 1 && count <= (lua_Integer) BENCH_JOBS_MAX, 1, "1 to 1024 jobs expected");
    struct lua_bench *self = push_run(L, count);
    const int run = lua_gettop(L);
    const struct bench_job *jobs = read_jobs(L, count);
    lua_getfield(L, 2, "aio");
    const bool has_aio = !lua_isnil(L, -1);
    lua_getfield(L, 2, "scheduler");
    const bool scheduled = !lua_isnil(L, -1);
    const struct scheduler_options scheduler = scheduled ? read_scheduler(L, lua_gettop(L)) : scheduler_options_default();
    const enum ring_kind aio = has_aio ? (enum ring_kind) lua_field_choice(L, 2, "aio", "auto", ring_kind_names) : jobs[0].image->aio;
    struct error error = {.code = 0};
    bench_new(jobs, (unsigned) count, aio, scheduled ? &scheduler : NULL, &self->bench, &error);
    if (error.code == 0) {
        lua_pushvalue(L, run);
        return 1;
    }
    use_images(L, run, -1);
    self->uses = false;
    return lua_error_push(L, &error);
}

/* run:close(): stops and waits. */
static int bench_close(lua_State *L) {
    struct lua_bench *self = luaL_checkudata(L, 1, TYPE_NAME);
    struct bench *bench = self->bench;
    self->bench = NULL;
    bench_free(bench);
    if (self->uses) use_images(L, 1, -1);
    self->uses = false;
    return 0;
}

/* run:start(): true; or nil, message, code. */
static int bench_start_method(lua_State *L) {
    struct lua_bench *self = check_bench(L);
    struct error error = {.code = 0};
    if (self->started) return luaL_error(L, "the run has been started already");
    self->started = true;
    bench_start(self->bench, &error);
    return lua_error_or_true(L, &error);
}

/* run:stop(): the jobs end soon. */
static int bench_stop_method(lua_State *L) {
    bench_stop(check_bench(L)->bench);
    return 0;
}

/* run:progress(): operations completed. */
static int bench_progress_method(lua_State *L) {
    lua_pushinteger(L, (lua_Integer) bench_progress(check_bench(L)->bench));
    return 1;
}

/* run:wait([nanoseconds]): whether all jobs are over; without a limit it waits until they are. */
static int bench_wait_method(lua_State *L) {
    struct lua_bench *self = check_bench(L);
    const uint64_t limit = lua_isnoneornil(L, 2) ? RING_FOREVER : lua_check_unsigned(L, 2, "nanoseconds");
    if (!self->started) return luaL_error(L, "the run has not been started");
    self->over = self->over || bench_wait(self->bench, limit);
    lua_pushboolean(L, self->over);
    return 1;
}

/* ---- results ---- */

static const char *const direction_names[JOB_DIRECTIONS] = {"read", "write", "trim", "sync"};

/* The buckets that are not empty: {start, end, count}, nanoseconds. */
static void push_buckets(lua_State *L, const struct histogram *histogram) {
    lua_Integer index = 0;
    lua_newtable(L);
    for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++) {
        if (histogram->buckets[i] == 0) continue;
        uint64_t bounds[2];
        histogram_bucket(i, &bounds[0], &bounds[1]);
        lua_createtable(L, 3, 0);
        for (int part = 0; part < 3; part++) {
            lua_pushinteger(L, (lua_Integer) (part < 2 ? bounds[part] : histogram->buckets[i]));
            lua_rawseti(L, -2, part + 1);
        }
        lua_rawseti(L, -2, ++index);
    }
}

static void push_latency(lua_State *L, const struct histogram *histogram) {
    static const struct {
        const char *name;
        double fraction;
    } percentiles[] = {{"p50", 0.5}, {"p90", 0.9}, {"p95", 0.95}, {"p99", 0.99}, {"p99.9", 0.999}, {"p99.99", 0.9999}};
    lua_createtable(L, 0, 12);
    lua_set_integer(L, "count", histogram->count);
    lua_set_integer(L, "min", histogram->count > 0 ? histogram->least : 0);
    lua_set_integer(L, "max", histogram->greatest);
    lua_set_number(L, "mean", histogram->mean);
    lua_set_number(L, "stdev", histogram_deviation(histogram));
    for (size_t i = 0; i < sizeof percentiles / sizeof *percentiles; i++) {
        lua_set_integer(L, percentiles[i].name, histogram_percentile(histogram, percentiles[i].fraction));
    }
    push_buckets(L, histogram);
    lua_setfield(L, -2, "buckets");
}

static void push_direction(lua_State *L, const struct job_direction *direction) {
    lua_createtable(L, 0, 4);
    lua_set_integer(L, "operations", direction->operations);
    lua_set_integer(L, "bytes", direction->bytes);
    lua_set_integer(L, "errors", direction->errors);
    push_latency(L, &direction->latency);
    lua_setfield(L, -2, "latency");
}

/* For each interval a table by direction of {operations, bytes}. */
static void push_series(lua_State *L, const struct job_result *result) {
    lua_createtable(L, (int) result->series_count, 0);
    for (uint64_t i = 0; i < result->series_count; i++) {
        lua_createtable(L, 0, JOB_DIRECTIONS);
        for (int d = 0; d < JOB_DIRECTIONS; d++) {
            lua_createtable(L, 2, 0);
            lua_pushinteger(L, (lua_Integer) result->series[i].operations[d]);
            lua_rawseti(L, -2, 1);
            lua_pushinteger(L, (lua_Integer) result->series[i].bytes[d]);
            lua_rawseti(L, -2, 2);
            lua_setfield(L, -2, direction_names[d]);
        }
        lua_rawseti(L, -2, (lua_Integer) i + 1);
    }
}

static void push_result(lua_State *L, const struct job_result *result, const struct bench_cpu *cpu) {
    lua_createtable(L, 0, 12);
    for (int d = 0; d < JOB_DIRECTIONS; d++) {
        push_direction(L, &result->directions[d]);
        lua_setfield(L, -2, direction_names[d]);
    }
    lua_set_integer(L, "elapsed", result->elapsed);
    lua_set_integer(L, "verified", result->verified);
    lua_set_integer(L, "user_cpu", cpu->user);
    lua_set_integer(L, "system_cpu", cpu->system);
    lua_set_integer(L, "voluntary_switches", cpu->voluntary_switches);
    lua_set_integer(L, "involuntary_switches", cpu->involuntary_switches);
    push_series(L, result);
    lua_setfield(L, -2, "series");
    if (result->error.code == 0) return;
    lua_pushstring(L, result->error.text);
    lua_setfield(L, -2, "error");
    lua_pushstring(L, error_name(result->error.code));
    lua_setfield(L, -2, "code");
}

static int sum_clear(lua_State *L) {
    job_result_clear(luaL_checkudata(L, 1, SUM_TYPE_NAME));
    return 0;
}

/* A sum that gives its memory back also where something raises. */
static struct job_result *new_sum(lua_State *L) {
    struct job_result *sum = lua_newuserdatauv(L, sizeof *sum, 0);
    job_result_init(sum);
    luaL_setmetatable(L, SUM_TYPE_NAME);
    return sum;
}

/* run:result(first, count): what jobs `first` (from 1) to first + count - 1 measured, added up; times in nanoseconds. */
static int bench_result_method(lua_State *L) {
    struct lua_bench *self = check_bench(L);
    const uint64_t first = lua_check_unsigned(L, 2, "first"), count = lua_check_unsigned(L, 3, "count");
    if (!self->over) return luaL_error(L, "the run is not over");
    luaL_argcheck(L, first >= 1 && first <= self->count && count >= 1 && count <= self->count - first + 1, 2, "no such jobs");
    struct job_result *sum = new_sum(L);
    struct bench_cpu cpu;
    if (bench_result(self->bench, (unsigned) first - 1, (unsigned) count, sum, &cpu) < 0) return luaL_error(L, "no memory for a result");
    push_result(L, sum, &cpu);
    job_result_clear(sum);
    return 1;
}

void lua_bench_register(lua_State *L) {
    static const luaL_Reg methods[] = {{"start", bench_start_method},
                                       {"stop", bench_stop_method},
                                       {"progress", bench_progress_method},
                                       {"wait", bench_wait_method},
                                       {"result", bench_result_method},
                                       {"close", bench_close},
                                       {NULL, NULL}};
    static const luaL_Reg meta[] = {{"__gc", bench_close}, {"__close", bench_close}, {NULL, NULL}};
    luaL_newmetatable(L, TYPE_NAME);
    luaL_setfuncs(L, meta, 0);
    luaL_newlib(L, methods);
    lua_setfield(L, -2, "__index");
    luaL_newmetatable(L, SUM_TYPE_NAME);
    lua_pushcfunction(L, sum_clear);
    lua_setfield(L, -2, "__gc");
    lua_pop(L, 2);
}
