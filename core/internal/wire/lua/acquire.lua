-- Grants the resource to the attempt where nobody holds it and nothing is recorded as done.
-- proposed: token that the client proposes, the same to all nodes: so they agree in one round (its wall clock, us)
-- settle = grant although a record stands, and show it, to settle it
-- carried by the holder: shown to those it keeps waiting, and to who looks; '' = nothing
-- channel: of a call that waits, to be woken ("<how> <channel>", see queue.lua); '' = it does not wait
-- wait: what it is called, '' = as this attempt   ticket: when it began (client wall clock, us)
-- place in the queue: the first is 1, 0 = it does not wait, or the queue cannot take it
-- Replies  OK now token expiry memory [ballot rest origin result]   HELD now rest owner place [carried]
--          RESERVED now rest place   DONE now ballot rest origin result   QUARANTINED now rest [ballot rest origin result]
--          CLOCK us | REPLICA now | NOGUARD now | TOMBSTONE now | LOST now
local e, f, p, i, r, u, c, d = load(resource)
local ballot, kept, shown = 0, 0, ''
if d ~= '' then
  local origin, result
  ballot, kept, origin, result = record(d)
  if now < kept then
    shown = ' ' .. int(ballot) .. ' ' .. int(kept - now) .. ' ' .. int(origin) .. ' ' .. result
  else
    ballot, kept = 0, 0
  end
end
if now < quarantine then return 'QUARANTINED ' .. clock .. ' ' .. int(quarantine - now) .. shown end
if i == id then
  -- The request arrives again.  What a renewal brought back, or what is spent, is no grant.
  if p >= 0 and now <= e then return 'OK ' .. clock .. ' ' .. int(f) .. ' ' .. int(e) .. ' ' .. memory .. shown end
  return 'LOST ' .. clock
end
local held, waits = i ~= '' and now <= e, channel ~= ''
if waits and (held or waited) then
  if wait == '' then wait, ticket = id, proposed end
  wait, ticket = channel .. ' ' .. wait, int(ticket)
end
if held then
  local place = waits and queues().join(resource, tombstone, wait, ticket, maxttl) or 0
  if place > 0 and not waited then
    waited = true
    call('SET', resource, packed(e, f, p, i, r, u, c, d), 'KEEPTTL')
  end
  return 'HELD ' .. clock .. ' ' .. int(e + 1 - now) .. ' ' .. i .. ' ' .. place .. (c ~= '' and ' ' .. c or '')
end
if ballot > 0 and not settle then return 'DONE ' .. clock .. shown end
if r ~= '' and r ~= id and now < u then return 'HELD ' .. clock .. ' ' .. int(u - now) .. ' ' .. r .. ' 0' end
local before, place = 0, 0
if waited then
  if i ~= '' and e > z then z = e end -- nobody released it
  if waits then place = queues().join(resource, tombstone, wait, ticket, maxttl) end
  before = place > 0 and place - 1 or queues().length(resource)
  local rest = z + math.min(before, ahead) * turn - now
  -- Never for longer than all turns take: the clock may have been set back since the hold ended.
  if before > 0 and 0 < rest and rest <= ahead * turn then return 'RESERVED ' .. clock .. ' ' .. int(rest) .. ' ' .. place end
end
if call('EXISTS', tombstone) == 1 then return 'TOMBSTONE ' .. clock end
local token = proposed
if token > latest then token = latest elseif token < earliest then token = earliest end
if token <= f then token = f + 1 end
if claimed then used() end
due[resource] = nil -- it is free no more
if waited then
  if before > 0 and z > 0 then queues().pass(resource, before) end -- their turns are over
  if waits then queues().leave(resource, wait) end
end
call('SET', resource, packed(now + lease, token, f, id, '', 0, carried, d),
  'PX', life(now + lease, token, kept))
return 'OK ' .. clock .. ' ' .. int(token) .. ' ' .. ends(lease) .. ' ' .. memory .. shown
