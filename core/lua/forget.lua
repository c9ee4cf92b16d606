-- Drops a completion record.
-- KEYS 1 resource
-- ARGV 1 fencing token of the lease that completed
-- Replies  OK = dropped   NONE = there is no record here   OTHER = that of another lease
local e, f, p, i, r, u, c, d = load(KEYS[1])
if d == '' then return 'NONE' end
local t = call('TIME')
local _, kept, origin = record(d)
if t[1] * 1000 + math.floor(t[2] / 1000) >= kept then return 'NONE' end
if origin ~= tonumber(ARGV[1]) then return 'OTHER' end
call('SET', KEYS[1], packed(e, f, p, i, r, u, c, ''), 'KEEPTTL')
return 'OK'
