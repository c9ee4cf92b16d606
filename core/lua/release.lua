-- Ends an attempt: a tombstone always, so that a late request of it cannot take the resource again.
-- It looks at neither clock nor guard, so it needs no head.
-- ARGV at+1 life of the tombstone (ms)  at+2 keep the resource taken for (ms)
--      at+3 drop a record with a smaller ballot (0 = none)  at+4 life of an idle fencing counter (ms)
--      at+5 '1' = nobody has seen the attempt's token: put the counter back
-- Replies  OK = it was ours   AGAIN = this attempt was over here already   GONE = it was not ours
local function release(resource, tombstone, id, lease, at)
  local v = redis.call('HMGET', resource, 'i', 'd', 'r')
  local ballot = v[2] and tonumber(string.match(v[2], '^%d+')) or 0
  if ballot > 0 and ballot < tonumber(ARGV[at + 3]) then
    redis.call('HDEL', resource, 'd')
    ballot = 0
  end
  local mine = v[1] == id
  local again = not mine and redis.call('EXISTS', tombstone) == 1
  local stay = tonumber(ARGV[at + 2])
  -- First, because a server that is out of memory refuses the tombstone, unless the script has written before.
  if mine and stay <= 0 then
    local before = ARGV[at + 5] == '1' and redis.call('HMGET', resource, 'p')[1]
    before = before and math.max(tonumber(before), ballot)
    if before and before > 0 then redis.call('HSET', resource, 'f', int(before)) end
    redis.call('HDEL', resource, 'e', 'i', 'c', 'p', before == 0 and 'f' or 'p')
  end
  if v[3] == id then redis.call('HDEL', resource, 'r', 'u') end
  redis.call('SET', tombstone, '1', 'PX', ARGV[at + 1])
  if not mine then return again and 'AGAIN' or 'GONE' end
  if stay > 0 then
    local t, e = redis.call('TIME'), redis.call('HMGET', resource, 'e')[1]
    -- From the end of the lease, where the clock is past it: it may have jumped.
    local from = math.min(t[1] * 1000 + math.floor(t[2] / 1000), tonumber(e or 0))
    -- No attempt is called '-', so nobody can extend what stays.
    redis.call('HSET', resource, 'i', '-', 'e', int(from + stay))
  end
  if ballot == 0 then
    redis.call('PEXPIRE', resource, stay > 0 and int(stay + tonumber(ARGV[at + 4])) or ARGV[at + 4])
  end
  return 'OK'
end
