-- Extends the attempt's lease, or brings it back where this node lost it.
-- ARGV 9 token  10 expiry this node last confirmed (server ms, 0 = never)
--      11 token this node granted, '0' = a plain renewal.  Otherwise a write-back: only raise the counter, and only
--         where nothing has happened since that grant.  Not idempotent, on purpose: that the counter stands at
--         the token already does not show that nobody else had the node in between
-- Replies  OK | HEALED | WAIT now expiry   LOST now   TOMBSTONE now   QUARANTINED now rest   CLOCK us ...
local token, confirmed = tonumber(ARGV[9]), tonumber(ARGV[10])
local r = redis.call('HMGET', KEYS[1], 'e', 'i', 'f', 'd')
local e, f = tonumber(r[1] or 0), tonumber(r[3] or 0)
local status = 'OK '
if r[2] ~= id then
  if r[2] and now <= e then return 'LOST ' .. int(now) end
  if redis.call('EXISTS', KEYS[2]) == 1 then return 'TOMBSTONE ' .. int(now) end
  if ARGV[11] ~= '0' or f > token then return 'LOST ' .. int(now) end
  -- Our lease cannot have run out yet, so the node forgot it; nobody else's grant can be what it forgot.
  if now < confirmed then status = 'HEALED '
  elseif now < quarantine then return 'QUARANTINED ' .. int(now) .. ' ' .. int(quarantine - now) end
elseif ARGV[11] ~= '0' and f ~= tonumber(ARGV[11]) then return 'LOST ' .. int(now) end
local _, kept = record(r[4])
f = math.max(f, token)
e = math.max(e, now + lease)
redis.call('HSET', KEYS[1], 'e', int(e), 'i', id, 'f', int(f))
keep(e - now + slack, math.max(kept, math.floor(f / 1000) + fencettl))
-- An old primary may still be serving: the lease must not count on this node yet.
if lag > 0 and quarantine - now > maxttl then status = 'WAIT ' end
return status .. int(now) .. ' ' .. int(e)
