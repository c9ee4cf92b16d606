-- Grants the resource to the attempt if no attempt holds it and no completion is recorded.
-- proposed: token that the client proposes, the same to all nodes, so that they agree in one round (its wall clock, us)
-- settle = grant despite a record, and show the record, so that the client can complete it
-- carried: texts of the holder, shown to the callers that it keeps waiting and to Inspect; '' = none
-- channel: notifies a call that waits ("<how> <channel>", see queue.lua); '' = the call does not wait
-- wait: name of the call in the queue, '' = that of this attempt   ticket: when the call began (client wall clock, us)
-- place in the queue, from 1; 0 = the call does not wait, or the queue cannot take it
-- Replies  OK now token expiry memory [ballot rest origin result]   HELD now rest owner place [carried]
--          RESERVED now rest place   DONE now ballot rest origin result
--          QUARANTINED now rest [ballot rest origin result]
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
  -- A repeated request. A lease that a renewal brought back, or that is over, is not a grant.
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
-- The next turn belongs to an attempt whose renewal was refused here.
if r ~= '' and r ~= id and now < u then return 'HELD ' .. clock .. ' ' .. int(u - now) .. ' ' .. r .. ' 0' end
local before, place = 0, 0
if waited then
  if i ~= '' and e > z then z = e end -- the lease or the cooldown ran out
  if waits then place = queues().join(resource, tombstone, wait, ticket, maxttl) end
  before = place > 0 and place - 1 or queues().length(resource)
  local rest = z + math.min(before, ahead) * turn - now
  -- A rest longer than all turns does not count: the clock was set back after the hold ended.
  if before > 0 and 0 < rest and rest <= ahead * turn then return 'RESERVED ' .. clock .. ' ' .. int(rest) .. ' ' .. place end
end
if call('EXISTS', tombstone) == 1 then return 'TOMBSTONE ' .. clock end
-- The token is near this clock, except that it always exceeds the counter.
local token = proposed
if token > latest then token = latest elseif token < earliest then token = earliest end
if token <= f then token = f + 1 end
if claimed then used() end
due[resource] = nil -- taken again: notify no waiter
if waited then
  if before > 0 and z > 0 then queues().pass(resource, before) end -- their turns are over
  if waits then queues().leave(resource, wait) end
end
call('SET', resource, packed(now + lease, token, f, id, '', 0, carried, d),
  'PX', life(now + lease, token, kept))
return 'OK ' .. clock .. ' ' .. int(token) .. ' ' .. ends(lease) .. ' ' .. memory .. shown
