-- Declares a node new if it has never granted anything, so that it votes at once. This takes two steps: first each
-- node is claimed, which starts its quarantine; then, if all nodes are new, they are declared so.
-- KEYS 1 guard record (see guard.lua)
-- ARGV 1 a fresh claim  2 client wall clock (us)  3 clock window (ms, 0 = off)  4 longest lease in use (ms)
--      5 replica lag (ms)  6 the claim found before, '-' = only claim
-- Replies  OK memory = it votes, and may have granted something
--          UNUSED memory claim = it votes, and has granted nothing
--          NEW claim = it has granted nothing, and does not vote yet
--          QUARANTINED now rest = it may have forgotten something: it does not vote yet
--          CLOCK us | REPLICA now | NOGUARD now
-- A claim stores when the node's memory begins, so the clock must be right.
local refusal, _, now, h = asked(tonumber(ARGV[2]), tonumber(ARGV[3]))
if refusal then return refusal end
local g = redis.call('GET', KEYS[1])
if not g then
  redis.call('SET', KEYS[1], h .. '.' .. int(now) .. ' ' .. ARGV[4] .. ' ' .. ARGV[1])
  return 'NEW ' .. ARGV[1]
end
local memory, of, since, new, m, _, claim = guarding(g)
local known = of == h
if not known then since = now end
local longest = math.max(tonumber(ARGV[4]), math.min(tonumber(m or 0), 86400000))
local rest = since + longest + tonumber(ARGV[5]) - now
if known and (new ~= '' or rest <= 0) then return claim ~= '' and 'UNUSED ' .. memory .. ' ' .. claim or 'OK ' .. memory end
if known and claim ~= '' then
  if ARGV[6] ~= claim then return 'NEW ' .. claim end
  redis.call('SET', KEYS[1], memory .. '! ' .. int(longest) .. ' ' .. claim)
  return 'UNUSED ' .. memory .. '! ' .. claim
end
return 'QUARANTINED ' .. int(now) .. ' ' .. int(rest)
