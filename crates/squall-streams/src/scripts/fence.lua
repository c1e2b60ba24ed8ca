-- Makes an owner the only one whose reads and acknowledgements of a partition are accepted.
-- Keys: 1 lock (hash: owner, epoch, until, reads), 2 events (stream), 3 quarantine (string).
-- Args: 1 owner, 2 epoch, 3 ttl in ms, 4 group. Answer: -1 refused, 0 fenced, 1 fenced and quarantined.
-- Invariant: the epoch in the lock never goes down. The group exists afterwards, from the beginning of the stream.
local held = redis.call('HMGET', KEYS[1], 'epoch', 'owner')
local epoch = tonumber(held[1] or '0')
if epoch > tonumber(ARGV[2]) or (epoch == tonumber(ARGV[2]) and held[2] ~= ARGV[1]) then return -1 end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local made = redis.pcall('XGROUP', 'CREATE', KEYS[2], ARGV[4], '0', 'MKSTREAM')
if made.err and not string.find(made.err, 'BUSYGROUP') then return made end
if epoch < tonumber(ARGV[2]) then redis.call('HDEL', KEYS[1], 'reads') end
redis.call('HSET', KEYS[1], 'owner', ARGV[1], 'epoch', ARGV[2], 'until', string.format('%.0f', now + ARGV[3]))
return redis.call('EXISTS', KEYS[3])
