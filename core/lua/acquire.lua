-- Grants the resource to the attempt where nobody holds it and nothing is recorded as done.
-- ARGV at+1 '1' = grant although a record stands, and show it, to settle it
--      at+2 token that the client proposes, the same to all nodes: so they agree in one round (its wall clock, us)
--      at+3 what the holder carries: shown to those it keeps waiting; empty or missing = nothing
-- Replies  OK now token expiry memory [ballot rest origin result]   HELD now rest owner [carried]
--          DONE now ballot rest origin result   QUARANTINED now rest [ballot rest origin result]
--          CLOCK us | REPLICA now | NOGUARD now | TOMBSTONE now | LOST now | OVERFLOW now
local function acquire(resource, tombstone, id, lease, at)
  local v = redis.call('HMGET', resource, 'e', 'i', 'f', 'd', 'r')
  local e, i, f = tonumber(v[1] or 0), v[2], tonumber(v[3] or 0)
  local ballot, kept, shown = 0, 0, ''
  if v[4] then
    local origin, result
    ballot, kept, origin, result = record(v[4])
    if ballot > 0 then shown = ' ' .. int(ballot) .. ' ' .. int(kept - now) .. ' ' .. origin .. ' ' .. result end
  end
  if now < quarantine then return 'QUARANTINED ' .. clock .. ' ' .. int(quarantine - now) .. shown end
  if i == id then
    -- The request arrives again.  What a renewal brought back, or what is spent, is no grant.
    if now <= e and redis.call('HMGET', resource, 'p')[1] then
      return 'OK ' .. clock .. ' ' .. v[3] .. ' ' .. v[1] .. ' ' .. memory .. shown
    end
    return 'LOST ' .. clock
  end
  if i and now <= e then
    -- Only what this owner brought along: c may be older than i.
    local own, carried = i .. ' ', redis.call('HMGET', resource, 'c')[1]
    if string.sub(carried or '', 1, #own) ~= own then carried = i end
    return 'HELD ' .. clock .. ' ' .. int(e + 1 - now) .. ' ' .. carried
  end
  if ballot > 0 and ARGV[at + 1] ~= '1' then return 'DONE ' .. clock .. shown end
  if v[5] and v[5] ~= id then
    local turn = tonumber(redis.call('HMGET', resource, 'u')[1] or 0)
    if now < turn then return 'HELD ' .. clock .. ' ' .. int(turn - now) .. ' ' .. v[5] end
  end
  if redis.call('EXISTS', tombstone) == 1 then return 'TOMBSTONE ' .. clock end
  local clamp, proposed = maxttl * 250, tonumber(ARGV[at + 2])
  local token = math.max(f + 1, us - clamp, math.min(us + clamp, proposed))
  if token >= 9007199254740992 then return 'OVERFLOW ' .. clock end
  local number = token == proposed and ARGV[at + 2] or int(token)
  local expiry = ends(lease)
  if (ARGV[at + 3] or '') ~= '' then
    redis.call('HSET', resource, 'e', expiry, 'i', id, 'f', number, 'p', v[3] or '0', 'c', id .. ' ' .. ARGV[at + 3])
  else
    redis.call('HSET', resource, 'e', expiry, 'i', id, 'f', number, 'p', v[3] or '0')
  end
  if v[5] then redis.call('HDEL', resource, 'r', 'u') end
  used()
  keep(resource, math.max(lease + slack, math.floor(token / 1000) + idle - now), kept)
  return 'OK ' .. clock .. ' ' .. number .. ' ' .. expiry .. ' ' .. memory .. shown
end
