-- Calls what the other scripts call, but INFO, and leaves nothing behind: whoever may run it may run them.
-- KEYS 1 a key under the prefix that nothing else uses
-- Replies  OK
redis.call('TIME')
redis.call('HSET', KEYS[1], 'p', '1')
redis.call('HMGET', KEYS[1], 'p')
redis.call('PEXPIRE', KEYS[1], '1000')
redis.call('HDEL', KEYS[1], 'p')
redis.call('EXISTS', KEYS[1])
redis.call('SET', KEYS[1], '1', 'XX', 'PX', '1000') -- XX: only over a key that exists, which this one does not any more
return 'OK'
