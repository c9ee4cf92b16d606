-- Grants the resource to the attempt where nobody holds it and nothing is recorded as done.
-- ARGV 9 '1' = grant although a record stands, and show it, to settle it
--      10 token that the client proposes, the same to all nodes: so they agree in one round (its wall clock, us)
--      11 what the holder carries: shown to those it keeps waiting; missing = nothing
-- Replies  OK now token expiry memory [ballot rest origin result]   HELD now rest owner [carried]
--          DONE now ballot rest origin result   QUARANTINED now rest [ballot rest origin result]
--          CLOCK us | REPLICA now | NOGUARD now | TOMBSTONE now | LOST now | OVERFLOW now
local v = redis.call('HMGET', KEYS[1], 'e', 'i', 'f', 'd', 'c', 'p', 'r', 'u')
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
if ballot > 0 and ARGV[9] ~= '1' then return 'DONE ' .. clock .. shown end
local turn = tonumber(v[8] or 0)
if v[7] and v[7] ~= id and now < turn then return 'HELD ' .. clock .. ' ' .. int(turn - now) .. ' ' .. v[7] end
if redis.call('EXISTS', KEYS[2]) == 1 then return 'TOMBSTONE ' .. clock end
local clamp = maxttl * 250
local token = math.max(f + 1, us - clamp, math.min(us + clamp, tonumber(ARGV[10])))
if token >= 9007199254740992 then return 'OVERFLOW ' .. clock end
e = now + lease
if ARGV[11] then
  redis.call('HSET', KEYS[1], 'e', int(e), 'i', id, 'f', int(token), 'p', int(f), 'c', id .. ' ' .. ARGV[11])
else
  redis.call('HSET', KEYS[1], 'e', int(e), 'i', id, 'f', int(token), 'p', int(f))
end
if v[7] then redis.call('HDEL', KEYS[1], 'r', 'u') end
if claimed then redis.call('HDEL', KEYS[3], 'n') end
keep(math.max(lease + slack, math.floor(token / 1000) + idle - now), kept)
return 'OK ' .. clock .. ' ' .. int(token) .. ' ' .. int(e) .. ' ' .. memory .. shown
