-- Ends an attempt.  Without a tombstone its owner stays, spent, so that its end is known when it is told again.
-- It looks at neither clock window nor guard, so it needs no head.
-- buried: life of the tombstone (ms), '0' = none: all requests of the attempt have been answered
-- stay: keep the resource taken for (ms)   idle: life of an idle fencing counter (ms)
-- undo '1' = nobody has seen the attempt's token: put the counter back
-- wait: of the call that made the attempt; '' or nil = none   ticket: it goes on, and gets its place back; '' or nil =
-- it is over
-- ARGV own+1 drop a record with a smaller ballot (0 = none); of a lease only
-- Replies  OK = it was ours   AGAIN = this attempt was over here already   GONE = it was not ours
--          REVOKED = nor was it ours any more: see revoke.lua
local e, f, p, i, r, u, c, d = load(resource)
local ballot, changed = 0, false
if d ~= '' then
  ballot = unpack('<d', d)
  if ballot < tonumber(ARGV[own + 1]) then d, ballot, changed = '', 0, true end
end
if r == id then r, u, changed = '', 0, true end
local mine = i == id and e > 0
local ended, first, expiry = false, nil, e
local over = not mine and call('GET', tombstone)
local again = not mine and i == id or over == '1'
if mine then
  if undo == '1' and p >= 0 then f = math.max(p, ballot) end
  ended = ARGV[own + 1] ~= '0'
  p, c = -1, ''
  if stay ~= '0' then
    -- From the end of the lease, where the clock is past it: it may have jumped.
    -- No attempt is called '-', so nobody can extend what stays.
    local t, ms = call('TIME'), tonumber(stay)
    e, i = math.min(t[1] * 1000 + math.floor(t[2] / 1000), e) + ms, '-'
    idle = int(ms + tonumber(idle))
  else
    e = 0
    if buried ~= '0' then i = '' end -- the tombstone says it
  end
end
if waited then
  local quits = wait and wait ~= '' and (not ticket or ticket == '')
  if quits then
    queues().leave(resource, wait)
  elseif mine and wait and wait ~= '' then
    queues().rejoin(resource, wait, ticket)
  end
  first = queues().heads(resource)
  if #first == 0 then
    waited, changed = false, true
  elseif ended then
    local t = call('TIME')
    z = math.min(t[1] * 1000 + math.floor(t[2] / 1000), expiry) -- no later than the lease's end, as above
  elseif not quits or (i ~= '' and e > 0) then
    first = nil -- an attempt that failed, or one of many that wait
  end
end
if mine and f == 0 and d == '' and r == '' and stay == '0' and not waited then
  call('DEL', resource)
elseif mine and ballot == 0 then
  press(tombstone, resource, packed(e, f, p, i, r, u, c, d), 'PX', idle)
elseif mine or changed then
  press(tombstone, resource, packed(e, f, p, i, r, u, c, d), 'KEEPTTL')
end
if buried ~= '0' then call('SET', tombstone, '1', 'PX', buried) end
if first then queues().wake(resource, first) end
return mine and 'OK' or again and 'AGAIN' or over and 'REVOKED' or 'GONE'
