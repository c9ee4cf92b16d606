-- Runs the requests of a command in their order, each as if it had been sent alone at this instant: clock and guard are read
-- once.  What is plain is done here, without functions; for the rest stands the complete code, which answers the same.
-- KEYS resource of each request, and for some its tombstone; guard, where requests need it
-- ARGV 1, packed as encode.go says: the head, '<Bddddd' 1 = there is a guard; client wall clock (us), clock window (ms, 0 =
--      off), longest lease in use (ms), replica lag (ms), life of an idle fencing counter (ms); with a guard '<Bc0Bc0d' the line
--      of INFO and the guard record (guard.lua) by which the client knows the node, and from when on it votes then (server
--      ms); then groups of requests, each of a kind:
--      'A' '<BddddBc0' how many, clock at least and at most (us), how far a token may be from it (us), lease (ms), its life;
--        of each '<dBc0dc0d' proposed token, attempt, what stands behind it in the resource; and, of a
--        call that waits, '<Bc0Bc0d' of that length: channel, wait, ticket.  KEYS resources, then tombstones
--      'R' the same of renewals; of each '<dBc0ddBc0' token, attempt, expiry confirmed, turn, carried.  KEYS resources
--      'E' '<BBc0' how many releases, life; of each '<Bc0dd' attempt, drop, buried, which is not positive.  KEYS resources
--      'a' 'r' 'e' 'c' 't' are never plain: requests.lua has them
-- Replies  the node's clock, or 1 where it was not read: all requests were granted what they asked for
--          or that, and for each request that was not plain its number and its answer; '-' and the error where it failed
local KEYS, a, call, all, unpack, pack = KEYS, ARGV[1], redis.pcall, unpack, struct.unpack, struct.pack
local sub, byte, find = string.sub, string.byte, string.find
local at, k, q, left, due, complete = 42, 1, 0, 0, {}, nil
local line, known, votes, vouched, fine, now, ends, kind, count, lo, hi, near, lease, life, tomb, values, seen, odd
if byte(a, 1) == 1 then line, known, votes, at = unpack('<Bc0Bc0d', a, 42) end
repeat
  local own = at
  if left == 0 then
    kind, count, values, seen, tomb = byte(a, at), 1, nil, nil, nil
    if kind == 69 then
      count, life, own = unpack('<BBc0', a, at + 1)
    elseif kind == 65 or kind == 82 then
      count, lo, hi, near, lease, life, own = unpack('<BddddBc0', a, at + 1)
      if not us then
        local t = call('TIME')
        us = t[2] and t[1] * 1000000 + t[2]
      end
      fine = not tried and us and us >= lo and us <= hi
      if fine then
        now = (us - us % 1000) / 1000
        ends = now + lease
        if line then
          if vouched == nil then
            vouched = false
            if now >= votes and call('GET', KEYS[#KEYS]) == known then
              local info = call('INFO', 'replication')
              vouched = #info > 26 and byte(info, 21) == 109 and find(info, line, 27, true) -- 109: role:master
            end
          end
          fine = vouched
        end
      end
    else
      own = at + 1
    end
    if count > 1 then values, seen = call('MGET', all(KEYS, k, k + count - 1)), {} end
    left = count
  end
  q, left = q + 1, left - 1
  local resource, plain, v = KEYS[k], false, nil
  if kind < 97 and not tried then
    if seen and not seen[resource] then v = values[count - left] else v = call('GET', resource) end
    if seen then seen[resource] = true end
  end
  if kind == 69 then
    local id
    id, at = unpack('<Bc0', a, own)
    at = at + 16
    if v and #v > 25 then
      local mark, e, f, p, n = unpack('<BdddB', v)
      if mark == 4 and e > 0 and f > 0 and n == #id and find(v, id, 27, true) == 27 and (#v == 26 + n or byte(v, 27 + n) == 0 and byte(v, 36 + n) == #v - 36 - n) then
        plain = not call('SET', resource, pack('<BdddBc0', 4, 0, f, -1, n, id), 'PX', life).err
      end
    end
  elseif kind == 65 then
    local token, id, behind, more
    token, id, behind, more, at = unpack('<dBc0dc0d', a, own)
    at = at + more
    local ok, f = fine and v == false, 0
    if fine and v and #v > 25 then
      local mark, e, p, n
      mark, e, f, p, n = unpack('<BdddB', v)
      ok = mark == 4 and #v == 26 + n and (now > e or n == 0) and token > f and not find(v, id, 27, true)
    end
    if ok and token - us <= near and us - token <= near then
      if not tomb then
        if count == 1 then tomb = call('EXISTS', KEYS[k + 1]) else tomb = call('EXISTS', all(KEYS, k + left + 1, k + left + count)) end
      end
      if tomb == 0 then
        local taken, got = pack('<BdddBc0c0', 4, ends, token, f, #id, id, behind), nil
        -- MGET shows a key of another type as none.
        if v then got = call('SET', resource, taken, 'PX', life) else got = call('SET', resource, taken, 'PX', life, 'NX') end
        plain = got and not got.err
        if plain then due[resource] = nil end -- it is free no more
      end
    end
  elseif kind == 82 then
    local token, id, confirmed, turn, carried
    token, id, confirmed, turn, carried, at = unpack('<dBc0ddBc0', a, own)
    if fine and v and #v > 25 then
      local mark, e, f, p, n = unpack('<BdddB', v)
      if mark == 4 and e > 0 and e <= ends and f <= token and token - us <= near and n == #id and find(v, id, 27, true) == 27
        and (#v == 26 + n or byte(v, 27 + n) == 0 and byte(v, 36 + n) == #v - 36 - n) then
        plain = not call('SET', resource, pack('<Bddd', 4, ends, token, p) .. sub(v, 26), 'PX', life).err
      end
    end
  end
  if not plain then
    if not complete then complete = make() end -- the complete code stands here, see script.go
    local text
    text, at, us = complete(own, kind, k, count, lease, us)
    if sub(text, 1, 9) == '-READONLY' then return {err = sub(text, 2)} end
    odd = odd or {1}
    odd[#odd + 1], odd[#odd + 2] = q, text
  end
  if kind == 65 then
    k = left > 0 and k + 1 or k + 1 + count
  elseif kind == 69 or kind == 82 or kind == 116 then
    k = k + 1
  else
    k = k + 2
  end
until at > #a
if complete then complete() end
if odd then
  odd[1] = now or 1
  return odd
end
return now or 1
