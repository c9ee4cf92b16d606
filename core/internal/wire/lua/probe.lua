-- Calls what the other scripts call, but INFO, and leaves nothing behind: whoever may run it may run them.
-- KEYS 1 a key under the prefix that nothing else uses
-- ARGV 1 how to publish  2 a channel under the prefix that nobody listens to
-- Replies  OK, and each command that is denied, followed by '~' if it is the key that is denied, by '&' if it is the channel
--          or the server's error where a command is allowed and fails
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
try('DEL', key) -- what a probe left that could not be finished
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
