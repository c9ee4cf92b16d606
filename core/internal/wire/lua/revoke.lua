-- Ends an attempt of another process: its later requests are refused. An attempt that a release has ended here stays
-- released.
-- KEYS 1 resource  2 tombstone of the attempt
-- ARGV 1 attempt  2 life of the tombstone (ms)  3 life of an idle fencing counter (ms)
-- Replies  ENDED rest: the attempt had the resource, which stays taken for (ms)   GONE = it did not have it
local e, f, p, i, r, u, c, d = load(KEYS[1])
idle = tonumber(ARGV[3])
local t = call('TIME')
now = t[1] * 1000 + math.floor(t[2] / 1000)
local ended, rest, first = i == ARGV[1] and e > 0, 0, nil
local released = i == ARGV[1] and e == 0 or i == '~' .. ARGV[1]
if ended then
  rest = math.max(e + 1 - now, 0)
  p, c = -1, ''
  i = '~' -- no attempt has this name, so none can extend it
  if waited then
    z = math.min(now, e)
    first = queues().heads(KEYS[1])
    waited = #first > 0
  end
end
local turned = r == ARGV[1]
if turned then r, u = '', 0 end
if ended then
  local _, kept = 0, 0
  if d ~= '' then _, kept = record(d) end
  press(KEYS[2], KEYS[1], packed(e, f, p, i, r, u, c, d), 'PX', life(e, f, kept))
elseif turned then
  press(KEYS[2], KEYS[1], packed(e, f, p, i, r, u, c, d), 'KEEPTTL')
end
local tomb = released and RELEASED or call('GET', KEYS[2])
press(KEYS[2], KEYS[2], tomb == RELEASED and RELEASED or REVOKED, 'PX', ARGV[2])
if first then queues().wake(KEYS[1], first) end
return ended and 'ENDED ' .. int(rest) or 'GONE'
