-- Stores a worker's report until its ttl passes.
-- Keys: 1 epoch, 2 revision, 3 workers (set), 4 status (hash). Args: 1 worker, 2 ttl in ms, 3
--   instance, 4… field and value in turn.
-- Reply: epoch, revision, time in ms, and, if another instance has this name, the time of its last
--   report.
-- Invariant: values that are not numbers are rejected; the times are by the store's clock, and
--   `last_heartbeat` is in whole seconds, as vikhry reads it; a name belongs to one instance until
--   its report expires.
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local record = {tonumber(redis.call('GET', KEYS[1]) or '0'), tonumber(redis.call('GET', KEYS[2]) or '0'), now, false}
if not (record[1] and record[2] and record[1] >= 0 and record[2] >= 0) then return redis.error_reply('WRONGTYPE test:epoch or test:revision is not a whole number') end
-- A foreign key is replaced.
local owner = redis.pcall('HGET', KEYS[4], 'instance')
if ARGV[3] ~= '' and type(owner) == 'string' and owner ~= ARGV[3] then
  record[4] = redis.call('HGET', KEYS[4], 'reported_at_ms') or ''
  return record
end
redis.call('SADD', KEYS[3], ARGV[1])
redis.call('DEL', KEYS[4])
redis.call('HSET', KEYS[4], 'last_heartbeat', time[1], 'reported_at_ms', string.format('%d', now), unpack(ARGV, 4))
redis.call('PEXPIRE', KEYS[4], ARGV[2])
return record
