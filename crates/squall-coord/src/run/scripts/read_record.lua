-- Reads the record of the run at one instant.
-- Keys: 1 state, 2 epoch, 3 revision, 4 order (the run's spec) (strings). Reply: state, epoch,
--   revision, order, time in ms.
-- Invariant: all parts belong to the same instant; values that are not numbers are rejected.
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local epoch, revision = tonumber(redis.call('GET', KEYS[2]) or '0'), tonumber(redis.call('GET', KEYS[3]) or '0')
if not (epoch and revision and epoch >= 0 and revision >= 0) then return redis.error_reply('WRONGTYPE test:epoch or test:revision is not a whole number') end
return {redis.call('GET', KEYS[1]) or '', epoch, revision, redis.call('GET', KEYS[4]) or '', now}
