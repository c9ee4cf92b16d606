-- Extends the attempt's lease, or brings it back where this node lost it or granted it to others meanwhile.
-- ARGV 9 token  10 expiry this node last confirmed (server ms, 0 = never)
--      11 token this node granted, '0' = a plain renewal.  Otherwise a write-back: only raise the counter, and only
--         where nothing has happened since that grant.  Not idempotent, on purpose: that the counter stands at
--         the token already does not show that nobody else had the node in between
--      12 what the node remembered when it granted   13 how long a renewal that is refused keeps its turn (ms)
-- Replies  OK | HEALED | PASSED now expiry memory   WAIT now   LOST now   TOMBSTONE now   QUARANTINED now rest
--          CLOCK us | REPLICA now | NOGUARD now
-- PASSED: the lease is here, but the counter is above its token, so no record of it can be accepted here.
local token, confirmed, granted = tonumber(ARGV[9]), tonumber(ARGV[10]), tonumber(ARGV[11])
-- Our lease cannot have run out here yet, so nobody else can have been granted the resource since.
local sure = now + margin < confirmed
local recovering = now < quarantine
-- Whatever the memory says: it may be that of an older snapshot.
if recovering and not sure then return 'QUARANTINED ' .. clock .. ' ' .. int(quarantine - now) end
if doubled then return 'WAIT ' .. clock end
local v = redis.call('HMGET', KEYS[1], 'e', 'i', 'f', 'd')
local e, i, f = tonumber(v[1] or 0), v[2], tonumber(v[3] or 0)
local status = recovering and 'HEALED ' or 'OK '
if i ~= id then
  if redis.call('EXISTS', KEYS[2]) == 1 then return 'TOMBSTONE ' .. clock end
  -- In quarantine another's live lease is a ghost out of a snapshot, and gives way.
  if i and now <= e and not recovering then
    if granted == 0 then redis.call('HSET', KEYS[1], 'r', id, 'u', int(now + tonumber(ARGV[13]))) end
    return 'LOST ' .. clock
  end
  if granted > 0 then return 'LOST ' .. clock end
  if sure then status = 'HEALED ' end
  redis.call('HDEL', KEYS[1], 'p', 'r', 'u')
  if claimed then redis.call('HDEL', KEYS[3], 'n') end
elseif granted > 0 and (f ~= granted or memory ~= ARGV[12]) then
  return 'LOST ' .. clock
end
if f > token then status = 'PASSED ' end
local _, kept = record(v[4])
f = math.max(f, token)
e = math.max(e, now + lease)
redis.call('HSET', KEYS[1], 'e', int(e), 'i', id, 'f', int(f))
keep(math.max(e - now + slack, math.floor(f / 1000) + idle - now), kept)
return status .. clock .. ' ' .. int(e) .. ' ' .. memory
