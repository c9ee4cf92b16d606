-- Calls what the other scripts call, but INFO, and leaves nothing behind: whoever may run it may run them.
-- What only waiting calls may be denied: without it, who waits polls.
-- KEYS 1 a key under the prefix that nothing else uses
-- ARGV 1 how to publish  2 a channel under the prefix that nobody listens to
-- Replies  OK, and each command that only waiting calls and that is denied
local key, reply = KEYS[1], 'OK'
local function try(command, ...)
  local got = redis.pcall(command, ...)
  if type(got) == 'table' and got.err then reply = reply .. ' ' .. string.lower(command) end
end
redis.call('DEL', key) -- what a probe left that could not be finished
redis.call('TIME')
redis.call('HSET', key, 'p', '1')
redis.call('HMGET', key, 'p')
redis.call('HDEL', key, 'p')
try('ZADD', key, '1', 'p')
try('ZCARD', key)
try('ZRANK', key, 'p')
try('ZRANGE', key, '0', '0')
try('ZREMRANGEBYRANK', key, '1', '1')
try('ZREM', key, 'p')
try(ARGV[1], ARGV[2], '')
try('PING')
redis.call('SET', key, '1', 'PX', '1000')
redis.call('GET', key)
redis.call('EXISTS', key)
redis.call('PEXPIRE', key, '0')
return reply
