-- Puts a partition in quarantine.
-- Keys: 1 lock, 2 quarantine. Args: 1 epoch, 2 JSON with the reason. Response: -1 rejected, 1 done.
-- Invariant: only the owner of the partition can do it. The quarantine stays until an operator
-- clears it.
if redis.call('HGET', KEYS[1], 'epoch') ~= ARGV[1] then return -1 end
redis.call('SET', KEYS[2], ARGV[2])
return 1
