-- Calls what the other scripts call, except INFO, and leaves nothing behind: a user that may run it may run them.
-- KEYS 1 a key under the prefix that nothing else uses
-- ARGV 1 the command that publishes  2 a channel under the prefix that has no subscriber
-- Replies  OK, and each denied command, followed by '~' if the key is denied, by '&' if the channel is
--          or the server's error if no command is denied and one fails
--          or 'LUA' as an error, and what scripts call that the server's Lua lacks or has in another form
local lacks = ''
local function need(what, f)
  local has, got = pcall(f)
  if has and got then return '' end
  return ' ' .. what
end
lacks = lacks .. need('error', function() return error end)
lacks = lacks .. need('ipairs', function() return ipairs end)
lacks = lacks .. need('pairs', function() return pairs end)
lacks = lacks .. need('tonumber', function() return tonumber end)
lacks = lacks .. need('tostring', function() return tostring end)
lacks = lacks .. need('type', function() return type end)
lacks = lacks .. need('unpack', function() return unpack end)
lacks = lacks .. need('string.byte', function() return string.byte end)
lacks = lacks .. need('string.find', function() return string.find end)
lacks = lacks .. need('string.format', function() return string.format end)
lacks = lacks .. need('string.gsub', function() return string.gsub end)
lacks = lacks .. need('string.lower', function() return string.lower end)
lacks = lacks .. need('string.match', function() return string.match end)
lacks = lacks .. need('string.sub', function() return string.sub end)
lacks = lacks .. need('math.abs', function() return math.abs end)
lacks = lacks .. need('math.floor', function() return math.floor end)
lacks = lacks .. need('math.max', function() return math.max end)
lacks = lacks .. need('math.min', function() return math.min end)
lacks = lacks .. need('struct.pack', function() return struct.pack end)
lacks = lacks .. need('struct.unpack', function() return struct.unpack end)
lacks = lacks .. need('redis.call', function() return redis.call end)
lacks = lacks .. need('redis.pcall', function() return redis.pcall end)
lacks = lacks .. need('pack', function()
  local text = struct.pack('<Bddc0', 3, 9007199254740991, -1, 'abc') .. '\002xy'
  local mark, most, least, rest = struct.unpack('<Bdd', text)
  local name, at = struct.unpack('<Bc0', text, rest + 3)
  return mark == 3 and most == 9007199254740991 and least == -1 and rest == 18 and name == 'xy' and at == #text + 1
end)
if lacks ~= '' then return {err = 'LUA lacks' .. lacks} end
local key, denied, failure = KEYS[1], '', nil
local function try(command, ...)
  local got = redis.pcall(command, ...)
  local err = type(got) == 'table' and got.err
  if not err then return end
  local refused = string.find(err, 'user executing the script', 1, true) or string.find(err, 'ACL failure', 1, true)
    or string.find(err, '^NOPERM') or string.find(string.lower(err), 'unknown .*command')
  if not refused then
    failure = failure or string.gsub(err, '^@?user_script: ?%d+: %-?', '')
    return
  end
  local of = ''
  if string.find(err, 'access .* ?key') then of = '~' elseif string.find(err, 'channel', 1, true) then of = '&' end
  denied = denied .. ' ' .. string.lower(command) .. of
end
try('DEL', key) -- left by a probe that was cut short
try('TIME')
try('ZADD', key, '1', 'p')
try('ZCARD', key)
try('ZRANK', key, 'p')
try('ZRANGE', key, '0', '0')
try('ZREMRANGEBYRANK', key, '1', '1')
try('ZREM', key, 'p')
try(ARGV[1], ARGV[2], '')
try('PING')
try('SET', key, '1', 'PX', '1000')
try('GET', key)
try('MGET', key)
try('EXISTS', key)
try('PEXPIRE', key, '0')
if failure and denied == '' then return {err = failure} end
return 'OK' .. denied
