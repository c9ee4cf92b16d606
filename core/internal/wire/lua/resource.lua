-- A resource is one string, packed: e = logical expiry of the lease (server ms, 0 = it was ended)
--   f = fencing counter (last token granted)
--   p = what f was before the owner was granted, -1 = none: a renewal brought the lease, or it has ended
--   i = attempt that owns it, '' = none
-- and, unless all of them are missing:
--   r = attempt that may have the resource next, '' = none   u = until then (server ms)
--   c = texts of the owner's holder   d = completion record, '' = none
-- Its first byte marks the layout: 4, or 5 while a call may wait, and then z stands before i: when the last hold ended
-- here (server ms). A value with another mark, or of another type, is refused: it may be a lease.
-- A tombstone is one byte: how its attempt ended on this node. All later requests of the attempt are answered by it.
--   RELEASED   a release ended it, or may have
--   COMPLETED  a completion ended it, and its record is here
--   REFUSED    a completion was refused, or the first release did not find the attempt
--   REVOKED    a revocation ended it
-- Later requests never change RELEASED and REVOKED. Of several completions the last one counts.
local RELEASED, COMPLETED, REFUSED, REVOKED = '1', '2', '3', '4'
local call, pack, unpack, sub = redis.call, struct.pack, struct.unpack, string.sub
local waited, z -- of the resource loaded last
local now -- server ms
local idle -- life of an idle fencing counter (ms)
local life -- see life.lua
local function load(resource)
  local v = call('GET', resource)
  waited, z = false, 0
  if not v then return 0, 0, -1, '', '', 0, '', '' end
  local mark, e, f, p, i, rest = string.byte(v, 1, 1)
  if mark == 4 then
    mark, e, f, p, i, rest = unpack('<BdddBc0', v)
  elseif mark == 5 then
    waited, mark, e, f, p, z, i, rest = true, unpack('<BddddBc0', v)
  else
    error('LAYOUT the key was written by a version of lockkit with another layout')
  end
  if rest > #v then return e, f, p, i, '', 0, '', '' end
  local r, u, c, last = unpack('<Bc0dBc0', v, rest)
  return e, f, p, i, r, u, c, sub(v, last)
end
local function packed(e, f, p, i, r, u, c, d)
  local v = waited and pack('<BddddBc0', 5, e, f, p, z, #i, i) or pack('<BdddBc0', 4, e, f, p, #i, i)
  if r == '' and c == '' and d == '' then return v end
  return v .. pack('<Bc0dBc0', #r, r, u, #c, c) .. d
end
-- SET with these arguments, for a write that must succeed because it keeps a granted lease or ends one. A server that
-- is out of memory refuses a SET, unless the script has written before: the DEL is such a write.
-- nothing: a key that may be deleted for that
local function press(nothing, ...)
  if not redis.pcall('SET', ...).err then return end
  call('DEL', nothing)
  call('SET', ...)
end
local function record(d)
  local ballot, kept, origin, rest = unpack('<ddd', d)
  return ballot, kept, origin, sub(d, rest)
end
