-- Grants the resource to the attempt where nobody holds it and nothing is recorded as done.
-- ARGV 9 '1' = grant although a record stands, and show it, to settle it
--      10 what the holder carries: shown to those it keeps waiting; missing = nothing
-- Replies  OK now token expiry history [ballot rest origin result]   HELD now rest owner [carried]
--          DONE now ballot rest origin result   QUARANTINED now rest
--          CLOCK us | REPLICA now | NOGUARD now | TOMBSTONE now | OVERFLOW now
if now < quarantine then return 'QUARANTINED ' .. int(now) .. ' ' .. int(quarantine - now) end
local r = redis.call('HMGET', KEYS[1], 'e', 'i', 'f', 'd', 'c')
local e, f = tonumber(r[1] or 0), tonumber(r[3] or 0)
local ballot, kept, origin, result = record(r[4])
local shown = ''
if ballot > 0 then shown = ' ' .. int(ballot) .. ' ' .. int(kept - now) .. ' ' .. origin .. ' ' .. result end
if r[2] == id then return 'OK ' .. int(now) .. ' ' .. int(f) .. ' ' .. int(e) .. ' ' .. history .. shown end
if r[2] and now <= e then
  -- Only what this owner brought along: c may be older than i.
  local own = r[2] .. ' '
  local carried = string.sub(r[5] or '', 1, #own) == own and r[5] or r[2]
  return 'HELD ' .. int(now) .. ' ' .. int(e + 1 - now) .. ' ' .. carried
end
if ballot > 0 and ARGV[9] ~= '1' then return 'DONE ' .. int(now) .. shown end
if redis.call('EXISTS', KEYS[2]) == 1 then return 'TOMBSTONE ' .. int(now) end
local clamp = maxttl * 250
local token = math.max(f + 1, us - clamp, math.min(us + clamp, wall))
if token >= 9007199254740992 then return 'OVERFLOW ' .. int(now) end
e = now + lease
if ARGV[10] then
  redis.call('HSET', KEYS[1], 'e', int(e), 'i', id, 'f', int(token), 'c', id .. ' ' .. ARGV[10])
else
  redis.call('HSET', KEYS[1], 'e', int(e), 'i', id, 'f', int(token))
end
keep(lease + slack, math.max(kept, math.floor(token / 1000) + fencettl))
return 'OK ' .. int(now) .. ' ' .. int(token) .. ' ' .. int(e) .. ' ' .. history .. shown
