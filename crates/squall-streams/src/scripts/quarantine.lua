-- Takes a partition out of processing.
-- Keys: 1 lock, 2 quarantine. Args: 1 epoch, 2 JSON with the reason. Answer: -1 refused, 1 done.
-- Invariant: only the partition's owner can; it stays until somebody clears it.
if redis.call('HGET', KEYS[1], 'epoch') ~= ARGV[1] then return -1 end
redis.call('SET', KEYS[2], ARGV[2])
return 1
