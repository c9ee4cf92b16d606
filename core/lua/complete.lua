-- Accepts a completion record and ends the attempt, in one step.
-- ARGV at+1 ballot
--      at+2 what the node remembered when it last vouched for the attempt, '-' = it did not
--      at+3 keep the record for (ms)  at+4 token that completed  at+5 life of the tombstone (ms)
--      at+6 '1' = the record is known to be decided  at+7 result
-- Replies  OK now   DONE now ballot rest origin: a record with a greater ballot stands   LOST now
--          FORGOT now: the node may have forgotten a greater promise   WAIT now
--          CLOCK us | REPLICA now | NOGUARD now
local function complete(resource, tombstone, id, lease, at)
  local ballot, decided = tonumber(ARGV[at + 1]), ARGV[at + 6] == '1'
  local v = redis.call('HMGET', resource, 'e', 'i', 'f', 'd', 'r')
  local e, i, f = tonumber(v[1] or 0), v[2], tonumber(v[3] or 0)
  local accepted, kept, origin, result = record(v[4])
  local others = i and i ~= id and now <= e
  -- However it ends, the attempt is over here: a late request of it must not take the resource.
  local function over(reply)
    -- A spent owner goes too: its write-back must not count on a node that accepted past it.
    if i == id or reply == 'OK ' and not others then redis.call('HDEL', resource, 'e', 'i', 'c', 'p') end
    if v[5] == id then redis.call('HDEL', resource, 'r', 'u') end
    redis.call('SET', tombstone, '1', 'PX', ARGV[at + 5])
    return reply .. clock
  end
  if accepted > ballot then return over('DONE ') .. ' ' .. int(accepted) .. ' ' .. int(kept - now) .. ' ' .. origin end
  if accepted == ballot then
    -- Again: who is told only now that it is recorded is promised all of the retention.
    if now + tonumber(ARGV[at + 3]) > kept then
      kept = now + tonumber(ARGV[at + 3])
      redis.call('HSET', resource, 'd', int(ballot) .. ' ' .. int(kept) .. ' ' .. origin .. ' ' .. result)
      keep(resource, math.max(idle, others and e - now + slack or 0), kept)
    end
  elseif accepted < ballot then
    if not decided then
      if others or f > ballot then return over('LOST ') end
      if doubled then return 'WAIT ' .. clock end
      -- Whoever owns the resource: it may be a snapshot that says so.
      if ARGV[at + 2] ~= memory then return over('FORGOT ') end
    end
    kept = now + tonumber(ARGV[at + 3])
    f = math.max(f, ballot)
    redis.call('HSET', resource, 'f', int(f), 'd', int(ballot) .. ' ' .. int(kept) .. ' ' .. ARGV[at + 4] .. ' ' .. ARGV[at + 7])
    keep(resource, math.max(idle, others and e - now + slack or 0), kept)
    used()
  end
  return over('OK ')
end
