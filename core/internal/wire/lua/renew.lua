-- Extends the attempt's lease, or brings it back if this node lost it or granted it to others meanwhile.
-- token of the lease   confirmed: the expiry that this node last confirmed (server ms, 0 = never)
-- granted: token that this node granted, 0 = a plain renewal. Otherwise a write-back: it raises the counter, only if
--    nothing has happened since that grant, and brings no lease back. Not idempotent, on purpose: that the counter
--    stands at the token already does not show that no other attempt had the node in between
-- remembered: the node's memory when it granted
-- turn: how long the resource is reserved for a renewal that is refused (ms)
-- carried: texts of the holder, stored if the lease is brought back; '' = none
-- Replies  OK | HEALED | PASSED now expiry memory   WAIT now   LOST now   TOMBSTONE now   REVOKED now
--          QUARANTINED now rest   CLOCK us | REPLICA now | NOGUARD now
-- HEALED: the node had lost the lease before its end, or is in quarantine.
-- WAIT: the previous primary may still be serving.
-- PASSED: the lease is here, but the counter is above its token, so no record of it can be accepted here.
-- sure = the lease cannot have run out here yet, so no other attempt can have been granted the resource since.
local sure = now + margin < confirmed
local recovering = now < quarantine
-- The stored owner does not matter: it may come from an older snapshot.
if recovering and not sure then return 'QUARANTINED ' .. clock .. ' ' .. int(quarantine - now) end
if doubled then return 'WAIT ' .. clock end
local e, f, p, i, r, u, c, d = load(resource)
local status = recovering and 'HEALED ' or 'OK '
if i ~= id then
  local over = call('GET', tombstone)
  if over then return (over == REVOKED and 'REVOKED ' or 'TOMBSTONE ') .. clock end
  -- In quarantine, another attempt's live lease is a ghost from a snapshot, and gives way.
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
elseif e == 0 then -- a release ended it
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
