-- Changes nothing but what the head does: a node that lost its memory begins its quarantine.
-- Replies  OK now memory   QUARANTINED now rest   CLOCK us | REPLICA now | NOGUARD now
if now < quarantine then return 'QUARANTINED ' .. clock .. ' ' .. int(quarantine - now) end
return 'OK ' .. clock .. ' ' .. memory
