-- Runs the body of a Script unless the store has seen a greater fencing token.
-- KEYS: the key of the token; the keys of the body.
-- ARGV: the token; how old a token may be to make a new key, in microseconds; how long that key lives, in
-- milliseconds; the arguments of the body.
-- Returns one of
--   {'stale', the greater token}
--   {'old'}: there is no key of the token, and the token is too old to make one
--   {'evicts', the policy}: there is no key of the token, and Redis may have evicted it
--   {'foreign'}: the key of the token has something else
--   {'written', what the body returns}
local key, token = KEYS[1], tonumber(ARGV[1])

local seen = redis.call('GET', key)
if seen then
	if not string.match(seen, '^%d+$') then return {'foreign'} end
	if tonumber(seen) > token then return {'stale', seen} end
else
	local now = redis.call('TIME')
	if token < now[1] * 1000000 + now[2] - tonumber(ARGV[2]) then return {'old'} end

	local memory = redis.call('INFO', 'memory')
	local policy = string.match(memory, 'maxmemory_policy:([%w-]+)')
	local isBounded = not string.match(memory, 'maxmemory:0%s')
	if isBounded and policy and policy ~= 'noeviction' then return {'evicts', policy} end
end

-- The token comes first: if the body fails halfway, its writes have their token.
redis.call('SET', key, ARGV[1], 'PX', ARGV[3])

local keys, args = {}, {}
for i = 2, #KEYS do keys[i - 1] = KEYS[i] end
for i = 4, #ARGV do args[i - 3] = ARGV[i] end
local result = (function(KEYS, ARGV)
--BODY
end)(keys, args)
return {'written', result}
