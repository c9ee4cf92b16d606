-- Changes nothing but what the head does: a node that lost its memory begins its quarantine.
-- KEYS 1 and 2 a key of the same bucket that nothing else uses  3 guard, only where the restart guard is on
-- Replies  OK now memory = it would take a grant   QUARANTINED now rest   CLOCK us | REPLICA now | NOGUARD now
--          or the server's error where it takes no writes
if now < quarantine then return 'QUARANTINED ' .. clock .. ' ' .. int(quarantine - now) end
-- Writes nothing, as the key is not there, and is refused where an acquisition would be: out of memory, too few replicas,
-- a disk that fails.
call('SET', KEYS[1], '1', 'PX', '1', 'XX')
return 'OK ' .. clock .. ' ' .. memory
