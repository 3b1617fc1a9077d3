-- SPDX-License-Identifier: MIT
-- The last run of each cell, row by row, for tables beside a result. Those without `measure` are left out: they failed, or are of a
-- column that does not give it.
--
--     for case, env, run in last_runs(bench, "work") do … end

return function(bench, measure)
    return coroutine.wrap(function()
        for _, case in ipairs(bench.cases) do
            for _, env in ipairs(bench.envs) do
                local runs = bench.results[case.id][env.id].runs
                local last = runs[#runs]
                if last and last[measure] then coroutine.yield(case, env, last) end
            end
        end
    end)
end
