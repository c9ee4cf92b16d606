-- Declares a node without a guard record to be new: it votes at once.
-- KEYS 1 guard record   ARGV 1 longest lease in use (ms)
-- Replies  OK = it votes   QUARANTINED now rest = it has a record: it does not vote yet   REPLICA | NOGUARD
local info = redis.call('INFO', 'replication')
local h = string.match(info, 'master_replid:(%x+)')
if not h then return 'NOGUARD 0' end
if not string.find(info, 'role:master', 1, true) then return 'REPLICA 0' end
local g = redis.call('HMGET', KEYS[1], 'h', 'q', 'm')
if g[1] then
  local t = redis.call('TIME')
  local now = t[1] * 1000 + math.floor(t[2] / 1000)
  local rest = g[1] == h and (tonumber(g[2]) or 0) - now or tonumber(g[3]) or 0
  if rest <= 0 then return 'OK' end
  return string.format('QUARANTINED %.0f %.0f', now, rest)
end
redis.call('HSET', KEYS[1], 'h', h, 'q', '0', 'm', ARGV[1])
return 'OK'
