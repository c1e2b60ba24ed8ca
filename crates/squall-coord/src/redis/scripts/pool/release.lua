-- Releases an item.
-- Keys: as the prelude. Args: as the prelude, 5 holder, 6 run, 7 id, 8 grant.
-- Reply: {'released'}, {'not_held'} or {'run_ended', current run}.
-- Invariant: an item of another holder, or of a later grant, stays untouched; an ended run changes
--   nothing.
if tonumber(ARGV[6]) < run then return {'run_ended', whole(run)} end
local record = held_item(ARGV[7])
local ours = record and record.grant == ARGV[8] and record.run == ARGV[6] and record.holder == ARGV[5]
if ours then return_item(ARGV[7]) end
notify_next()
return {ours and 'released' or 'not_held'}
