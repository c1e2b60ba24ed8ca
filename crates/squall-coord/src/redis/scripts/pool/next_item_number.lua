-- Gives out a number, for a thing that is about to be made.
-- Keys: as the prelude. Args: as the prelude, 5 run, 6 how many numbers there are (-1: any), 7 most things to look at.
-- Answer: the number, -1 if there is none, or -2 if so many were there that the rest is for another step.
-- Payload keys are named after KEYS[2], in whose slot they are.
-- Invariant: no number is given out twice in a run, nor one that names a thing that is there, so nothing is made twice; a number whose
--   thing was not made is given out again in the next run. A thing that is there is looked at once in a run.
local of_run, limit, looks = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
if of_run < run then return -1 end
redis.call('HSETNX', KEYS[1], ARGV[2], 0)
local at = tonumber(redis.call('HGET', KEYS[6], 'numbers') or '0')
local numbered = tonumber(redis.call('HGET', KEYS[6], 'numbered') or '-1')
if numbered < of_run then numbered, at = of_run, 0 end
local base = string.sub(KEYS[2], 1, -string.len('available') - 1)
local function ended() return limit >= 0 and at >= limit end
while looks > 0 and not ended() and redis.call('EXISTS', base .. whole(at)) == 1 do
  at = at + 1
  looks = looks - 1
end
local answer = at
if ended() then answer = -1 elseif looks == 0 then answer = -2 else at = at + 1 end
redis.call('HSET', KEYS[6], 'numbers', whole(at), 'numbered', whole(numbered))
return answer
