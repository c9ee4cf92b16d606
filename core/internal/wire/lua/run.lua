-- Runs the requests of a command in order, each as if it had been sent alone at this instant: clock and guard are read
-- once. Plain requests are done here, without functions. The complete code, which would reply the same, does the rest.
-- KEYS resource of each request, and for some its tombstone; guard record, if a request needs it
-- ARGV 1, packed by encode.go: the head, '<Bddddd' 1 = there is a guard; client wall clock (us), clock window (ms, 0 =
--      off), longest lease in use (ms), replica lag (ms), life of an idle fencing counter (ms); with a guard '<Bc0Bc0d'
--      the line of INFO and the guard record (guard.lua) that the client expects, and from when on such a node votes
--      (server ms); then groups of requests, each of a kind:
--      'A' '<BddddBc0' count, least and greatest clock (us), how far a token may be from it (us), lease (ms), life of
--        the resource (ms, text); for each '<dBc0dc0d' proposed token, attempt, what follows it in the resource, length
--        of the rest; if the call waits, the rest is '<Bc0Bc0d' channel, wait, ticket. KEYS resources, then tombstones
--      'R' the same for renewals; for each '<dBc0ddBc0' token, attempt, expiry confirmed, turn, carried. KEYS resources
--      'E' '<BBc0' count of releases, life; for each '<Bc0dd' attempt, drop, buried, which is not positive.
--        KEYS resources
--      'a' 'r' 'e' 'c' 't' are never plain: see requests.lua
-- Replies  the node's clock (ms), or 1 if it was not read: all requests were granted what they asked for
--          or that, and for each request that was not plain its number and its reply; '-' and the error if it failed
local KEYS, a, call, all, unpack, pack = KEYS, ARGV[1], redis.pcall, unpack, struct.unpack, struct.pack
local sub, byte, find = string.sub, string.byte, string.find
-- at: position in ARGV 1   k: index in KEYS   q: number of the request   left: how many of its group follow it
-- vouched = the node is as the client expects   fine = the head would refuse nothing
-- odd: the reply, if not all requests are plain
-- tomb: how many attempts of the group have a tombstone
-- values, seen: resources of the group, and which were used already
local at, k, q, left, due, complete = 42, 1, 0, 0, {}, nil
local line, known, votes, vouched, fine, now, ends, kind, count, lo, hi, near, lease, life, tomb, values, seen, odd
if byte(a, 1) == 1 then line, known, votes, at = unpack('<Bc0Bc0d', a, 42) end
repeat
  local own = at
  if left == 0 then
    kind, count, values, seen, tomb = byte(a, at), 1, nil, nil, nil
    if kind == 69 then -- 'E'
      count, life, own = unpack('<BBc0', a, at + 1)
    elseif kind == 65 or kind == 82 then -- 'A', 'R'
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
              vouched = #info > 26 and byte(info, 21) == 109 and find(info, line, 27, true) -- 109: the m of role:master
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
  if kind == 69 then -- 'E': plain if the attempt owns the resource, which has no turn, record or waiters
    local id
    id, at = unpack('<Bc0', a, own)
    at = at + 16
    if v and #v > 25 then
      local mark, e, f, p, n = unpack('<BdddB', v)
      if mark == 4 and e > 0 and f > 0 and n == #id and find(v, id, 27, true) == 27 and (#v == 26 + n or byte(v, 27 + n) == 0 and byte(v, 36 + n) == #v - 36 - n) then
        plain = not call('SET', resource, pack('<BdddBc0', 4, 0, f, -1, n, id), 'PX', life).err
      end
    end
  elseif kind == 65 then -- 'A': plain if the resource is free, and has no texts, turn, record or waiters
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
        -- NX, because MGET returns nothing for a key of another type.
        if v then got = call('SET', resource, taken, 'PX', life) else got = call('SET', resource, taken, 'PX', life, 'NX') end
        plain = got and not got.err
        if plain then due[resource] = nil end -- taken again: notify no waiter
      end
    end
  elseif kind == 82 then -- 'R': plain under the conditions of 'E', and if neither expiry nor counter goes back
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
    if not complete then complete = make() end -- script.go puts the complete code here
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
