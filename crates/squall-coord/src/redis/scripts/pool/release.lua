-- Gives something back.
-- Keys: as the prelude. Args: as the prelude, 5 holder, 6 run, 7 id, 8 grant.
-- Answer: {'done'}, {'not held'} or {'stale', run}.
-- Invariant: what has gone to somebody else, or to a later grant, is left alone; a run that is over changes nothing.
if tonumber(ARGV[6]) < run then return {'stale', whole(run)} end
local record = hold(ARGV[7])
local ours = record and record.grant == ARGV[8] and record.run == ARGV[6] and record.holder == ARGV[5]
if ours then give_back(ARGV[7]) end
call_next()
return {ours and 'done' or 'not held'}
