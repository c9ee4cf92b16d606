-- Ends an attempt: a tombstone always, so that a late request of it cannot take the resource again.
-- KEYS 1 resource  2 tombstone   ARGV 1 attempt id  2 life of the tombstone (ms)  3 keep the resource taken for (ms)
--      4 drop a record with a smaller ballot (0 = none)  5 life of an idle fencing counter (ms)
--      6 '1' = nobody has seen the attempt's token: put the counter back
-- Replies  OK = it was ours   AGAIN = this attempt was over here already   GONE = it was not ours
local v = redis.call('HMGET', KEYS[1], 'i', 'd', 'p', 'r', 'e')
local ballot = tonumber(string.match(v[2] or '', '^%d+') or 0)
if ballot > 0 and ballot < tonumber(ARGV[4]) then
  redis.call('HDEL', KEYS[1], 'd')
  ballot = 0
end
local mine = v[1] == ARGV[1]
local again = not mine and redis.call('EXISTS', KEYS[2]) == 1
local stay = tonumber(ARGV[3])
-- First, because a server that is out of memory refuses the tombstone, unless the script has written before.
if mine and stay <= 0 then
  local before = ARGV[6] == '1' and v[3] and math.max(tonumber(v[3]), ballot)
  if before and before > 0 then redis.call('HSET', KEYS[1], 'f', string.format('%.0f', before)) end
  redis.call('HDEL', KEYS[1], 'e', 'i', 'c', 'p', before == 0 and 'f' or 'p')
end
if v[4] == ARGV[1] then redis.call('HDEL', KEYS[1], 'r', 'u') end
redis.call('SET', KEYS[2], '1', 'PX', ARGV[2])
if not mine then return again and 'AGAIN' or 'GONE' end
if stay > 0 then
  local t = redis.call('TIME')
  -- From the end of the lease, where the clock is past it: it may have jumped.
  local from = math.min(t[1] * 1000 + math.floor(t[2] / 1000), tonumber(v[5] or 0))
  -- No attempt is called '-', so nobody can extend what stays.
  redis.call('HSET', KEYS[1], 'i', '-', 'e', string.format('%.0f', from + stay))
end
if ballot == 0 then redis.call('PEXPIRE', KEYS[1], string.format('%.0f', stay + tonumber(ARGV[5]))) end
return 'OK'
