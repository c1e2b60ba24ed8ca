-- Acknowledges events of a partition.
-- Keys: 1 events, 2 lock. Args: 1 epoch, 2 group, 3… ids.
-- Response: -1 rejected, else the number of events that were pending.
-- Invariant: an owner whose lease has expired cannot acknowledge.
local lock = redis.call('HMGET', KEYS[2], 'epoch', 'until')
local time = redis.call('TIME')
if lock[1] ~= ARGV[1] or tonumber(lock[2]) <= time[1] * 1000 + time[2] / 1000 then return -1 end
return redis.call('XACK', KEYS[1], ARGV[2], unpack(ARGV, 3))
