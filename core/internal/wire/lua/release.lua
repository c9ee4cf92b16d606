-- Ends an attempt. Without a tombstone, its owner stays, with expiry 0, so that a repeated release finds the end.
-- It checks neither clock window nor guard, so it needs no head.
-- drop a record with a smaller ballot, 0 = none; greater than 0 only for a lease that a caller got
-- buried: life of the tombstone (ms); negative = there is none if the lease is found, because no request can arrive
--   after the one that brought it. A tombstone in any case costs the server 15 to 28 % more instructions for a release,
--   and a key for that time
-- cooldown: keep the resource taken for (ms), 0 = it is free
-- again = another release of the attempt was sent before
-- undo = no caller has seen the attempt's token: restore the counter
-- wait: of the call that made the attempt; '' = none   ticket: the call goes on, and regains its place; 0 = it is over
-- Replies  OK = it had the resource   AGAIN = a release or a completion has ended it here before
--          GONE = it did not have it, and left no trace here
--          REFUSED = its completion was refused here, or its first release found no trace   REVOKED, see revoke.lua
--          LATE = it was over here before: the resource does not stay taken
local e, f, p, i, r, u, c, d = load(resource)
local stays, mine = cooldown > 0, i == id and e > 0
local first = buried > 0 and not again
if buried < 0 then buried = i == id and 0 or -buried end
local ballot, kept, changed = 0, 0, mine
local reply, expiry, how = 'OK', e, RELEASED
if stays or waited then read() end
if d ~= '' then
  ballot, kept = unpack('<dd', d)
  if ballot < drop then d, ballot, kept, changed = '', 0, 0, true end
end
if r == id then r, u, changed = '', 0, true end
if mine then
  if undo and p >= 0 then f = math.max(p, ballot) end
  p, c = -1, ''
  if stays and now <= e then
    e, i = now + cooldown, '~' .. id -- no attempt has this name, so none can extend it
  else
    -- No cooldown past the lease's end: others may have had the resource, on nodes that this one does not know of.
    if stays then reply, stays = 'LATE', false end
    e = 0
    if buried > 0 then i = '' end -- the tombstone records the end
  end
elseif i == '~' .. id then
  reply, stays = 'AGAIN', false
else
  local tomb = i == id and RELEASED or call('GET', tombstone)
  reply = tomb == REVOKED and 'REVOKED' or tomb == REFUSED and 'REFUSED' or not tomb and 'GONE' or stays and 'LATE' or 'AGAIN'
  if tomb == REVOKED then buried = 0 end -- that tombstone outlives this one
  -- Unless first is set, another release may have ended the attempt and left no trace, or the trace may be gone.
  how = tomb or (first and REFUSED or RELEASED)
  stays = false
end
local heads
if waited then
  local quits = wait ~= '' and ticket == 0
  if quits then
    queues().leave(resource, wait)
  elseif mine and wait ~= '' then
    queues().rejoin(resource, wait, int(ticket))
  end
  heads = queues().heads(resource)
  if #heads == 0 then
    waited, changed = false, true
  elseif mine and drop > 0 then
    z = math.min(now, expiry) -- at most the lease's end: the clock may have jumped
  elseif not quits or (i ~= '' and e > 0) then
    heads = nil -- a failed attempt, or a waiter that leaves a held resource
  end
end
if stays then
  press(tombstone, resource, packed(e, f, p, i, r, u, c, d), 'PX', life(e, f, kept))
elseif mine and f == 0 and d == '' and r == '' and not waited then
  call('DEL', resource)
elseif mine and d == '' then
  press(tombstone, resource, packed(e, f, p, i, r, u, c, d), 'PX', int(idle))
elseif changed then
  press(tombstone, resource, packed(e, f, p, i, r, u, c, d), 'KEEPTTL')
end
if buried > 0 then press(tombstone, tombstone, how, 'PX', int(buried)) end
if heads then queues().wake(resource, heads) end
return reply
