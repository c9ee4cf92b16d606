-- The guard record of a node is one text: "<memory> <longest><mark>" and, while Provision claims the node and it has granted
-- nothing since, " <claim>".
-- memory: what the node remembers, "<history>.<since>": the replication history that it was written under, and when the
--   memory began (server ms); and "!" where Provision has declared the node new, so that it needs no quarantine.  Either may
--   repeat, the beginning by chance and the history after a flush; together they name the memory
-- longest: lease in use (ms)
-- mark: '', or while an operator lowers longest "><to>@<us>": to what (ms), and when the node was marked (server us).  It
--   ends with the first request that names more than that, with the memory, and after ten minutes.  No plain request
--   overlooks it: to that, the node is one that the client does not know
-- What is not such a text is another memory's.
local function guarding(text) -- memory, history, since, '!' or '', longest, mark or '', claim or ''
  if text then return string.match(text, '^((%x+)%.(%d+)(!?)) (%d+)(>?%d*@?%d*) ?(%S*)$') end
end
-- Notes since when (server ms) longest is what it is, for who looks, beside the record: in it the time would have to be known
-- to each client.  Only where it has changed: before, it is as old as the memory.
local function noting(guard, longest, since)
  redis.pcall('SET', string.sub(guard, 1, -2) .. 'm', int(longest) .. ' ' .. int(since))
end
