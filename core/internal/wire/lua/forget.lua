-- Drops a completion record.
-- KEYS 1 resource
-- ARGV 1 fencing token of the lease that completed
-- Replies  OK = dropped   NONE = there is no record here   OTHER = the record is that of another lease
local e, f, p, i, r, u, c, d = load(KEYS[1])
if d == '' then return 'NONE' end
local _, kept, origin = record(d)
if origin ~= tonumber(ARGV[1]) then
  local t = call('TIME')
  now = t[1] * 1000 + math.floor(t[2] / 1000)
  return now < kept and 'OTHER' or 'NONE'
end
-- Also drops a record that looks expired: this clock may be ahead, and right again later.
press(KEYS[1] .. 'x', KEYS[1], packed(e, f, p, i, r, u, c, ''), 'KEEPTTL')
return 'OK'
