-- Extends the fence of a partition and its gate.
-- Keys: 1 lock, 2 quarantine, 3 gate. Args: 1 epoch, 2 ttl in ms, 3 group.
-- Response: -1 rejected, 0 renewed, 1 renewed and in quarantine.
-- Invariant: only the owner of the current epoch can renew. A replaced epoch and a deleted gate
-- never return.
local lock = redis.call('HMGET', KEYS[1], 'epoch', 'gate')
if lock[1] ~= ARGV[1] then return -1 end
if lock[2] == KEYS[3] and redis.call('PEXPIRE', KEYS[3], ARGV[2]) == 0 then
  -- The gate had expired, and no other owner has fenced the partition.
  redis.call('XGROUP', 'CREATE', KEYS[3], ARGV[3], '$', 'MKSTREAM')
  redis.call('PEXPIRE', KEYS[3], ARGV[2])
end
local time = redis.call('TIME')
redis.call('HSET', KEYS[1], 'until', string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000) + ARGV[2]))
return redis.call('EXISTS', KEYS[2])
