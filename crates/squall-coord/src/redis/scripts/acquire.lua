-- Takes units that nobody else holds.
-- Keys: as the prelude, 5 admin lock. Args: as the prelude, 3 member, 4… units.
-- Answer: one epoch (0: held by somebody else) per unit, or 'gone', or 'closed'.
-- Invariant: one holder per unit, who is a member; every grant has a higher epoch than any before it; a step that is repeated, because
-- its answer got lost, is answered as it was.
if not redis.call('ZSCORE', KEYS[2], ARGV[3]) then return 'gone' end
if redis.call('EXISTS', KEYS[5]) == 1 then return 'closed' end
local grants = {}
for at = 4, #ARGV do
  local field = 'unit:' .. ARGV[at]
  local held = redis.call('HGET', KEYS[3], field)
  if held then
    local epoch, holder = lease(held)
    grants[at - 3] = holder == ARGV[3] and tonumber(epoch) or 0
  else
    local epoch = redis.call('HINCRBY', KEYS[3], 'epoch', 1)
    redis.call('HSET', KEYS[3], field, whole(epoch) .. ' ' .. ARGV[3])
    grants[at - 3] = epoch
  end
end
return grants
