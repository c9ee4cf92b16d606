-- Accepts a completion record and ends the attempt, in one step.
-- ARGV 9 ballot  10 what the node remembered when it last vouched for the attempt, '-' = it did not
--      11 keep the record for (ms)  12 token that completed  13 life of the tombstone (ms)
--      14 '1' = the record is known to be decided  15 result
-- Replies  OK now   DONE now ballot rest origin: a record with a greater ballot stands   LOST now
--          FORGOT now: the node may have forgotten a greater promise   WAIT now
--          CLOCK us | REPLICA now | NOGUARD now
local ballot, decided = tonumber(ARGV[9]), ARGV[14] == '1'
local v = redis.call('HMGET', KEYS[1], 'e', 'i', 'f', 'd', 'r')
local e, i, f = tonumber(v[1] or 0), v[2], tonumber(v[3] or 0)
local accepted, kept, origin, result = record(v[4])
local others = i and i ~= id and now <= e
-- However it ends, the attempt is over here: a late request of it must not take the resource.
local function over(reply)
  -- A spent owner goes too: its write-back must not count on a node that accepted past it.
  if i == id or reply == 'OK ' and not others then redis.call('HDEL', KEYS[1], 'e', 'i', 'c', 'p') end
  if v[5] == id then redis.call('HDEL', KEYS[1], 'r', 'u') end
  redis.call('SET', KEYS[2], '1', 'PX', ARGV[13])
  return reply .. clock
end
if accepted > ballot then return over('DONE ') .. ' ' .. int(accepted) .. ' ' .. int(kept - now) .. ' ' .. origin end
if accepted == ballot then
  -- Again: who is told only now that it is recorded is promised all of the retention.
  if now + tonumber(ARGV[11]) > kept then
    kept = now + tonumber(ARGV[11])
    redis.call('HSET', KEYS[1], 'd', int(ballot) .. ' ' .. int(kept) .. ' ' .. origin .. ' ' .. result)
    keep(math.max(idle, others and e - now + slack or 0), kept)
  end
elseif accepted < ballot then
  if not decided then
    if others or f > ballot then return over('LOST ') end
    if doubled then return 'WAIT ' .. clock end
    -- Whoever owns the resource: it may be a snapshot that says so.
    if ARGV[10] ~= memory then return over('FORGOT ') end
  end
  kept = now + tonumber(ARGV[11])
  f = math.max(f, ballot)
  redis.call('HSET', KEYS[1], 'f', int(f), 'd', int(ballot) .. ' ' .. int(kept) .. ' ' .. ARGV[12] .. ' ' .. ARGV[15])
  keep(math.max(idle, others and e - now + slack or 0), kept)
  if claimed then redis.call('HDEL', KEYS[3], 'n') end
end
return over('OK ')
