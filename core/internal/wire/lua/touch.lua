-- Changes nothing except what the head does: a node that lost its memory begins its quarantine.
-- resource: a key of the same bucket that nothing else uses
-- Replies  OK now memory = it would take a grant   QUARANTINED now rest   CLOCK us | REPLICA now | NOGUARD now
--          or the server's error if it takes no writes
if now < quarantine then return 'QUARANTINED ' .. clock .. ' ' .. int(quarantine - now) end
-- Writes nothing, because the key does not exist, and fails where an acquisition would: out of memory, too few
-- replicas, a failing disk.
call('SET', resource, '1', 'PX', '1', 'XX')
return 'OK ' .. clock .. ' ' .. memory
