-- Grants the resource to the attempt where nobody holds it and nothing is recorded as done.
-- ARGV at+1 '1' = grant although a record stands, and show it, to settle it
--      at+2 token that the client proposes, the same to all nodes: so they agree in one round (its wall clock, us)
--      at+3 what the holder carries: shown to those it keeps waiting; empty or missing = nothing
-- Replies  OK now token expiry memory [ballot rest origin result]   HELD now rest owner [carried]
--          DONE now ballot rest origin result   QUARANTINED now rest [ballot rest origin result]
--          CLOCK us | REPLICA now | NOGUARD now | TOMBSTONE now | LOST now | OVERFLOW now
local function acquire(resource, tombstone, id, lease, at)
  local v = redis.call('HMGET', resource, 'e', 'i', 'f', 'd', 'c', 'p', 'r', 'u')
  local e, i, f = tonumber(v[1] or 0), v[2], tonumber(v[3] or 0)
  local ballot, kept, origin, result = record(v[4])
  local shown = ''
  if ballot > 0 then shown = ' ' .. int(ballot) .. ' ' .. int(kept - now) .. ' ' .. origin .. ' ' .. result end
  if now < quarantine then return 'QUARANTINED ' .. clock .. ' ' .. int(quarantine - now) .. shown end
  if i == id then
    -- The request arrives again.  What a renewal brought back, or what is spent, is no grant.
    if v[6] and now <= e then return 'OK ' .. clock .. ' ' .. int(f) .. ' ' .. int(e) .. ' ' .. memory .. shown end
    return 'LOST ' .. clock
  end
  if i and now <= e then
    -- Only what this owner brought along: c may be older than i.
    local own = i .. ' '
    local carried = string.sub(v[5] or '', 1, #own) == own and v[5] or i
    return 'HELD ' .. clock .. ' ' .. int(e + 1 - now) .. ' ' .. carried
  end
  if ballot > 0 and ARGV[at + 1] ~= '1' then return 'DONE ' .. clock .. shown end
  local turn = tonumber(v[8] or 0)
  if v[7] and v[7] ~= id and now < turn then return 'HELD ' .. clock .. ' ' .. int(turn - now) .. ' ' .. v[7] end
  if redis.call('EXISTS', tombstone) == 1 then return 'TOMBSTONE ' .. clock end
  local clamp = maxttl * 250
  local token = math.max(f + 1, us - clamp, math.min(us + clamp, tonumber(ARGV[at + 2])))
  if token >= 9007199254740992 then return 'OVERFLOW ' .. clock end
  e = now + lease
  if (ARGV[at + 3] or '') ~= '' then
    redis.call('HSET', resource, 'e', int(e), 'i', id, 'f', int(token), 'p', int(f), 'c', id .. ' ' .. ARGV[at + 3])
  else
    redis.call('HSET', resource, 'e', int(e), 'i', id, 'f', int(token), 'p', int(f))
  end
  if v[7] then redis.call('HDEL', resource, 'r', 'u') end
  used()
  keep(resource, math.max(lease + slack, math.floor(token / 1000) + idle - now), kept)
  return 'OK ' .. clock .. ' ' .. int(token) .. ' ' .. int(e) .. ' ' .. memory .. shown
end
