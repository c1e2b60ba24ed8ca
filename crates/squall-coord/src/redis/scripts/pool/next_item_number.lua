-- Returns a number for an item that is about to be created.
-- Keys: as the prelude. Args: as the prelude, 5 run, 6 number of allowed numbers (-1: no limit), 7
--   most numbers to check, 8 the first number.
-- Reply: the number, -1 if none is left, or -2 if the limit of checks was reached and the caller
--   must call again.
-- Payload keys are derived from KEYS[2] and share its slot.
-- Invariant: a run gets each number once, and never the number of an existing item, so no item is
--   created twice; the next run gets the number again if its item was not created. A run checks
--   each existing item once.
local of_run, limit, looks, first = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8])
if of_run < run then return -1 end
redis.call('HSETNX', KEYS[1], ARGV[2], 0)
local at = tonumber(redis.call('HGET', KEYS[6], 'numbers') or ARGV[8])
local numbered = tonumber(redis.call('HGET', KEYS[6], 'numbered') or '-1')
if numbered < of_run then numbered, at = of_run, first end
local base = string.sub(KEYS[2], 1, -string.len('available') - 1)
local function ended() return limit >= 0 and at >= limit + first end
while looks > 0 and not ended() and redis.call('EXISTS', base .. whole(at)) == 1 do
  at = at + 1
  looks = looks - 1
end
local answer = at
if ended() then answer = -1 elseif looks == 0 then answer = -2 else at = at + 1 end
redis.call('HSET', KEYS[6], 'numbers', whole(at), 'numbered', whole(numbered))
return answer
