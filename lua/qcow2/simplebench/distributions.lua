-- SPDX-License-Identifier: MIT

--- The normal distribution and Student's t: tails and quantiles, to about 14 digits.
--
-- Tails are summed from series that need no table of coefficients; a quantile is found by halving the range of its tail.
-- @module qcow2.simplebench.distributions

local distributions = {}

local SERIES_UP_TO = 3 -- from there on, the continued fraction is the faster one

--- The chance that a normal variable (mean 0, deviation 1) is above z.
-- @tparam number z
-- @treturn number
function distributions.normal_tail(z)
    if z < 0 then return 1 - distributions.normal_tail(-z) end
    local density = math.exp(-z * z / 2) / math.sqrt(2 * math.pi)
    if z < SERIES_UP_TO then
        local term, sum, odd = z, z, 1
        while term > sum * 1e-17 do
            odd = odd + 2
            term = term * z * z / odd
            sum = sum + term
        end
        return 0.5 - density * sum
    end
    local fraction = z
    for k = 200, 1, -1 do fraction = z + k / fraction end
    return density / fraction
end

--- The chance that Student's t is above a value (Abramowitz and Stegun, 26.7.3 and 26.7.4).
-- @tparam number t
-- @int df degrees of freedom, from 1 on
-- @treturn number
function distributions.t_tail(t, df)
    local angle = math.atan(t / math.sqrt(df))
    local cosine2, odd = math.cos(angle) ^ 2, df % 2
    local term = odd == 1 and math.cos(angle) or 1
    local sum = df > 1 and term or 0
    for k = odd + 2, df - 2, 2 do
        term = term * cosine2 * (k - 1) / k
        sum = sum + term
    end
    local inside = math.sin(angle) * sum
    if odd == 1 then inside = 2 / math.pi * (angle + inside) end
    return (1 - inside) / 2
end

local function find(tail_at, tail)
    local low, high = -1, 1
    while tail_at(low) < tail do low = low * 2 end
    while tail_at(high) > tail do high = high * 2 end
    for _ = 1, 80 do
        local middle = low + (high - low) / 2
        if tail_at(middle) > tail then low = middle else high = middle end
    end
    return low + (high - low) / 2
end

--- The value that a normal variable is above with a given chance.
-- @tparam number tail between 0 and 1
-- @treturn number
function distributions.normal_above(tail) return find(distributions.normal_tail, tail) end

--- The value that Student's t is above with a given chance.
-- @tparam number tail between 0 and 1
-- @int df degrees of freedom, from 1 on
-- @treturn number
function distributions.t_above(tail, df)
    return find(function(t) return distributions.t_tail(t, df) end, tail)
end

return distributions
