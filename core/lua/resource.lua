-- A resource is one string, packed: e = logical expiry of the lease (server ms, 0 = it was ended)
--   i = attempt that owns it, '' = none          f = fencing counter (last token handed out)
--   p = what f was before the owner was granted, -1 = it was not granted, it renewed
--   r = attempt that may have the resource next, u = until then (server ms)
--   c = what the owner's holder carries          d = completion record, '' = none
-- Its first byte marks the layout.  What has another mark, or another type, is refused: it may be a lease.
local e, f, p, u, i, r, c, d
local function load(resource)
  local v = redis.call('GET', resource)
  if not v then
    e, f, p, u, i, r, c, d = 0, 0, -1, 0, '', '', '', ''
    return
  end
  if string.sub(v, 1, 1) ~= '\1' then error('LAYOUT the key was written by a version of lockkit with another layout') end
  local mark, rest
  mark, e, f, p, u, i, r, c, rest = struct.unpack('<BddddBc0Bc0Bc0', v)
  d = string.sub(v, rest)
end
-- Redis keeps it for so long (ms) from now on; nil = for as long as it would have.
local lifeOf, life
local function save(resource, ms)
  local v = struct.pack('<BddddBc0Bc0Bc0', 1, e, f, p, u, #i, i, #r, r, #c, c) .. d
  if not ms then return redis.call('SET', resource, v, 'KEEPTTL') end
  if ms ~= lifeOf then lifeOf, life = ms, int(ms) end -- mostly the same for all of a batch
  redis.call('SET', resource, v, 'PX', life)
end
-- For what must get through.  A server that is out of memory refuses SET, unless the script has written before.
local function press(resource, ms, tombstone)
  if pcall(save, resource, ms) then return end
  redis.call('DEL', tombstone)
  save(resource, ms)
end
local function record(now)
  if d == '' then return 0, 0 end
  local ballot, kept, origin, rest = struct.unpack('<ddd', d)
  if now >= kept then return 0, 0 end
  return ballot, kept, origin, string.sub(d, rest)
end
