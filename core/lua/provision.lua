-- Declares a node without a guard record to be new: it votes at once.
-- KEYS 1 guard record   ARGV 1 longest lease in use (ms)   Replies  OK | KNOWN | REPLICA | NOGUARD
local info = redis.call('INFO', 'replication')
local h = string.match(info, 'master_replid:(%x+)')
if not h then return 'NOGUARD' end
if not string.find(info, 'role:master', 1, true) then return 'REPLICA' end
if redis.call('EXISTS', KEYS[1]) == 1 then return 'KNOWN' end
redis.call('HSET', KEYS[1], 'h', h, 'q', '0', 'm', ARGV[1])
return 'OK'
