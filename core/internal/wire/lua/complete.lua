-- Accepts a completion record and ends the attempt, in one step.
-- remembered: what the node remembered when it last vouched for the attempt, '-' = it did not
-- retention: keep the record for (ms)   by: token that completed   buried: life of the tombstone (ms)
-- decided = the record is known to be   wait that is over; '' = none
-- Replies  OK now   DONE now ballot rest origin: a record with a greater ballot stands   LOST now
--          FORGOT now: the node may have forgotten a greater promise   WAIT now   REVOKED now, see revoke.lua
--          CLOCK us | REPLICA now | NOGUARD now
local e, f, p, i, r, u, c, d = load(resource)
local accepted, kept, origin = 0, 0
if d ~= '' then
  accepted, kept, origin = record(d)
  -- Whoever only brings what is decided does not make it last: not here, whether or not it is over.
  if now >= kept and not (decided and accepted == ballot) then accepted, kept = 0, 0 end
end
local others = i ~= '' and i ~= id and now <= e
-- How the attempt has ended here before: while it owns the resource it has no tombstone.
local tomb = i ~= id and call('GET', tombstone)
if i == id and e == 0 or i == '~' .. id then tomb = RELEASED end
local revoked = tomb == REVOKED and not decided
local changed, recorded
-- However it ends, the attempt is over here: a late request of it must not take the resource.  What it was refused for
-- it hears, also from a server that takes no writes.
local function over(reply)
  local taken, ended = reply == 'OK ', i == id and e > 0
  local how = (taken or reply == 'DONE ' and origin == by) and COMPLETED or REFUSED
  if tomb == RELEASED then how = RELEASED end
  -- A spent owner goes too: its write-back must not count on a node that accepted past it.
  if i ~= '' and (i == id or taken and not others) then e, i, c, p, changed = 0, '', '', -1, true end
  if r == id then r, u, changed = '', 0, true end
  local first
  if waited and (changed or wait ~= '') then
    if wait ~= '' then queues().leave(resource, wait) end
    first = queues().heads(resource)
    if ended then z = now end
    waited, changed = #first > 0, true
  end
  local function write()
    local v = packed(e, f, p, i, r, u, c, d)
    if recorded then
      call('SET', resource, v, 'PX', life(e, f, kept))
    elseif changed then
      press(tombstone, resource, v, 'KEEPTTL')
    end
    if tomb ~= REVOKED then press(tombstone, tombstone, how, 'PX', int(buried)) end
  end
  if taken or recorded then write() else pcall(write) end
  if first and i == '' then queues().wake(resource, first) end
  return reply .. clock
end
if accepted > ballot then
  if revoked and origin ~= by then return over('REVOKED ') end
  -- Somebody has settled the holder's own record: the holder, who is told only now, is promised all of the retention.
  if origin == by and ballot == by and not decided and now + retention > kept then
    kept, recorded = now + retention, true
    d = pack('<ddd', accepted, kept, origin) .. sub(d, 25)
  end
  return over('DONE ') .. ' ' .. int(accepted) .. ' ' .. int(kept - now) .. ' ' .. int(origin)
end
if accepted == ballot then
  -- Again: who is told only now that it is recorded is promised all of the retention.
  if decided or now + retention <= kept then return over('OK ') end
  d = pack('<ddd', ballot, now + retention, origin) .. sub(d, 25)
else
  if not decided then
    if revoked then return over('REVOKED ') end
    if others or f > ballot then return over('LOST ') end
    if doubled then return 'WAIT ' .. clock end
    -- Whoever owns the resource: it may be a snapshot that says so.
    if remembered ~= memory then return over('FORGOT ') end
  end
  f = math.max(f, ballot)
  d = pack('<ddd', ballot, now + retention, by) .. result
  if claimed then used() end
end
kept, recorded = now + retention, true
return over('OK ')
