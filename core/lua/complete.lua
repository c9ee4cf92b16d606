-- Accepts a completion record and ends the attempt, in one step.
-- ARGV 9 ballot  10 expiry this node last confirmed (server ms, 0 = never)  11 keep the record for (ms)
--      12 token that completed  13 life of the tombstone (ms)  14 '1' = the record is known to be decided
--      15 result
-- Replies  OK now   LOST now   QUARANTINED now rest   CLOCK us ...
local ballot = tonumber(ARGV[9])
local r = redis.call('HMGET', KEYS[1], 'e', 'i', 'f', 'd')
local e, f = tonumber(r[1] or 0), tonumber(r[3] or 0)
local accepted, kept = record(r[4])
local held = r[2] and r[2] ~= id and now <= e
if accepted > ballot then return 'LOST ' .. int(now) end
if accepted < ballot then
  if ARGV[14] ~= '1' then
    if held or f > ballot then
      if r[2] == id then redis.call('HDEL', KEYS[1], 'e', 'i', 'c') end
      return 'LOST ' .. int(now)
    end
    if r[2] ~= id and now >= tonumber(ARGV[10]) and now < quarantine then
      return 'QUARANTINED ' .. int(now) .. ' ' .. int(quarantine - now)
    end
  end
  kept = now + tonumber(ARGV[11])
  f = math.max(f, ballot)
  redis.call('HSET', KEYS[1], 'f', int(f), 'd', int(ballot) .. ' ' .. int(kept) .. ' ' .. ARGV[12] .. ' ' .. ARGV[15])
  keep(math.max(fencettl, held and e - now + slack or 0), kept)
end
-- A spent owner goes too: its write-back must not count on a node that accepted past it.
if not held then redis.call('HDEL', KEYS[1], 'e', 'i', 'c') end
redis.call('SET', KEYS[2], '1', 'PX', ARGV[13])
return 'OK ' .. int(now)
