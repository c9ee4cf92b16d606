-- Calls what the other scripts call, but INFO, and leaves nothing behind: whoever may run it may run them.
-- KEYS 1 a key under the prefix that nothing else uses
-- Replies  OK
redis.call('DEL', KEYS[1]) -- what a probe left that could not be finished
redis.call('TIME')
redis.call('HSET', KEYS[1], 'p', '1')
redis.call('HMGET', KEYS[1], 'p')
redis.call('HDEL', KEYS[1], 'p')
redis.call('SET', KEYS[1], '1', 'PX', '1000')
redis.call('GET', KEYS[1])
redis.call('EXISTS', KEYS[1])
redis.call('PEXPIRE', KEYS[1], '0')
return 'OK'
