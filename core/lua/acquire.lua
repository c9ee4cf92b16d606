-- Grants the resource to the attempt where nobody holds it and nothing is recorded as done.
-- ARGV at+1 '1' = grant although a record stands, and show it, to settle it
--      at+2 token that the client proposes, the same to all nodes: so they agree in one round (its wall clock, us)
--      at+3 what the holder carries: shown to those it keeps waiting; empty or missing = nothing
-- Replies  OK now token expiry memory [ballot rest origin result]   HELD now rest owner [carried]
--          DONE now ballot rest origin result   QUARANTINED now rest [ballot rest origin result]
--          CLOCK us | REPLICA now | NOGUARD now | TOMBSTONE now | LOST now | OVERFLOW now
local function acquire(resource, tombstone, id, lease, at)
  load(resource)
  local ballot, kept, origin, result = record(now)
  local shown = ''
  if ballot > 0 then shown = ' ' .. int(ballot) .. ' ' .. int(kept - now) .. ' ' .. int(origin) .. ' ' .. result end
  if now < quarantine then return 'QUARANTINED ' .. clock .. ' ' .. int(quarantine - now) .. shown end
  if i == id then
    -- The request arrives again.  What a renewal brought back, or what is spent, is no grant.
    if p >= 0 and now <= e then return 'OK ' .. clock .. ' ' .. int(f) .. ' ' .. int(e) .. ' ' .. memory .. shown end
    return 'LOST ' .. clock
  end
  if i ~= '' and now <= e then
    return 'HELD ' .. clock .. ' ' .. int(e + 1 - now) .. ' ' .. i .. (c ~= '' and ' ' .. c or '')
  end
  if ballot > 0 and ARGV[at + 1] ~= '1' then return 'DONE ' .. clock .. shown end
  if r ~= '' and r ~= id and now < u then return 'HELD ' .. clock .. ' ' .. int(u - now) .. ' ' .. r end
  if redis.call('EXISTS', tombstone) == 1 then return 'TOMBSTONE ' .. clock end
  local clamp, proposed = maxttl * 250, tonumber(ARGV[at + 2])
  local token = math.max(f + 1, us - clamp, math.min(us + clamp, proposed))
  if token >= 9007199254740992 then return 'OVERFLOW ' .. clock end
  e, i, p, f, r, u, c = now + lease, id, f, token, '', 0, string.sub(ARGV[at + 3] or '', 1, 255)
  used()
  keep(resource, math.max(lease + slack, math.floor(token / 1000) + idle - now), kept)
  return 'OK ' .. clock .. ' ' .. (token == proposed and ARGV[at + 2] or int(token)) .. ' ' .. ends(lease) .. ' ' .. memory .. shown
end
