-- The guard record of a node is one text: "<memory> <longest>" and, while Provision claims the node and it has granted
-- nothing since, " <claim>".
-- memory: what the node remembers, "<history>.<since>": the replication history that it was written under, and when the
--   memory began (server ms); and "!" where Provision has declared the node new, so that it needs no quarantine.  Either may
--   repeat, the beginning by chance and the history after a flush; together they name the memory
-- longest: lease in use (ms)
-- What is not such a text is another memory's.
local function guarding(text) -- memory, history, since, '!' or '', longest, claim or ''
  if text then return string.match(text, '^((%x+)%.(%d+)(!?)) (%d+) ?(%S*)$') end
end
