-- Keeps a partition's fence up, and its gate open.
-- Keys: 1 lock, 2 quarantine, 3 gate. Args: 1 epoch, 2 ttl in ms, 3 group.
-- Answer: -1 refused, 0 kept, 1 kept and quarantined.
-- Invariant: only the owner of the current epoch can; an epoch that has been passed never comes back, and no gate that was shut.
local held = redis.call('HMGET', KEYS[1], 'epoch', 'gate')
if held[1] ~= ARGV[1] then return -1 end
if held[2] == KEYS[3] and redis.call('PEXPIRE', KEYS[3], ARGV[2]) == 0 then
  -- It had run out, and nobody has passed us.
  redis.call('XGROUP', 'CREATE', KEYS[3], ARGV[3], '$', 'MKSTREAM')
  redis.call('PEXPIRE', KEYS[3], ARGV[2])
end
local time = redis.call('TIME')
redis.call('HSET', KEYS[1], 'until', string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000) + ARGV[2]))
return redis.call('EXISTS', KEYS[2])
