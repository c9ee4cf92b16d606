-- Ends an attempt in its holder's stead: whatever it still sends is refused.
-- KEYS 1 resource  2 tombstone of the attempt
-- ARGV 1 attempt  2 life of the tombstone (ms)  3 life of an idle fencing counter (ms)  4 the attempt's fencing token
-- Replies  ENDED rest: the attempt had the resource, for so long   GONE = it did not have it
local e, f, p, i, r, u, c, d = load(KEYS[1])
local t = call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local ended, rest, first = i == ARGV[1] and e > 0, 0, nil
if ended then
  rest = math.max(e + 1 - now, 0)
  local ms = tonumber(ARGV[3]) + rest
  p, c = -1, ''
  f = math.max(f, tonumber(ARGV[4])) + 1 -- as if somebody had been granted it since: no completion counts here any more
  i = '-' -- no attempt is called that, so nobody can extend what stays
  if waited then
    z = math.min(now, e)
    first = queues().heads(KEYS[1])
    waited = #first > 0
  end
  if r == ARGV[1] then r, u = '', 0 end
  local ballot, kept = 0, 0
  if d ~= '' then ballot, kept = record(d) end
  if kept + 7200000 - now > ms then ms = kept + 7200000 - now end
  press(KEYS[2], KEYS[1], packed(e, f, p, i, r, u, c, d), 'PX', int(ms))
elseif r == ARGV[1] then
  call('SET', KEYS[1], packed(e, f, p, i, '', 0, c, d), 'KEEPTTL')
end
call('SET', KEYS[2], 'r', 'PX', ARGV[2]) -- by which renewals and releases know of it
if first then queues().wake(KEYS[1], first) end
return ended and 'ENDED ' .. int(rest) or 'GONE'
