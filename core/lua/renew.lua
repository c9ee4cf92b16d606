-- Extends the attempt's lease, or brings it back where this node lost it or granted it to others meanwhile.
-- ARGV at+1 token
--      at+2 expiry this node last confirmed (server ms, 0 = never)
--      at+3 token this node granted, '0' = a plain renewal.  Otherwise a write-back: only raise the counter, and only
--         where nothing has happened since that grant.  Not idempotent, on purpose: that the counter stands at
--         the token already does not show that nobody else had the node in between
--      at+4 what the node remembered when it granted
--      at+5 how long a renewal that is refused keeps its turn (ms)
-- Replies  OK | HEALED | PASSED now expiry memory   WAIT now   LOST now   TOMBSTONE now   QUARANTINED now rest
--          CLOCK us | REPLICA now | NOGUARD now
-- PASSED: the lease is here, but the counter is above its token, so no record of it can be accepted here.
local function renew(resource, tombstone, id, lease, at)
  local token, confirmed, granted = tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3])
  -- Our lease cannot have run out here yet, so nobody else can have been granted the resource since.
  local sure = now + margin < confirmed
  local recovering = now < quarantine
  -- Whatever the memory says: it may be that of an older snapshot.
  if recovering and not sure then return 'QUARANTINED ' .. clock .. ' ' .. int(quarantine - now) end
  if doubled then return 'WAIT ' .. clock end
  load(resource)
  local back -- a lease that is brought back must be, memory or not
  local status = recovering and 'HEALED ' or 'OK '
  if i ~= id then
    if redis.call('EXISTS', tombstone) == 1 then return 'TOMBSTONE ' .. clock end
    -- In quarantine another's live lease is a ghost out of a snapshot, and gives way.
    if i ~= '' and now <= e and not recovering then
      if granted == 0 then
        r, u = id, now + tonumber(ARGV[at + 5])
        save(resource)
      end
      return 'LOST ' .. clock
    end
    if granted > 0 then return 'LOST ' .. clock end
    if sure then status = 'HEALED ' end
    i, p, r, u, c = id, -1, '', 0, ''
    back = tombstone
    used()
  elseif e == 0 then -- it was ended
    return 'TOMBSTONE ' .. clock
  elseif granted > 0 and (f ~= granted or memory ~= ARGV[at + 4]) then
    return 'LOST ' .. clock
  end
  if f > token then status = 'PASSED ' end
  local _, kept = record(now)
  f = math.max(f, token)
  local expiry = e > now + lease and int(e) or ends(lease)
  e = math.max(e, now + lease)
  keep(resource, math.max(e - now + slack, math.floor(f / 1000) + idle - now), kept, back)
  return status .. clock .. ' ' .. expiry .. ' ' .. memory
end
