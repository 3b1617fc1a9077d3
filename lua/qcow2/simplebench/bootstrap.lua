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

--- The interval of a statistic of the means of one or more lists of values.
-- @tparam {{number,...},...} samples
-- @tparam function statistic called with the mean of each, in order; gives a number
-- @tparam[opt] table opts confidence (0.95), resamples (1000), seed (1)
-- @treturn ?table {low, high}; nil when a list has fewer than two values
function bootstrap.interval(samples, statistic, opts)
    local setting, means, results, fewest = {}, {}, {}, math.huge
    for name, default in pairs(DEFAULTS) do setting[name] = opts and opts[name] or default end
    local generator = random.new(setting.seed)
    for _, values in ipairs(samples) do fewest = math.min(fewest, #values) end
    if fewest < 2 then return nil end
    for n = 1, setting.resamples do
        for i, values in ipairs(samples) do means[i] = generator:sum_of_sample(values) / #values end
        results[n] = statistic(table.unpack(means))
    end
    local tail = tail_of(setting.confidence, fewest)
    table.sort(results)
    return { low = statistics.quantile_sorted(results, tail), high = statistics.quantile_sorted(results, 1 - tail) }
end

--- The interval of the mean.
-- @tparam {number,...} values
-- @tparam[opt] table opts see interval
-- @treturn ?table {low, high}; nil with fewer than two values
function bootstrap.mean(values, opts)
    return bootstrap.interval({ values }, function(mean) return mean end, opts)
end

--- The interval of the quotient of two means.
-- @tparam {number,...} from
-- @tparam {number,...} to
-- @tparam[opt] table opts see interval
-- @treturn ?table {low, high} of the mean of `to` by the mean of `from`; nil when a list has fewer than two values
function bootstrap.ratio(from, to, opts)
    return bootstrap.interval({ from, to }, function(a, b) return b / a end, opts)
end

return bootstrap
