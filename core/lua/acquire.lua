-- Grants the resource to the attempt where nobody holds it and nothing is recorded as done.
-- settle '1' = grant although a record stands, and show it, to settle it
-- carried by the holder: shown to those it keeps waiting; '' or nil = nothing
-- ARGV own+1 token that the client proposes, the same to all nodes: so they agree in one round (its wall clock, us)
-- Replies  OK now token expiry memory [ballot rest origin result]   HELD now rest owner [carried]
--          DONE now ballot rest origin result   QUARANTINED now rest [ballot rest origin result]
--          CLOCK us | REPLICA now | NOGUARD now | TOMBSTONE now | LOST now | OVERFLOW now
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
if i ~= '' and now <= e then
  return 'HELD ' .. clock .. ' ' .. int(e + 1 - now) .. ' ' .. i .. (c ~= '' and ' ' .. c or '')
end
if ballot > 0 and settle ~= '1' then return 'DONE ' .. clock .. shown end
if r ~= '' and r ~= id and now < u then return 'HELD ' .. clock .. ' ' .. int(u - now) .. ' ' .. r end
if call('EXISTS', tombstone) == 1 then return 'TOMBSTONE ' .. clock end
local text = ARGV[own + 1]
local proposed = tonumber(text)
local token = proposed
if token > latest then token = latest elseif token < earliest then token = earliest end
if token <= f then token = f + 1 end
if token >= 9007199254740992 then return 'OVERFLOW ' .. clock end
if claimed then used() end
call('SET', resource, packed(now + lease, token, f, id, '', 0, sub(carried or '', 1, 255), d),
  'PX', life(lease + slack, token, kept))
if token ~= proposed then text = int(token) end
return 'OK ' .. clock .. ' ' .. text .. ' ' .. ends(lease) .. ' ' .. memory .. shown
