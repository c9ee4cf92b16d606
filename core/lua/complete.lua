-- Accepts a completion record and ends the attempt, in one step.
-- ARGV at+1 ballot
--      at+2 what the node remembered when it last vouched for the attempt, '-' = it did not
--      at+3 keep the record for (ms)  at+4 token that completed  at+5 life of the tombstone (ms)
--      at+6 '1' = the record is known to be decided  at+7 result
-- Replies  OK now   DONE now ballot rest origin: a record with a greater ballot stands   LOST now
--          FORGOT now: the node may have forgotten a greater promise   WAIT now
--          CLOCK us | REPLICA now | NOGUARD now
local function complete(resource, tombstone, id, lease, at)
  local ballot, decided = tonumber(ARGV[at + 1]), ARGV[at + 6] == '1'
  load(resource)
  local accepted, kept, origin = record(now)
  local others = i ~= '' and i ~= id and now <= e
  local life, changed
  -- However it ends, the attempt is over here: a late request of it must not take the resource.
  local function over(reply)
    -- A spent owner goes too: its write-back must not count on a node that accepted past it.
    if i ~= '' and (i == id or reply == 'OK ' and not others) then e, i, c, p, changed = 0, '', '', -1, true end
    if r == id then r, u, changed = '', 0, true end
    if life then keep(resource, life, kept) elseif changed then press(resource, nil, tombstone) end
    redis.call('SET', tombstone, '1', 'PX', ARGV[at + 5])
    return reply .. clock
  end
  if accepted > ballot then return over('DONE ') .. ' ' .. int(accepted) .. ' ' .. int(kept - now) .. ' ' .. int(origin) end
  local retention = tonumber(ARGV[at + 3])
  if accepted == ballot then
    -- Again: who is told only now that it is recorded is promised all of the retention.
    if now + retention <= kept then return over('OK ') end
    d = struct.pack('<ddd', ballot, now + retention, origin) .. string.sub(d, 25)
  else
    if not decided then
      if others or f > ballot then return over('LOST ') end
      if doubled then return 'WAIT ' .. clock end
      -- Whoever owns the resource: it may be a snapshot that says so.
      if ARGV[at + 2] ~= memory then return over('FORGOT ') end
    end
    f = math.max(f, ballot)
    d = struct.pack('<ddd', ballot, now + retention, tonumber(ARGV[at + 4])) .. ARGV[at + 7]
    used()
  end
  kept = now + retention
  life = math.max(idle, others and e - now + slack or 0)
  return over('OK ')
end
