-- Acquires free units.
-- Keys: as the prelude, 5 admin lock. Args: as the prelude, 3 member, 4… units.
-- Reply: one epoch per unit (0: another member holds it), or 'not_member', or
--   'grants_paused' while an administrator has paused grants.
-- Invariant: each unit has one holder, which is a member; every grant has a higher epoch than all
--   earlier ones; a repeated call, after a lost reply, gets the same reply.
if not redis.call('ZSCORE', KEYS[2], ARGV[3]) then return 'not_member' end
if redis.call('EXISTS', KEYS[5]) == 1 then return 'grants_paused' end
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
