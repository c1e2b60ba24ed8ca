-- Gives out a number, for a thing that is about to be made.
-- Keys: as the prelude. Args: as the prelude, 5 run, 6 how many numbers there are (-1: any). Answer: the number, or -1.
-- Payload keys are named after KEYS[2], in whose slot they are.
-- Invariant: no number is given out twice between two renewals, nor one that names a thing that is there, so nothing is made twice.
if tonumber(ARGV[5]) < run then return -1 end
redis.call('HSETNX', KEYS[1], ARGV[2], 0)
local limit = tonumber(ARGV[6])
local given = tonumber(redis.call('HGET', KEYS[6], 'numbers') or '0')
local base = string.sub(KEYS[2], 1, -string.len('available') - 1)
while redis.call('EXISTS', base .. whole(given)) == 1 do given = given + 1 end
if limit >= 0 and given >= limit then return -1 end
redis.call('HSET', KEYS[6], 'numbers', whole(given + 1))
return given
