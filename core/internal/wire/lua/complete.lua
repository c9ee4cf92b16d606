-- Stores a completion record and ends the attempt, in one step.
-- remembered: the node's memory when it last vouched for the attempt, '-' = it never did, or it has no guard
-- retention: keep the record for (ms)   by: token of the lease that completed   buried: life of the tombstone (ms)
-- decided = a quorum has the record   wait: a waiter that leaves the queue, '' = none
-- Replies  OK now   DONE now ballot rest origin: a record with a greater ballot stands   LOST now
--          FORGOT now: the node may have forgotten a greater promise   REVOKED now, see revoke.lua
--          WAIT now: the previous primary may still be serving   CLOCK us | REPLICA now | NOGUARD now
local e, f, p, i, r, u, c, d = load(resource)
local accepted, kept, origin = 0, 0
if d ~= '' then
  accepted, kept, origin = record(d)
  -- An expired record does not count, except if this request brings the same record as decided: a decided record is
  -- never extended.
  if now >= kept and not (decided and accepted == ballot) then accepted, kept = 0, 0 end
end
local others = i ~= '' and i ~= id and now <= e
-- How the attempt ended here before, if it did. While it owns the resource it has no tombstone.
local tomb = i ~= id and call('GET', tombstone)
if i == id and e == 0 or i == '~' .. id then tomb = RELEASED end
local revoked = tomb == REVOKED and not decided
local changed, recorded
-- Ends the attempt, with any reply: a late request of it must not take the resource. A refusal is returned even if the
-- server takes no writes.
local function over(reply)
  local taken, ended = reply == 'OK ', i == id and e > 0
  local how = (taken or reply == 'DONE ' and origin == by) and COMPLETED or REFUSED
  if tomb == RELEASED then how = RELEASED end
  -- A recorded completion also removes an owner whose lease is over: its write-back must not count here any more.
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
  -- Another client has completed the holder's own record. The holder learns of it only now, and is promised the whole
  -- retention.
  if origin == by and ballot == by and not decided and now + retention > kept then
    kept, recorded = now + retention, true
    d = pack('<ddd', accepted, kept, origin) .. sub(d, 25)
  end
  return over('DONE ') .. ' ' .. int(accepted) .. ' ' .. int(kept - now) .. ' ' .. int(origin)
end
if accepted == ballot then
  -- A repeated request. Its sender learns only now that the record is stored, and is promised the whole retention.
  if decided or now + retention <= kept then return over('OK ') end
  d = pack('<ddd', ballot, now + retention, origin) .. sub(d, 25)
else
  if not decided then
    if revoked then return over('REVOKED ') end
    if others or f > ballot then return over('LOST ') end
    if doubled then return 'WAIT ' .. clock end
    -- An attempt that owns the resource is refused, too: the owner may come from a snapshot.
    if remembered ~= memory then return over('FORGOT ') end
  end
  f = math.max(f, ballot)
  d = pack('<ddd', ballot, now + retention, by) .. result
  if claimed then used() end
end
kept, recorded = now + retention, true
return over('OK ')
