-- Lowers the longest lease in use that a node knows of. An operator marks all nodes, looks at all leases, checks that
-- all nodes are still marked, and then lowers the value on those that are. See docs/models/maxttl.pml.
-- KEYS 1 guard record
-- ARGV 1 client wall clock (us)  2 clock window (ms, 0 = off)  3 longest lease in use (ms)  4 replica lag (ms)
--      5 'mark' | 'check' | 'lower' | 'unmark' = remove any mark  6 the new value (ms)
--      7 of check and lower: the mark
-- Replies  MARKED now mark   OK now = mark: the value is not greater; check: the mark stands; lower, unmark: done
--          GONE now = the mark is gone   QUARANTINED now rest = the node may have forgotten a lease
--          CLOCK us | REPLICA now | NOGUARD now
local refusal, us, now, h = asked(tonumber(ARGV[1]), tonumber(ARGV[2]))
if refusal then return refusal end
local memory, of, since, new, m, mark, claim = guarding(redis.call('GET', KEYS[1]))
m = tonumber(m or 0)
local named, to, known = tonumber(ARGV[3]), tonumber(ARGV[6]), of == h
local longest, clock = math.max(named, math.min(m, 86400000)), int(now)
if longest > named then clock = clock .. ':' .. int(longest) end
local function keep(value, marked)
  redis.call('SET', KEYS[1], memory .. ' ' .. int(value) .. marked .. (claim ~= '' and ' ' .. claim or ''))
  if m > 0 and value ~= m then noting(KEYS[1], value, now) end
end
local step = ARGV[5]
if step == 'unmark' then
  if known and mark ~= '' then keep(m, '') end
  return 'OK ' .. clock
end
if step ~= 'mark' then
  if not known or mark == '' or mark ~= ARGV[7] then return 'GONE ' .. clock end
  if step == 'lower' then keep(to, '') end
  return 'OK ' .. int(now)
end
if longest <= to then return 'OK ' .. clock end
if not known then memory, since, new, claim = h .. '.' .. int(now), now, '', '' end
local rest = new == '' and since + longest + tonumber(ARGV[4]) - now or 0
if rest > 0 then
  keep(longest, '')
  return 'QUARANTINED ' .. clock .. ' ' .. int(rest)
end
mark = '>' .. int(to) .. '@' .. int(us)
keep(longest, mark)
return 'MARKED ' .. clock .. ' ' .. mark
