-- Gives out a number, for a thing that is about to be made.
-- Keys: as the prelude. Args: as the prelude, 5 run, 6 how many numbers there are (-1: any). Answer: the number, or -1.
-- Invariant: no number is given out twice between two renewals, so nothing is made twice.
if tonumber(ARGV[5]) < run then return -1 end
redis.call('HSETNX', KEYS[1], ARGV[2], 0)
local limit = tonumber(ARGV[6])
local given = tonumber(redis.call('HGET', KEYS[6], 'numbers') or '0')
if limit >= 0 and given >= limit then return -1 end
return redis.call('HINCRBY', KEYS[6], 'numbers', 1) - 1
