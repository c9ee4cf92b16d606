-- Ends an attempt.  Without a tombstone its owner stays, spent, so that its end is known when it is told again.
-- It looks at neither clock window nor guard, so it needs no head.
-- ARGV at+1 life of the tombstone (ms), 0 = none: all requests of the attempt have been answered
--      at+2 keep the resource taken for (ms)
--      at+3 drop a record with a smaller ballot (0 = none)  at+4 life of an idle fencing counter (ms)
--      at+5 '1' = nobody has seen the attempt's token: put the counter back
-- Replies  OK = it was ours   AGAIN = this attempt was over here already   GONE = it was not ours
local function release(resource, tombstone, id, lease, at)
  load(resource)
  local ballot = d ~= '' and struct.unpack('<d', d) or 0
  local changed = false
  if ballot > 0 and ballot < tonumber(ARGV[at + 3]) then d, ballot, changed = '', 0, true end
  if r == id then r, u, changed = '', 0, true end
  local mine = i == id and e > 0
  local again = not mine and (i == id or redis.call('EXISTS', tombstone) == 1)
  local stay, idle = tonumber(ARGV[at + 2]), tonumber(ARGV[at + 4])
  if mine then
    if ARGV[at + 5] == '1' and p >= 0 then f = math.max(p, ballot) end
    if stay > 0 then
      -- From the end of the lease, where the clock is past it: it may have jumped.
      -- No attempt is called '-', so nobody can extend what stays.
      local t = redis.call('TIME')
      e, i = math.min(t[1] * 1000 + math.floor(t[2] / 1000), e) + stay, '-'
    else
      e = 0
      if ARGV[at + 1] ~= '0' then i = '' end -- the tombstone says it
    end
    p, c = -1, ''
  end
  local life = mine and ballot == 0 and stay + idle or nil
  if mine and f == 0 and d == '' and r == '' and stay <= 0 then
    redis.call('DEL', resource)
  elseif mine or changed then
    press(resource, life, tombstone)
  end
  if ARGV[at + 1] ~= '0' then redis.call('SET', tombstone, '1', 'PX', ARGV[at + 1]) end
  return mine and 'OK' or again and 'AGAIN' or 'GONE'
end
