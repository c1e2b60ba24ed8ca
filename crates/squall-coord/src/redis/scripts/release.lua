-- Releases leases.
-- Keys: as the prelude. Args: as the prelude, 3 member, 4… unit and epoch in turn. Reply: how many
--   leases were released.
-- Invariant: a lease of another member, or of a later grant, stays untouched.
local count = 0
for at = 4, #ARGV, 2 do
  local field = 'unit:' .. ARGV[at]
  if redis.call('HGET', KEYS[3], field) == ARGV[at + 1] .. ' ' .. ARGV[3] then
    redis.call('HDEL', KEYS[3], field)
    count = count + 1
  end
end
if count > 0 then bump_revision('release', {ARGV[3]}) end
return count
