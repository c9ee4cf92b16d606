-- Extends the attempt's lease, or brings it back where this node lost it or granted it to others meanwhile.
-- token, and the expiry this node last confirmed (server ms, 0 = never)
-- granted: token this node granted, 0 = a plain renewal.  Otherwise a write-back: only raise the counter, and only
--    where nothing has happened since that grant.  Not idempotent, on purpose: that the counter stands at
--    the token already does not show that nobody else had the node in between
-- remembered: what the node remembered when it granted
-- turn: how long a renewal that is refused keeps its turn (ms)
-- carried by the holder, where the lease is brought back; '' = nothing
-- Replies  OK | HEALED | PASSED now expiry memory   WAIT now   LOST now   TOMBSTONE now   REVOKED now   QUARANTINED now rest
--          CLOCK us | REPLICA now | NOGUARD now
-- PASSED: the lease is here, but the counter is above its token, so no record of it can be accepted here.
-- Our lease cannot have run out here yet, so nobody else can have been granted the resource since.
local sure = now + margin < confirmed
local recovering = now < quarantine
-- Whatever the memory says: it may be that of an older snapshot.
if recovering and not sure then return 'QUARANTINED ' .. clock .. ' ' .. int(quarantine - now) end
if doubled then return 'WAIT ' .. clock end
local e, f, p, i, r, u, c, d = load(resource)
local status = recovering and 'HEALED ' or 'OK '
if i ~= id then
  local over = call('GET', tombstone)
  if over then return (over == REVOKED and 'REVOKED ' or 'TOMBSTONE ') .. clock end
  -- In quarantine another's live lease is a ghost out of a snapshot, and gives way.
  if i ~= '' and now <= e and not recovering then
    if granted == 0 then
      call('SET', resource, packed(e, f, p, i, id, now + turn, c, d), 'KEEPTTL')
    end
    return 'LOST ' .. clock
  end
  if granted > 0 then return 'LOST ' .. clock end
  if sure then status = 'HEALED ' end
  i, p, r, u, c = id, -1, '', 0, carried
  if claimed then used() end
elseif e == 0 then -- it was ended
  return 'TOMBSTONE ' .. clock
elseif granted > 0 and (f ~= granted or memory ~= remembered) then
  return 'LOST ' .. clock
end
if f > token then status = 'PASSED ' else f = token end
local _, kept = 0, 0
if d ~= '' then _, kept = record(d) end
local expiry
if e > now + lease then expiry = int(e) else e, expiry = now + lease, ends(lease) end
local v, ms = packed(e, f, p, i, r, u, c, d), life(e, f, kept)
press(tombstone, resource, v, 'PX', ms)
return status .. clock .. ' ' .. expiry .. ' ' .. memory
