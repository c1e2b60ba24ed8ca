-- Keeps a partition's fence up.
-- Keys: 1 lock, 2 quarantine. Args: 1 epoch, 2 ttl in ms. Answer: -1 refused, 0 kept, 1 kept and quarantined.
-- Invariant: only the owner of the current epoch can; an epoch that has been passed never comes back.
if redis.call('HGET', KEYS[1], 'epoch') ~= ARGV[1] then return -1 end
local time = redis.call('TIME')
redis.call('HSET', KEYS[1], 'until', string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000) + ARGV[2]))
return redis.call('EXISTS', KEYS[2])
