-- SPDX-License-Identifier: MIT

--- Intervals by resampling: what the numbers would have said, had the runs been others of their kind.
--
-- The interval is the percentile interval, taken as much further out as Student's t is further out than the normal distribution
-- for so many values ("expanded percentile", Hesterberg 2015): without that it is too narrow for the few runs that a
-- benchmark has. The same numbers and seed give the same interval.
-- @module qcow2.simplebench.bootstrap

local distributions = require "qcow2.simplebench.distributions"
local random = require "qcow2.simplebench.random"
local statistics = require "qcow2.simplebench.statistics"

local bootstrap = {}

local DEFAULTS = { confidence = 0.95, resamples = 1000, seed = 1 }

local tails = {} -- by confidence and count

--- How much of the resampled values lies beyond each end.
local function tail_of(confidence, count)
    local key = confidence .. " " .. count
    if not tails[key] then
        local t = distributions.t_above((1 - confidence) / 2, count - 1)
        tails[key] = distributions.normal_tail(math.sqrt(count / (count - 1)) * t)
    end
    return tails[key]
end

local function resample(values, generator, into)
    local count = #values
    for i = 1, count do into[i] = values[generator:upto(count)] end
    return into
end

--- The interval of any statistic of one or more lists of values.
-- @tparam {{number,...},...} samples
-- @tparam function statistic called with lists like the samples, in order; gives a number
-- @tparam[opt] table opts confidence (0.95), resamples (1000), seed (1)
-- @treturn ?table {low, high}; nil when a list has fewer than two values
function bootstrap.interval(samples, statistic, opts)
    local setting, drawn, results, fewest = {}, {}, {}, math.huge
    for name, default in pairs(DEFAULTS) do setting[name] = opts and opts[name] or default end
    local generator = random.new(setting.seed)
    for i, values in ipairs(samples) do
        fewest, drawn[i] = math.min(fewest, #values), {}
    end
    if fewest < 2 then return nil end
    for n = 1, setting.resamples do
        for i, values in ipairs(samples) do resample(values, generator, drawn[i]) end
        results[n] = statistic(table.unpack(drawn))
    end
    local tail = tail_of(setting.confidence, fewest)
    table.sort(results)
    return { low = statistics.quantile_sorted(results, tail), high = statistics.quantile_sorted(results, 1 - tail) }
end

local function plain_mean(values)
    local sum = 0
    for i = 1, #values do sum = sum + values[i] end
    return sum / #values
end

--- The interval of the mean.
-- @tparam {number,...} values
-- @tparam[opt] table opts see interval
-- @treturn ?table {low, high}; nil with fewer than two values
function bootstrap.mean(values, opts) return bootstrap.interval({ values }, plain_mean, opts) end

--- The interval of the quotient of two means.
-- @tparam {number,...} from
-- @tparam {number,...} to
-- @tparam[opt] table opts see interval
-- @treturn ?table {low, high} of the mean of `to` by the mean of `from`; nil when a list has fewer than two values
function bootstrap.ratio(from, to, opts)
    return bootstrap.interval({ from, to }, function(a, b) return plain_mean(b) / plain_mean(a) end, opts)
end

return bootstrap
